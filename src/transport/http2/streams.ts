/**
 * The streams of one HTTP/2 connection (RFC 9113): what each frame means, calls made of them, and what a
 * client may open, send and break before it is refused. Knows no socket and no timer.
 */
import { MAX_HEADER_LIST_BYTES, type CallLimits, type Methods } from '../calls.js';
import { Call, type CallConnection } from './call.js';
import { ConnectionError } from './connection-error.js';
import {
  ACK,
  CONTINUATION,
  DATA,
  DEFAULT_WINDOW,
  END_HEADERS,
  END_STREAM,
  ERROR,
  FRAME_HEAD_BYTES,
  GOAWAY,
  HEADERS,
  MAX_FRAME_BYTES,
  MAX_STREAM_ID,
  PADDED,
  PING,
  PREFIX_BYTES,
  PRIORITY,
  PUSH_PROMISE,
  read31,
  read32,
  RST_STREAM,
  SETTING,
  SETTINGS,
  WINDOW_UPDATE,
  WITH_PRIORITY,
  type FrameWriter,
} from './frames.js';
import { HeaderBlock } from './header-block.js';
import { HeaderDecoder, type HeaderField } from './hpack.js';
import { Patience } from './patience.js';
import { areTrailers, parseHead, type RequestHead } from './request-head.js';
import { SendWindows } from './send-windows.js';

/** What a client may send on one connection before it hears of a new window. */
const CONNECTION_WINDOW = 16_777_216;
const HEADER_TABLE_BYTES = 4096;
/** Streams that were answered before their client had ended them: so many are known. */
const MAX_CUT_SHORT = 1024;
const NOTHING = Buffer.alloc(0);

/** What the streams need of their connection. */
export interface StreamsConnection {
  readonly writer: FrameWriter;
  /** What is in the writer goes out at the end of this turn. */
  flushSoon(): void;
  /** The client does not read what it is sent. */
  isCongested(): boolean;
  /** Does what may fail by a fault of ours. */
  attempt(act: () => void): void;
  /** The client has answered a ping; the payload is good for the length of this call only. */
  pinged(payload: Buffer): void;
}

export class Streams implements CallConnection {
  readonly writer: FrameWriter;
  readonly maxMessageBytes: number;
  unfinishedBytes = 0;
  unsentBytes = 0;
  /** The client has said its first words. */
  hasBegun = false;
  private readonly streamWindow: number;
  private readonly decoder = new HeaderDecoder(HEADER_TABLE_BYTES, MAX_HEADER_LIST_BYTES);
  private readonly calls = new Map<number, Call>();
  private readonly windows = new SendWindows();
  private readonly patience = new Patience();
  /** Streams that we have closed, of which the client may not know yet. */
  private readonly cutShort = new Set<number>();
  /** What the header lists say that the decoder remembers. */
  private readonly heads = new WeakMap<readonly HeaderField[], RequestHead>();
  /** One that goes on in CONTINUATION frames. */
  private block: HeaderBlock | undefined;
  private newest = 0;
  /** Streams above `lastTaken` are not taken any more. */
  private refusing = false;
  private lastTaken = MAX_STREAM_ID;
  /** What has come since the client heard of a new window. */
  private receivedBytes = 0;
  private ended = false;

  constructor(
    private readonly connection: StreamsConnection,
    private readonly methods: Methods,
    private readonly limits: CallLimits,
  ) {
    this.writer = connection.writer;
    this.maxMessageBytes = limits.maxMessageBytes;
    this.streamWindow = Math.min(
      Math.max(DEFAULT_WINDOW, PREFIX_BYTES + limits.maxMessageBytes),
      CONNECTION_WINDOW,
    );
  }

  /** The newest that the client has opened; 0 before the first. */
  get lastStream(): number {
    return this.newest;
  }

  get areIdle(): boolean {
    return this.calls.size === 0;
  }

  /** The message of some call has come, and its answer has not gone. */
  get isAnswering(): boolean {
    for (const call of this.calls.values()) if (call.isAnswering) return true;
    return false;
  }

  /** Nothing more is taken, and all that was is answered. */
  get isOver(): boolean {
    return this.refusing && this.calls.size === 0;
  }

  /** Says what a client may send. */
  greet(): void {
    this.writer.settings([
      [SETTING.maxConcurrentStreams, this.limits.maxConcurrentStreams],
      [SETTING.initialWindowSize, this.streamWindow],
      [SETTING.maxHeaderListSize, MAX_HEADER_LIST_BYTES],
    ]);
    this.writer.windowUpdate(0, CONNECTION_WINDOW - DEFAULT_WINDOW);
    this.flushSoon();
  }

