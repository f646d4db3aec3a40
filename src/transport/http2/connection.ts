/**
 * One connection of HTTP/2 (RFC 9113), the server's side, as much of it as gRPC needs: frames in, calls
 * made of them, answers out in one write a turn. Every count that a client can drive up is bounded here.
 */
import type { Socket } from 'node:net';
import { jitteredAgeMs, MAX_HEADER_LIST_BYTES, type CallLimits, type Methods } from '../calls.js';
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
  FrameWriter,
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
} from './frames.js';
import { FrameReader } from './frame-reader.js';
import { HeaderBlock } from './header-block.js';
import { HeaderDecoder, HpackError, type HeaderField } from './hpack.js';
import { Patience } from './patience.js';
import { areTrailers, parseHead, type RequestHead } from './request-head.js';
import { SendWindows } from './send-windows.js';
import { Timers } from './timers.js';

/** What a client may send on one connection before it hears of a new window. */
const CONNECTION_WINDOW = 16_777_216;
const HEADER_TABLE_BYTES = 4096;
/** When so much waits for a client to read it, nothing more is read of it. */
const MAX_UNSENT_BYTES = 1_048_576;
/** A client that has not said its first words by then is dropped. */
const PREFACE_TIMEOUT_MS = 10_000;
/** Streams that were answered before their client had ended them: so many are known. */
const MAX_CUT_SHORT = 1024;
const NOTHING = Buffer.alloc(0);
/** The payload of our pings, by what they are for. */
const KEEPALIVE = Buffer.from('alive?\0\0', 'latin1');
const LAST_CALLS = Buffer.from('leaving\0', 'latin1');

/** Told, once each at most, what becomes of a connection. */
export interface ConnectionObserver {
  closed(connection: Connection): void;
  /** Something was thrown that nobody expected. */
  failed(error: unknown): void;
}

export class Connection implements CallConnection {
  readonly writer = new FrameWriter();
  readonly maxMessageBytes: number;
  unfinishedBytes = 0;
  unsentBytes = 0;
  private readonly streamWindow: number;
  private readonly decoder = new HeaderDecoder(HEADER_TABLE_BYTES, MAX_HEADER_LIST_BYTES);
  private readonly calls = new Map<number, Call>();
  private readonly windows = new SendWindows();
  /** Streams that we have closed, of which the client may not know yet. */
  private readonly cutShort = new Set<number>();
  private readonly timers = new Timers();
  private readonly reader = new FrameReader((bytes, at, end) => {
    this.readFrame(bytes, at, end);
    // Here, and not where it is borne, which may be where nothing may be thrown.
    if (this.patience.isExhausted()) throw new ConnectionError(ERROR.enhanceYourCalm);
  });
  private settled = false;
  /** One that goes on in CONTINUATION frames. */
  private block: HeaderBlock | undefined;

  private lastStream = 0;
  /** Streams above this one are not taken any more. */
  private lastTaken = MAX_STREAM_ID;
  /** What has come since the client heard of a new window. */
  private receivedBytes = 0;
  /** What the header lists say that the decoder remembers. */
  private readonly heads = new WeakMap<readonly HeaderField[], RequestHead>();

  private flushing = false;
  /** The client does not read what it is sent. */
  private congested = false;
  private closed = false;
  private leaving = false;
  /** How often something has come. */
  private reads = 0;
  private readonly patience = new Patience();

  constructor(
    private readonly socket: Socket,
    private readonly methods: Methods,
    private readonly limits: CallLimits,
    private readonly observer: ConnectionObserver,
  ) {
    this.maxMessageBytes = limits.maxMessageBytes;
    this.streamWindow = Math.min(
      Math.max(DEFAULT_WINDOW, PREFIX_BYTES + limits.maxMessageBytes),
      CONNECTION_WINDOW,
    );
    socket.on('data', (chunk: Buffer) => {
      this.read(chunk);
    });
    socket.on('drain', () => {
      this.decongest();
    });
    socket.once('close', () => {
      this.end();
    });
    this.greet();
    this.startTimers();
  }

  // What calls need.

  sendWindow(call: Call): number {
    if (this.isCongested()) return 0;
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
    if (this.flushing) return;
    this.flushing = true;
    process.nextTick(this.flush);
  }

  forget(call: Call): void {
    this.drop(call);
    if (call.remoteEnded || this.closed) return;
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
    if (this.closed) return;
    try {
      act();
    } catch (error) {
      this.stumble(error);
    }
  }

  // The connection's own life.

  /** A GOAWAY that still takes what is on its way, then one that does not; closes after the last call. */
  leave(): void {
    if (this.leaving || this.closed) return;
    this.leaving = true;
    this.writer.goAway(MAX_STREAM_ID, ERROR.none);
    // By the time that this comes back the client has seen it.
    this.writer.frame(PING, 0, 0, LAST_CALLS);
    this.flushSoon();
    this.timers.after(this.limits.keepaliveTimeoutMs, () => {
      this.refuseMore();
    });
  }

  private refuseMore(): void {
    if (this.lastTaken !== MAX_STREAM_ID) return;
    this.lastTaken = this.lastStream;
    this.writer.goAway(this.lastTaken, ERROR.none);
    this.flushSoon();
  }

  destroy(): void {
    this.socket.destroy();
  }

