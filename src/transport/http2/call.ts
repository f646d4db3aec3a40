/**
 * One call on one stream: puts the caller's messages together out of frames of data, and sends what is
 * answered as far as the windows of flow control let it. Knows gRPC's framing, and no service.
 */
import { status } from '@grpc/grpc-js';
import {
  MAX_UNFINISHED_BYTES,
  type CallListener,
  type StreamingCall,
  type UnaryCall,
  type UnaryMethod,
} from '../calls.js';
import { decompress } from './decompression.js';
import {
  CONTENT_TYPE,
  DATA,
  END_HEADERS,
  END_STREAM,
  ERROR,
  HEADERS,
  headerBlock,
  MAX_FRAME_BYTES,
  PREFIX_BYTES,
  read32,
  type FrameWriter,
} from './frames.js';
import { GatheredBytes } from './gathered-bytes.js';
import { ENCODINGS, type RequestHead } from './request-head.js';

/** What a call needs of its connection. */
export interface CallConnection {
  readonly writer: FrameWriter;
  readonly maxMessageBytes: number;
  /** What the open calls hold of messages that are not whole yet. */
  unfinishedBytes: number;
  /** What they have answered, and may not send yet. */
  unsentBytes: number;
  /** How many bytes of data may be sent now on this stream. */
  sendWindow(call: Call): number;
  /** So much of the window is used. */
  dataSent(call: Call, bytes: number): void;
  /** The call has more to send than its window lets it. */
  awaitWindow(call: Call): void;
  /** What is in the writer goes out at the end of this turn. */
  flushSoon(): void;
  /** All has been sent. */
  forget(call: Call): void;
  /** All has been sent, and the client got what it asked for. */
  answered(call: Call): void;
  /** The client does what none should do often; it counts for so many. False: it is enough. */
  bear(count: number): boolean;
  /** Does what may fail by a fault of ours. */
  attempt(act: () => void): void;
  /** Resets the stream for what its client did. */
  punish(call: Call, code: number): void;
}

/** What the calls of a connection may have answered that its client does not take. */
const MAX_UNSENT_BYTES = 16_777_216;
/** Of patience. Messages of a stream come few, and each can be answered by many times its size. */
const MESSAGE_COST = 20;
/** Of a status's message, in characters: it has to fit a frame. */
const MAX_DETAILS = 1000;

/** What is said besides the status when nothing else is. */
const HEAD_FIELDS = [
  [':status', '200'],
  ['content-type', CONTENT_TYPE],
  ['grpc-accept-encoding', ENCODINGS.join(',')],
] as const;

export class Call implements UnaryCall, StreamingCall {
  cancelled = false;
  /** The client has ended its side. */
  remoteEnded = false;
  /** Of flow control: what has been sent, and what the client allowed beyond its initial window. */
  sentBytes = 0;
  credit = 0;
  /** Of flow control the other way: what has come and was not allowed anew. */
  receivedBytes = 0;
  private over = false;
  /** A unary call has its message. */
  private begun = false;
  private responded = false;
  private ending = false;
  /** The beginning of a message. */
  private unfinished: GatheredBytes | undefined;
  /** So much of it the connection counts. */
  private unfinishedBytes = 0;
  private unsent: Buffer[] | undefined;
  private unsentBytes = 0;
  private listener: CallListener | undefined;

  constructor(
    private readonly connection: CallConnection,
    readonly id: number,
    private readonly head: RequestHead,
  ) {}

  get patienceMs(): number {
    return this.head.patienceMs;
  }

  /** A unary call's message has come; what was answered may still wait for its window. */
  get isAnswering(): boolean {
    return this.begun && !this.over;
  }

  header(name: string): string | undefined {
    return this.head.fields.find((field) => field.name === name)?.value;
  }

  /** To be called once, before anything else. */
  start(): void {
    const { refusal, streaming } = this.head;
    if (refusal === undefined) this.listener = streaming?.(this);
    else if ('code' in refusal) this.fail(refusal.code, refusal.details);
    else this.finish(headerBlock([[':status', String(refusal.httpStatus)]]));
  }

  /** Data have come. The bytes are good for the length of this call only. */
  receive(bytes: Buffer): void {
    if (this.over || this.begun) return;
    this.unfinished?.append(bytes);
    const all = this.unfinished?.bytes ?? bytes;
    let at = 0;
    while (all.length - at >= PREFIX_BYTES) {
      const length = read32(all, at + 1);
      if (length > this.connection.maxMessageBytes) {
        this.failTooLarge();
        return;
      }
      const from = at + PREFIX_BYTES;
      if (all.length - from < length) break;
      at = from + length;
      this.take(all[from - PREFIX_BYTES] ?? 0, all.subarray(from, at));
      if (this.wantsNoMore()) {
        this.release();
        return;
      }
    }
    if (at < all.length) this.keep(all, at);
    else this.release();
  }

  /** The client has ended its side. */
  receiveEnd(): void {
    this.remoteEnded = true;
    if (this.over || this.begun) return;
    if (this.unfinished !== undefined || this.listener === undefined) {
      this.fail(status.INTERNAL, 'the request ended before its message did');
    } else this.listener.ended();
  }

  /** The client has gone. */
  cancel(): void {
    this.cancelled = true;
    this.close();
  }

  answer(message: Buffer): void {
    if (this.over) return;
    const { connection } = this;
    const length = PREFIX_BYTES + message.length;
    if (length > MAX_FRAME_BYTES || length > connection.sendWindow(this)) {
      this.write(message);
      this.end();
      return;
    }
    connection.dataSent(this, length);
    connection.writer.answer(this.id, message);
    this.answered();
  }

