/**
 * One connection to a server of Envoy's API, over raw HTTP/2 so that the caller costs little and pauses
 * seldom. Calls of one turn go out in one write; where the server's window is full they wait for room.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import {
  callData,
  callHeaders,
  FLAG,
  FRAME,
  frame,
  FrameReader,
  preface,
  windowUpdate,
} from './wire.js';

/** `code` is the answer's overall code, 0 for an error status, a broken stream or connection. */
export type Done = (code: number, message: Buffer) => void;

interface OpenCall {
  readonly done: Done;
  message: Buffer;
}

const NOTHING = Buffer.alloc(0);
const RENEW_WINDOW_AT = 1 << 28;
const PREFIX_BYTES = 5;

export class Connection {
  private readonly reader = new FrameReader();
  private readonly calls = new Map<number, OpenCall>();
  private readonly held: { readonly message: Buffer; readonly done: Done }[] = [];
  private readonly headers: Buffer;
  private out: Buffer[] = [];
  private stream = 1;
  private window = 65_535;
  private received = 0;

  private constructor(
    private readonly socket: Socket,
    headers: Buffer,
  ) {
    this.headers = headers;
    socket.write(preface());
    socket.on('data', (bytes) => {
      this.reader.read(bytes, (type, flags, stream, payload) => {
        this.meet(type, flags, stream, payload);
      });
      this.flush();
    });
    socket.on('error', () => undefined); // its calls are told when it closes
    socket.on('close', () => {
      for (const { done } of this.calls.values()) done(0, NOTHING);
      this.calls.clear();
    });
  }

  /** With `timeoutMs` the server is told how long we wait, as Envoy tells it; we wait all the same. */
  static async open(port: number, timeoutMs?: number): Promise<Connection> {
    const socket = connect({ host: '127.0.0.1', port, noDelay: true });
    await once(socket, 'connect');
    return new Connection(socket, callHeaders(`127.0.0.1:${port}`, timeoutMs));
  }

  /** `done` is called once. */
  send(message: Buffer, done: Done): void {
    const size = PREFIX_BYTES + message.length;
    if (this.socket.destroyed) done(0, NOTHING);
    else if (this.window < size) this.held.push({ message, done });
    else {
      this.window -= size;
      const { stream } = this;
      this.stream += 2;
      const headers = Buffer.from(this.headers);
      headers.writeUInt32BE(stream, 5);
      if (this.out.length === 0) process.nextTick(this.flush);
      this.out.push(headers, callData(stream, message));
      this.calls.set(stream, { done, message: NOTHING });
    }
  }

  /** Its open calls are told that they failed. */
  close(): void {
    this.socket.destroy();
  }

  /** Closes it, and its open calls hear nothing. */
  silence(): void {
    this.calls.clear();
    this.close();
  }

  private readonly flush = (): void => {
    if (this.out.length === 0) return;
    this.socket.write(Buffer.concat(this.out));
    this.out = [];
  };

  private meet(type: number, flags: number, stream: number, payload: Buffer): void {
    if (type === FRAME.data) this.readAnswer(stream, payload);
    else if (type === FRAME.settings && (flags & FLAG.ack) === 0) {
      this.out.push(frame(FRAME.settings, FLAG.ack, 0, NOTHING));
    } else if (type === FRAME.ping && (flags & FLAG.ack) === 0) {
      this.out.push(frame(FRAME.ping, FLAG.ack, 0, payload));
    } else if (type === FRAME.window && stream === 0) {
      this.window += payload.readUInt32BE(0);
      for (const { message, done } of this.held.splice(0)) this.send(message, done);
    }
    const ends = (type === FRAME.data || type === FRAME.headers) && (flags & FLAG.endStream) !== 0;
    if (ends || type === FRAME.reset) this.end(stream);
  }

  private readAnswer(stream: number, payload: Buffer): void {
    this.received += payload.length;
    if (this.received > RENEW_WINDOW_AT) {
      this.out.push(windowUpdate(this.received));
      this.received = 0;
    }
    const call = this.calls.get(stream);
    if (call !== undefined) call.message = payload.subarray(PREFIX_BYTES);
  }

  private end(stream: number): void {
    const call = this.calls.get(stream);
    if (call === undefined) return;
    this.calls.delete(stream);
    // The message's first field is the overall code: 08 01 or 08 02.
    const { message } = call;
    call.done(message[0] === 8 ? (message[1] ?? 0) : 0, message);
  }
}
