/** A client that sends whatever bytes it is told to, and hands out the frames that come, as they come. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export const DATA = 0;
export const HEADERS = 1;
export const PRIORITY = 2;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const PUSH_PROMISE = 5;
export const PING = 6;
export const GOAWAY = 7;
export const WINDOW_UPDATE = 8;
export const CONTINUATION = 9;

export const ACK = 1;
export const END_STREAM = 1;
export const END_HEADERS = 4;
export const PADDED = 8;
export const WITH_PRIORITY = 32;

export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

export const NATIVE_PATH = '/weir.v1.RateLimiter/ShouldRateLimit';
export const ENVOY_PATH = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit';
export const CHECK_PATH = '/grpc.health.v1.Health/Check';
export const WATCH_PATH = '/grpc.health.v1.Health/Watch';
export const REFLECTION_PATH = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Buffer | string = Buffer.alloc(0),
): Buffer {
  const bytes = typeof payload === 'string' ? Buffer.from(payload, 'latin1') : payload;
  const head = Buffer.alloc(9);
  head.writeUIntBE(bytes.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, bytes]);
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** A frame of settings, by their numbers. */
export function settings(...values: readonly (readonly [number, number])[]): Buffer {
  const payload = values.map(([setting, value]) => {
    const bytes = Buffer.alloc(6);
    bytes.writeUInt16BE(setting, 0);
    bytes.writeUInt32BE(value, 2);
    return bytes;
  });
  return frame(SETTINGS, 0, 0, Buffer.concat(payload));
}

export function initialWindow(bytes: number): Buffer {
  return settings([4, bytes]);
}

export function windowUpdate(stream: number, increment: number): Buffer {
  return frame(WINDOW_UPDATE, 0, stream, uint32(increment));
}

/** What a client says first. */
export const HELLO = Buffer.concat([PREFACE, settings()]);

type Headers = Readonly<Record<string, string>>;

/** A header block of literals that nobody remembers. */
export function block(headers: Headers): Buffer {
  return Buffer.concat(
    Object.entries(headers).flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]),
  );
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  const rest = bytes.length - 127;
  return Buffer.concat([Buffer.from([127, (rest & 127) | 128, rest >> 7]), bytes]);
}

/** The header block of a call. */
export function head(path: string, more: Headers = {}): Buffer {
  return block({
    ':method': 'POST',
    ':scheme': 'http',
    ':path': path,
    ':authority': 'weir',
    'content-type': 'application/grpc',
    te: 'trailers',
    ...more,
  });
}

/** A message after its prefix. */
export function message(bytes: Buffer | string = '', compressed = 0): Buffer {
  const payload = typeof bytes === 'string' ? Buffer.from(bytes, 'hex') : bytes;
  return Buffer.concat([Buffer.from([compressed]), uint32(payload.length), payload]);
}

/** For the native API, with a descriptor whose `user` is `x`; what is answered, unless told otherwise. */
export const GOOD = message('1203120178');
export const ALLOWED = '0801';
/** For Envoy's API: domain `shop`, one descriptor. */
export const ENVOY_GOOD = message('0a0473686f7012080a060a0141120142');
/** Health's answer. */
export const SERVING = '0801';

/** A whole call: its head, and its message with the end of its stream. */
export function call(stream: number, path = CHECK_PATH, body = message()): Buffer {
  return Buffer.concat([
    frame(HEADERS, END_HEADERS, stream, head(path)),
    frame(DATA, END_STREAM, stream, body),
  ]);
}

/** What came on one stream. */
export interface Answer {
  readonly headers: Headers;
  readonly messages: readonly Buffer[];
  readonly trailers: Headers;
  /** Of RST_STREAM, if that came. */
  readonly reset: number | undefined;
}

export class RawClient {
  readonly frames: Frame[] = [];
  /** The connection is gone. */
  closed = false;
  private pending: Buffer = Buffer.alloc(0);
  private wake: () => void = () => undefined;