  /** bytes[at,end) is a whole frame. Throws ConnectionError or HpackError: the connection cannot go on. */
  read(bytes: Buffer, at: number, end: number): void {
    this.readFrame(bytes, at, end);
    // Here, and not where it is borne, which may be where nothing may be thrown.
    if (this.patience.isExhausted()) throw new ConnectionError(ERROR.enhanceYourCalm);
  }

  /** As much of what calls wait to send as may be sent now. */
  sendWaiting(): void {
    this.windows.sendWaiting(this.calls.values(), () => this.connection.isCongested());
  }

  /** The client reads again. */
  retry(): void {
    this.windows.retry();
    this.attempt(() => {
      this.sendWaiting();
    });
  }

  /** From here on what the client opens is refused; it is told so. */
  refuseMore(): void {
    if (this.refusing) return;
    this.refusing = true;
    this.lastTaken = this.newest;
    this.writer.goAway(this.lastTaken, ERROR.none);
    this.flushSoon();
  }

  /** The connection has ended: nobody waits for answers. */
  end(): void {
    this.ended = true;
    for (const call of this.calls.values()) call.cancel();
    this.calls.clear();
  }

  // What calls need.

  sendWindow(call: Call): number {
    if (this.connection.isCongested()) return 0;
    return this.windows.of(call);
  }

  dataSent(call: Call, bytes: number): void {
    this.windows.sent(call, bytes);
  }

  answered(call: Call): void {
    this.patience.reward();
    this.forget(call);
  }

  bear(count: number): boolean {
    this.patience.bear(count);
    return !this.patience.isExhausted();
  }

  awaitWindow(call: Call): void {
    this.windows.await(call);
  }

  flushSoon(): void {
    this.connection.flushSoon();
  }

  forget(call: Call): void {
    this.drop(call);
    if (call.remoteEnded || this.ended) return;
    // Answered before it has said all: it need not go on.
    this.resetStream(call.id, ERROR.none);
  }

  punish(call: Call, code: number): void {
    this.patience.bear();
    this.drop(call);
    this.resetStream(call.id, code);
    call.cancel();
  }

  attempt(act: () => void): void {
    this.connection.attempt(act);
  }

  private drop(call: Call): void {
    this.calls.delete(call.id);
    this.windows.forget(call);
    if (this.isOver) this.flushSoon();
  }

  private resetStream(stream: number, code: number): void {
    this.writer.reset(stream, code);
    this.cutShort.add(stream);
    if (this.cutShort.size > MAX_CUT_SHORT) {
      for (const oldest of this.cutShort) {
        this.cutShort.delete(oldest);
        break;
      }
    }
    this.flushSoon();
  }

  // What comes.

  private readFrame(bytes: Buffer, at: number, end: number): void {
    const type = bytes[at + 3] ?? 0;
    const flags = bytes[at + 4] ?? 0;
    const stream = read31(bytes, at + 5);
    const from = at + FRAME_HEAD_BYTES;
    if (this.block !== undefined && (type !== CONTINUATION || stream !== this.block.stream)) {
      throw new ConnectionError(ERROR.protocol);
    }
    if (!this.hasBegun) {
      if (type !== SETTINGS) throw new ConnectionError(ERROR.protocol);
      this.hasBegun = true;
    }
    switch (type) {
      case DATA:
        this.readData(bytes, from, end, flags, stream);
        break;
      case HEADERS:
        this.readHeaders(bytes, from, end, flags, stream);
        break;
      case CONTINUATION:
        this.readContinuation(bytes, from, end, flags);
        break;
      case PRIORITY:
        this.readPriority(bytes, from, end, stream);
        break;
      case RST_STREAM:
        this.readReset(end - from, stream);
        break;
      case SETTINGS:
        this.readSettings(bytes, from, end, flags, stream);
        break;
      case PING:
        this.readPing(bytes, from, end, flags, stream);
        break;
      case GOAWAY:
        if (stream !== 0) throw new ConnectionError(ERROR.protocol);
        if (end - from < 8) throw new ConnectionError(ERROR.frameSize);
        this.patience.bear();
        break;
      case WINDOW_UPDATE:
        this.readWindowUpdate(bytes, from, end, stream);
        break;
      case PUSH_PROMISE:
        throw new ConnectionError(ERROR.protocol);
      default:
        this.patience.bear();
    }
  }