  write(message: Buffer): void {
    if (this.over || this.ending) return;
    const framed = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
    framed[0] = 0;
    framed.writeUInt32BE(message.length, 1);
    message.copy(framed, PREFIX_BYTES);
    (this.unsent ??= []).push(framed);
    this.countUnsent(framed.length);
    this.sendUnsent();
    const { connection } = this;
    if (connection.unsentBytes > MAX_UNSENT_BYTES) connection.punish(this, ERROR.enhanceYourCalm);
  }

  end(): void {
    if (this.over || this.ending) return;
    this.ending = true;
    this.sendUnsent();
  }

  fail(code: status, details: string): void {
    if (this.over) return;
    const fields = [
      ['grpc-status', String(code)],
      ['grpc-message', percentEncode(details.slice(0, MAX_DETAILS))],
    ] as const;
    this.finish(headerBlock(this.responded ? fields : [...HEAD_FIELDS, ...fields]));
  }

  /** As much as the windows allow; called again when they allow more. */
  sendUnsent(): void {
    const { connection, id } = this;
    const { writer } = connection;
    if (this.over) return;
    if (!this.responded) {
      this.responded = true;
      writer.response(id);
      connection.flushSoon();
    }
    for (let first = this.unsent?.[0]; first !== undefined; first = this.unsent?.[0]) {
      const size = Math.min(first.length, MAX_FRAME_BYTES, connection.sendWindow(this));
      if (size <= 0) {
        connection.awaitWindow(this);
        return;
      }
      writer.frame(DATA, 0, id, first.subarray(0, size));
      connection.dataSent(this, size);
      this.countUnsent(-size);
      if (size === first.length) this.unsent?.shift();
      else if (this.unsent !== undefined) this.unsent[0] = first.subarray(size);
      connection.flushSoon();
    }
    if (!this.ending) return;
    writer.trailers(id);
    this.answered();
  }

  private take(compressed: number, message: Buffer): void {
    const { unary, encoding } = this.head;
    if (unary === undefined) {
      const { connection } = this;
      if (!connection.bear(MESSAGE_COST)) connection.punish(this, ERROR.enhanceYourCalm);
      else if (compressed === 0) this.listener?.message(message);
      else this.fail(status.UNIMPLEMENTED, 'messages of this method cannot be compressed');
      return;
    }
    this.begun = true;
    if (compressed === 0) unary(this, message);
    else if (encoding === 'identity') {
      this.fail(status.INTERNAL, 'a compressed message, and no header that says how');
    } else this.decompress(Buffer.from(message), encoding, unary);
  }

  /** `message` is ours, as this goes on in another thread. */
  private decompress(message: Buffer, encoding: 'gzip' | 'deflate', unary: UnaryMethod): void {
    const { connection } = this;
    const maxBytes = connection.maxMessageBytes;
    // It is counted as a whole from here on, and no longer as the pieces that it came in.
    this.release();
    this.countUnfinished(message.length);
    if (this.over) {
      connection.unfinishedBytes -= message.length;
      return;
    }
    decompress({
      encoding,
      message,
      maxBytes,
      isVain: () => this.over,
      done: (result) => {
        connection.unfinishedBytes -= message.length;
        if (this.over) return;
        if (result === 'malformed') this.fail(status.INTERNAL, `a message that is not ${encoding}`);
        else if (result === 'too large') this.failTooLarge();
        else {
          connection.attempt(() => {
            unary(this, result);
          });
        }
      },
    });
  }

  private failTooLarge(): void {
    const most = String(this.connection.maxMessageBytes);
    this.fail(status.RESOURCE_EXHAUSTED, `a message of more than ${most} bytes`);
  }

  private wantsNoMore(): boolean {
    return this.over || this.begun;
  }

  /** From `at` on, what has come is the beginning of a message. */
  private keep(bytes: Buffer, at: number): void {
    if (this.unfinished === undefined) {
      this.unfinished = new GatheredBytes();
      this.unfinished.append(bytes, at);
    } else if (at > 0) this.unfinished.drop(at);
    const more = this.unfinished.length - this.unfinishedBytes;
    this.unfinishedBytes += more;
    this.countUnfinished(more);
  }

  private countUnfinished(bytes: number): void {
    const { connection } = this;
    connection.unfinishedBytes += bytes;
    if (connection.unfinishedBytes > MAX_UNFINISHED_BYTES) {
      connection.punish(this, ERROR.enhanceYourCalm);
    }
  }

  private countUnsent(bytes: number): void {
    this.unsentBytes += bytes;
    this.connection.unsentBytes += bytes;
  }

  private release(): void {
    if (this.unfinished === undefined) return;
    this.connection.unfinishedBytes -= this.unfinishedBytes;
    this.unfinished = undefined;
    this.unfinishedBytes = 0;
  }

  /** Sends the last headers, whatever is still unsent. */
  private finish(block: Buffer): void {
    this.connection.writer.frame(HEADERS, END_HEADERS | END_STREAM, this.id, block);
    this.ended();
  }

  private answered(): void {
    this.connection.flushSoon();
    this.connection.answered(this);
    this.close();
  }

  private ended(): void {
    this.connection.flushSoon();
    this.connection.forget(this);
    this.close();
  }

  private close(): void {
    if (this.over) return;
    this.over = true;
    this.unsent = undefined;
    this.countUnsent(-this.unsentBytes);
    this.release();
    this.listener?.closed();
  }
}

/** As the protocol wants a status's message: printable ASCII but for the percent sign. */
function percentEncode(text: string): string {
  if (!/[^ -$&-~]/.test(text)) return text;
  // Through bytes, so that half a character at its end does no harm.
  return encodeURIComponent(Buffer.from(text).toString()).replace(
    /%(2[0-46-9A-F]|3[A-F]|40|5[B-F]|60|7[B-E])/g,
    (code) => decodeURIComponent(code),
  );
}