  private constructor(readonly socket: Socket) {
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => {
      this.read(chunk);
    });
    socket.once('close', () => {
      this.closed = true;
      this.wake();
    });
  }

  /** Connects, and says hello. */
  static async open(port: number, hello: Buffer = HELLO): Promise<RawClient> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    await once(socket, 'connect');
    const client = new RawClient(socket);
    client.send(hello);
    return client;
  }

  send(...bytes: readonly Buffer[]): void {
    this.socket.write(Buffer.concat(bytes));
  }

  /** Resolves with what `find` finds in all that has come and comes; rejects when it never will. */
  async until<T>(find: () => T | undefined | false, what = 'what was awaited'): Promise<T> {
    const lateMs = Date.now() + 5000;
    for (;;) {
      const found = find();
      if (found !== undefined && found !== false) return found;
      if (this.closed) throw new Error(`closed before ${what}: ${this.story()}`);
      if (Date.now() > lateMs) throw new Error(`${what} did not come: ${this.story()}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 100);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  async frame(type: number, stream?: number): Promise<Frame> {
    return this.until(
      () => this.frames.find((f) => f.type === type && (stream ?? f.stream) === f.stream),
      `frame ${type}`,
    );
  }

  /** Resolves once the server has read all that was sent and answered what it can at once. */
  async ping(): Promise<void> {
    const payload = Buffer.from(String(Math.random()).slice(2, 10).padEnd(8, '0'));
    this.send(frame(PING, 0, 0, payload));
    await this.until(
      () =>
        this.frames.some((f) => f.type === PING && f.flags === ACK && f.payload.equals(payload)),
      'the answer to a ping',
    );
  }

  /** Resolves when the stream has been ended or reset by the server. */
  async answer(stream: number): Promise<Answer> {
    await this.until(
      () => this.on(stream).some((f) => f.type === RST_STREAM || isLast(f)),
      `the end of stream ${stream}`,
    );
    return this.answerNow(stream);
  }

  /** The code of the GOAWAY with which the connection has ended. */
  async ending(): Promise<number | undefined> {
    await this.until(() => this.closed || undefined).catch((error: unknown) => {
      if (!this.closed) throw error;
    });
    const goAway = this.frames.findLast((f) => f.type === GOAWAY);
    return goAway?.payload.readUInt32BE(4);
  }

  on(stream: number): Frame[] {
    return this.frames.filter((f) => f.stream === stream);
  }

  /** All data of a stream so far. */
  dataOn(stream: number): Buffer {
    return Buffer.concat(
      this.on(stream)
        .filter((f) => f.type === DATA)
        .map((f) => f.payload),
    );
  }

  answerNow(stream: number): Answer {
    const blocks = this.on(stream).filter((f) => f.type === HEADERS);
    const messages: Buffer[] = [];
    const data = this.dataOn(stream);
    for (let at = 0; at + 5 <= data.length;) {
      const end = at + 5 + data.readUInt32BE(at + 1);
      messages.push(data.subarray(at + 5, end));
      at = end;
    }
    const last = blocks.find(isLast);
    return {
      headers: fieldsOf(blocks[0]),
      messages,
      trailers: fieldsOf(last),
      reset: this.on(stream)
        .find((f) => f.type === RST_STREAM)
        ?.payload.readUInt32BE(0),
    };
  }

  /** What came, for a failure's message. */
  story(): string {
    return this.frames
      .slice(-20)
      .map((f) => `${f.type}/${f.flags} on ${f.stream} (${f.payload.length})`)
      .join(', ');
  }

  close(): void {
    this.socket.destroy();
  }

  private read(chunk: Buffer): void {
    this.pending = Buffer.concat([this.pending, chunk]);
    while (this.pending.length >= 9) {
      const end = 9 + this.pending.readUIntBE(0, 3);
      if (this.pending.length < end) break;
      this.frames.push({
        type: this.pending[3] ?? 0,
        flags: this.pending[4] ?? 0,
        stream: this.pending.readUInt32BE(5),
        payload: this.pending.subarray(9, end),
      });
      this.pending = this.pending.subarray(end);
    }
    this.wake();
  }
}

function isLast(f: Frame): boolean {
  return (f.type === HEADERS || f.type === DATA) && (f.flags & END_STREAM) !== 0;
}

/** The few ways in which the server writes a header block. */
function fieldsOf(f: Frame | undefined): Record<string, string> {
  const fields: Record<string, string> = {};
  const bytes = f?.payload ?? Buffer.alloc(0);
  let at = 0;
  const string = (): string => {
    let length = bytes[at++] ?? 0;
    if (length === 127) {
      for (let shift = 0, more = true; more; shift += 7) {
        const next = bytes[at++] ?? 0;
        length += (next & 127) << shift;
        more = next > 127;
      }
    }
    at += length;
    return bytes.toString('latin1', at - length, at);
  };
  while (at < bytes.length) {
    const first = bytes[at++];
    if (first === 0x88) fields[':status'] = '200';
    else if (first === 0x0f && bytes[at] === 0x10) {
      at++;
      fields['content-type'] = string();
    } else if (first === 0) {
      const name = string();
      fields[name] = string();
    } else throw new Error(`a field of ${String(first)}`);
  }
  return fields;
}