  private readData(bytes: Buffer, from: number, to: number, flags: number, stream: number): void {
    if (stream === 0 || stream > this.newest) throw new ConnectionError(ERROR.protocol);
    const size = to - from;
    const padding = this.paddingOf(bytes, from, to, flags);
    const start = (flags & PADDED) === 0 ? from : from + 1;
    this.countReceived(size);
    if (size === 0 && (flags & END_STREAM) === 0) this.patience.bear();
    const call = this.calls.get(stream);
    if (call === undefined || call.remoteEnded) {
      this.refuseData(stream, flags, call);
      return;
    }
    const isLast = (flags & END_STREAM) !== 0;
    // Before its message is delivered, so that an answer knows that nothing more comes.
    if (isLast) call.remoteEnded = true;
    if (to - padding > start) call.receive(bytes.subarray(start, to - padding));
    if (isLast) call.receiveEnd();
    else if (this.calls.get(stream) === call) this.widen(call, size);
  }

  /** What comes on a stream that is not open (any more). */
  private refuseData(stream: number, flags: number, call: Call | undefined): void {
    if (this.cutShort.has(stream)) {
      if ((flags & END_STREAM) !== 0) this.cutShort.delete(stream);
      return;
    }
    if (call !== undefined) {
      this.punish(call, ERROR.streamClosed);
      return;
    }
    this.patience.bear();
    this.resetStream(stream, ERROR.streamClosed);
  }

  /** Windows are given anew at half of them, always: no client comes to their end. */
  private countReceived(bytes: number): void {
    this.receivedBytes += bytes;
    if (this.receivedBytes < CONNECTION_WINDOW / 2) return;
    this.writer.windowUpdate(0, this.receivedBytes);
    this.receivedBytes = 0;
    this.flushSoon();
  }

  /** A message fits the window, but not with its padding, and a stream may be of many. */
  private widen(call: Call, bytes: number): void {
    call.receivedBytes += bytes;
    if (call.receivedBytes < this.streamWindow / 2) return;
    this.writer.windowUpdate(call.id, call.receivedBytes);
    call.receivedBytes = 0;
    this.flushSoon();
  }

  private paddingOf(bytes: Buffer, from: number, to: number, flags: number): number {
    if ((flags & PADDED) === 0) return 0;
    const padding = bytes[from] ?? 0;
    if (from === to) throw new ConnectionError(ERROR.frameSize);
    if (from + 1 + padding > to) throw new ConnectionError(ERROR.protocol);
    return padding;
  }

  private readHeaders(
    bytes: Buffer,
    from: number,
    to: number,
    flags: number,
    stream: number,
  ): void {
    if (stream % 2 === 0) throw new ConnectionError(ERROR.protocol);
    const padding = this.paddingOf(bytes, from, to, flags);
    let start = (flags & PADDED) === 0 ? from : from + 1;
    if ((flags & WITH_PRIORITY) !== 0) {
      if (start + 5 > to - padding) throw new ConnectionError(ERROR.frameSize);
      if (read31(bytes, start) === stream) throw new ConnectionError(ERROR.protocol);
      start += 5;
    }
    const isLast = (flags & END_STREAM) !== 0;
    if ((flags & END_HEADERS) !== 0) this.readBlock(bytes, start, to - padding, stream, isLast);
    else {
      this.block = new HeaderBlock(stream, isLast);
      this.block.append(bytes, start, to - padding);
    }
  }

  private readContinuation(bytes: Buffer, from: number, to: number, flags: number): void {
    const { block } = this;
    if (block === undefined) throw new ConnectionError(ERROR.protocol);
    if (from === to) this.patience.bear();
    block.append(bytes, from, to);
    if ((flags & END_HEADERS) === 0) return;
    this.block = undefined;
    const whole = block.bytes;
    this.readBlock(whole, 0, whole.length, block.stream, block.endsStream);
  }

  private readBlock(
    bytes: Buffer,
    from: number,
    to: number,
    stream: number,
    isLast: boolean,
  ): void {
    // Even for a stream that is refused: it may change the table of all that follow.
    const fields = this.decoder.decode(bytes, from, to);
    if (stream <= this.newest) {
      this.readTrailers(stream, fields, isLast);
      return;
    }
    this.newest = stream;
    if (stream > this.lastTaken) {
      // The client will try those elsewhere.
      this.patience.bear();
      this.resetStream(stream, ERROR.refusedStream);
      return;
    }
    if (this.calls.size >= this.limits.maxConcurrentStreams) {
      this.patience.bear();
      this.resetStream(stream, ERROR.refusedStream);
      return;
    }
    const head = this.headOf(fields);
    if (head === undefined) {
      this.patience.bear();
      this.resetStream(stream, fields === undefined ? ERROR.enhanceYourCalm : ERROR.protocol);
      return;
    }
    const call = new Call(this, stream, head);
    call.remoteEnded = isLast;
    this.calls.set(stream, call);
    call.start();
    if (isLast) call.receiveEnd();
  }