  private greet(): void {
    this.writer.settings([
      [SETTING.maxConcurrentStreams, this.limits.maxConcurrentStreams],
      [SETTING.initialWindowSize, this.streamWindow],
      [SETTING.maxHeaderListSize, MAX_HEADER_LIST_BYTES],
    ]);
    this.writer.windowUpdate(0, CONNECTION_WINDOW - DEFAULT_WINDOW);
    this.flushSoon();
  }

  private startTimers(): void {
    const { limits } = this;
    this.timers.after(Math.min(PREFACE_TIMEOUT_MS, limits.maxConnectionIdleMs), () => {
      if (!this.settled) this.destroy();
    });
    let lastStream = 0;
    this.timers.every(limits.maxConnectionIdleMs, () => {
      if (this.calls.size === 0 && this.lastStream === lastStream) this.leave();
      lastStream = this.lastStream;
    });
    let reads = 0;
    this.timers.every(limits.keepaliveTimeMs, () => {
      if (this.reads === reads) this.ping();
      reads = this.reads;
    });
    this.timers.after(jitteredAgeMs(limits.maxConnectionAgeMs), () => {
      this.leave();
      this.timers.after(limits.maxConnectionAgeGraceMs, () => {
        this.destroy();
      });
    });
  }

  private ping(): void {
    const { reads } = this;
    this.writer.frame(PING, 0, 0, KEEPALIVE);
    this.flushSoon();
    this.timers.after(this.limits.keepaliveTimeoutMs, () => {
      if (this.reads === reads) this.destroy();
    });
  }

  private end(): void {
    if (this.closed) return;
    this.closed = true;
    this.timers.end();
    for (const call of this.calls.values()) call.cancel();
    this.calls.clear();
    this.observer.closed(this);
  }

  /** The client has broken the protocol: says why, and closes. */
  private abort(code: number): void {
    if (this.closed) return;
    this.writer.goAway(this.lastStream, code);
    this.flush();
    this.end();
    const { socket } = this;
    socket.destroySoon();
    // It waits for a client to read what it has been sent.
    const timer = setTimeout(() => socket.destroy(), this.limits.keepaliveTimeoutMs).unref();
    socket.once('close', () => {
      clearTimeout(timer);
    });
  }

  private readonly flush = (): void => {
    this.flushing = false;
    const { socket, writer } = this;
    if (this.closed) return;
    const wasFull = this.isCongested();
    if (writer.length > 0) {
      const bytes = writer.take();
      // After the last call was answered a client may still talk, and gets no answer.
      if (!socket.writableEnded) socket.write(bytes);
    }
    if (socket.writableLength > MAX_UNSENT_BYTES) {
      this.congested = true;
      socket.pause();
    } else if (wasFull) this.decongest();
    const isOver = this.lastTaken !== MAX_STREAM_ID && this.calls.size === 0;
    if (!isOver || socket.writableEnded) return;
    socket.end();
    this.timers.after(this.limits.keepaliveTimeoutMs, () => {
      this.destroy();
    });
  };

  /** Whatever its windows say, a client that does not read is sent no more data. */
  private isCongested(): boolean {
    return this.congested || this.writer.length > MAX_UNSENT_BYTES;
  }

  private decongest(): void {
    this.congested = false;
    this.windows.retry();
    this.attempt(() => {
      this.sendWaiting();
    });
    this.socket.resume();
  }

  private drop(call: Call): void {
    this.calls.delete(call.id);
    this.windows.forget(call);
    if (this.leaving && this.calls.size === 0) this.flushSoon();
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

  private read(chunk: Buffer): void {
    this.reads++;
    this.attempt(() => {
      this.reader.read(chunk);
      this.sendWaiting();
    });
  }

  private stumble(error: unknown): void {
    if (error instanceof ConnectionError) this.abort(error.code);
    else if (error instanceof HpackError) this.abort(ERROR.compression);
    else {
      // A fault of ours: it shall cost no more than this connection.
      this.observer.failed(error);
      this.abort(ERROR.internal);
    }
  }

  private readFrame(bytes: Buffer, at: number, end: number): void {
    const type = bytes[at + 3] ?? 0;
    const flags = bytes[at + 4] ?? 0;
    const stream = read31(bytes, at + 5);
    const from = at + FRAME_HEAD_BYTES;
    if (this.block !== undefined && (type !== CONTINUATION || stream !== this.block.stream)) {
      throw new ConnectionError(ERROR.protocol);
    }
    if (!this.settled) {
      if (type !== SETTINGS) throw new ConnectionError(ERROR.protocol);
      this.settled = true;
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
    if (stream === 0 || stream > this.lastStream) throw new ConnectionError(ERROR.protocol);
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
    else this.widen(call, size);
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
    if (stream <= this.lastStream) {
      this.readTrailers(stream, fields, isLast);
      return;
    }
    this.lastStream = stream;
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
      if (this.cutShort.has(stream)) return;
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
    if (stream === 0 || stream > this.lastStream) throw new ConnectionError(ERROR.protocol);
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
    } else if (this.leaving && payload.equals(LAST_CALLS)) this.refuseMore();
  }

  private readWindowUpdate(bytes: Buffer, from: number, to: number, stream: number): void {
    if (to - from !== 4) throw new ConnectionError(ERROR.frameSize);
    if (stream > this.lastStream) throw new ConnectionError(ERROR.protocol);
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

  private sendWaiting(): void {
    this.windows.sendWaiting(this.calls.values(), () => this.isCongested());
  }
}