  /** Most calls of a client have the same headers, which the decoder knows again. */
  private headOf(fields: readonly HeaderField[] | undefined): RequestHead | undefined {
    if (fields === undefined) return undefined;
    const known = this.heads.get(fields);
    if (known !== undefined) return known;
    const head = parseHead(fields, this.methods);
    if (head !== undefined && Object.isFrozen(fields)) this.heads.set(fields, head);
    return head;
  }

  private readTrailers(
    stream: number,
    fields: readonly HeaderField[] | undefined,
    isLast: boolean,
  ): void {
    const call = this.calls.get(stream);
    if (call === undefined) {
      if (this.cutShort.has(stream)) {
        this.patience.bear();
        return;
      }
      throw new ConnectionError(ERROR.streamClosed);
    }
    if (call.remoteEnded) throw new ConnectionError(ERROR.streamClosed);
    if (!isLast || fields === undefined || !areTrailers(fields)) {
      this.punish(call, ERROR.protocol);
      return;
    }
    call.receiveEnd();
  }

  private readPriority(bytes: Buffer, from: number, to: number, stream: number): void {
    if (stream === 0) throw new ConnectionError(ERROR.protocol);
    if (to - from !== 5) throw new ConnectionError(ERROR.frameSize);
    if (read31(bytes, from) === stream) throw new ConnectionError(ERROR.protocol);
    this.patience.bear();
  }

  private readReset(size: number, stream: number): void {
    if (stream === 0 || stream > this.newest) throw new ConnectionError(ERROR.protocol);
    if (size !== 4) throw new ConnectionError(ERROR.frameSize);
    this.patience.bear();
    this.cutShort.delete(stream);
    const call = this.calls.get(stream);
    if (call === undefined) return;
    this.drop(call);
    call.cancel();
  }

  private readSettings(
    bytes: Buffer,
    from: number,
    to: number,
    flags: number,
    stream: number,
  ): void {
    if (stream !== 0) throw new ConnectionError(ERROR.protocol);
    const size = to - from;
    if ((flags & ACK) !== 0) {
      if (size !== 0) throw new ConnectionError(ERROR.frameSize);
      return;
    }
    if (size % 6 !== 0) throw new ConnectionError(ERROR.frameSize);
    this.patience.bear();
    for (let at = from; at < to; at += 6) {
      this.apply(((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0), read32(bytes, at + 2));
    }
    this.writer.frame(SETTINGS, ACK, 0, NOTHING);
    this.flushSoon();
  }

  private apply(setting: number, value: number): void {
    if (setting === SETTING.initialWindowSize) {
      this.windows.resize(value);
    } else if (setting === SETTING.enablePush) {
      if (value > 1) throw new ConnectionError(ERROR.protocol);
    } else if (setting === SETTING.maxFrameSize) {
      // Ours are never larger than the least that is allowed here.
      if (value < MAX_FRAME_BYTES || value > 16_777_215) throw new ConnectionError(ERROR.protocol);
    }
  }

  private readPing(bytes: Buffer, from: number, to: number, flags: number, stream: number): void {
    if (stream !== 0) throw new ConnectionError(ERROR.protocol);
    if (to - from !== 8) throw new ConnectionError(ERROR.frameSize);
    const payload = bytes.subarray(from, to);
    if ((flags & ACK) === 0) {
      this.patience.bear();
      this.writer.frame(PING, ACK, 0, payload);
      this.flushSoon();
    } else this.connection.pinged(payload);
  }

  private readWindowUpdate(bytes: Buffer, from: number, to: number, stream: number): void {
    if (to - from !== 4) throw new ConnectionError(ERROR.frameSize);
    if (stream > this.newest) throw new ConnectionError(ERROR.protocol);
    const increment = read31(bytes, from);
    if (stream === 0) {
      this.windows.grow(increment);
      return;
    }
    const call = this.calls.get(stream);
    if (call === undefined) return;
    if (increment === 0) this.punish(call, ERROR.protocol);
    else if (!this.windows.growStream(call, increment)) this.punish(call, ERROR.flowControl);
  }
}
