/**
 * One connection of HTTP/2 (RFC 9113), the server's side, as much of it as gRPC needs: frames in, calls
 * made of them, answers out in one write a turn. Every count that a client can drive up is bounded here.
 */
import type { Socket } from 'node:net';
import {
  jitteredAgeMs,
  MAX_HEADER_LIST_BYTES,
  MAX_TIMER_MS,
  type CallLimits,
  type Methods,
} from '../calls.js';
import { Call, type CallConnection } from './call.js';
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
  MAX_WINDOW,
  PADDED,
  PING,
  PREFACE,
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
import { HeaderDecoder, HpackError, type HeaderField } from './hpack.js';
import { Patience } from './patience.js';
import { areTrailers, parseHead, type RequestHead } from './request-head.js';

/** What a client may send on one connection before it hears of a new window. */
const CONNECTION_WINDOW = 16_777_216;
const HEADER_TABLE_BYTES = 4096;
/** Of one request's headers as they come, all their frames together. */
const MAX_BLOCK_BYTES = 65_536;
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

/** What the client did wrong, for the whole connection. */
class ConnectionError extends Error {
  constructor(readonly code: number) {
    super();
  }
}

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
  private readonly waiting = new Set<Call>();
  /** Streams that we have closed, of which the client may not know yet. */
  private readonly cutShort = new Set<number>();
  private readonly timers = new Set<NodeJS.Timeout>();

  /** How much of the client's preface is still to come. */
  private prefaceLeft = PREFACE.length;
  private settled = false;
  /** A frame that has not come whole: its first `have` bytes. */
  private partial: Buffer = NOTHING;
  private have = 0;
  /** Of a header block that goes on in CONTINUATION frames. */
  private block: Buffer | undefined;
  private blockBytes = 0;
  private blockStream = 0;
  private blockEndsStream = false;

  private lastStream = 0;
  /** Streams above this one are not taken any more. */
  private lastTaken = MAX_STREAM_ID;
  private peerWindow = DEFAULT_WINDOW;
  private window = DEFAULT_WINDOW;
  /** What has come since the client heard of a new window. */
  private receivedBytes = 0;
  /** What the header lists say that the decoder remembers. */
  private readonly heads = new WeakMap<readonly HeaderField[], RequestHead>();

  /** Calls that wait for their window may find it larger. */
  private windowsGrown = false;
  private peerWindowChanged = false;
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
    return Math.min(this.window, this.peerWindow + call.credit - call.sentBytes);
  }

  dataSent(call: Call, bytes: number): void {
    this.window -= bytes;
    call.sentBytes += bytes;
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
    this.waiting.add(call);
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
    this.after(this.limits.keepaliveTimeoutMs, () => {
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
    this.after(Math.min(PREFACE_TIMEOUT_MS, limits.maxConnectionIdleMs), () => {
      if (!this.settled) this.destroy();
    });
    let lastStream = 0;
    this.every(limits.maxConnectionIdleMs, () => {
      if (this.calls.size === 0 && this.lastStream === lastStream) this.leave();
      lastStream = this.lastStream;
    });
    let reads = 0;
    this.every(limits.keepaliveTimeMs, () => {
      if (this.reads === reads) this.ping();
      reads = this.reads;
    });
    this.after(jitteredAgeMs(limits.maxConnectionAgeMs), () => {
      this.leave();
      this.after(limits.maxConnectionAgeGraceMs, () => {
        this.destroy();
      });
    });
  }

  private ping(): void {
    const { reads } = this;
    this.writer.frame(PING, 0, 0, KEEPALIVE);
    this.flushSoon();
    this.after(this.limits.keepaliveTimeoutMs, () => {
      if (this.reads === reads) this.destroy();
    });
  }

  private after(ms: number, act: () => void): void {
    if (this.closed) return;
    const timer = setTimeout(
      () => {
        this.timers.delete(timer);
        act();
      },
      Math.min(ms, MAX_TIMER_MS),
    ).unref();
    this.timers.add(timer);
  }

  private every(ms: number, act: () => void): void {
    this.timers.add(setInterval(act, Math.min(ms, MAX_TIMER_MS)).unref());
  }

  private end(): void {
    if (this.closed) return;
    this.closed = true;
    for (const timer of this.timers) clearTimeout(timer);
    for (const call of this.calls.values()) call.cancel();
    this.calls.clear();
    this.waiting.clear();
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
    // The end has been written when the last call was answered: a client may still talk.
    if (writer.length > 0 && !socket.writableEnded) socket.write(writer.take());
    if (socket.writableLength > MAX_UNSENT_BYTES) {
      this.congested = true;
      socket.pause();
    } else if (wasFull) this.decongest();
    const isOver = this.lastTaken !== MAX_STREAM_ID && this.calls.size === 0;
    if (!isOver || socket.writableEnded) return;
    socket.end();
    this.after(this.limits.keepaliveTimeoutMs, () => {
      this.destroy();
    });
  };

  /** Whatever its windows say, a client that does not read is sent no more data. */
  private isCongested(): boolean {
    return this.congested || this.writer.length > MAX_UNSENT_BYTES;
  }

  private decongest(): void {
    this.congested = false;
    this.windowsGrown = true;
    this.attempt(() => {
      this.sendWaiting();
    });
    this.socket.resume();
  }

  private drop(call: Call): void {
    this.calls.delete(call.id);
    if (this.waiting.size > 0) this.waiting.delete(call);
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
      this.readFrames(chunk);
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

  private readFrames(chunk: Buffer): void {
    let at = this.prefaceLeft === 0 ? 0 : this.readPreface(chunk);
    if (this.have > 0) at = this.fillPartial(chunk, at);
    while (chunk.length - at >= FRAME_HEAD_BYTES && !this.closed) {
      const end = at + FRAME_HEAD_BYTES + payloadLength(chunk, at);
      if (end > chunk.length) break;
      this.readFrame(chunk, at, end);
      // Here, and not where it is borne, which may be where nothing may be thrown.
      if (this.patience.isExhausted()) throw new ConnectionError(ERROR.enhanceYourCalm);
      at = end;
    }
    if (at < chunk.length && !this.closed) this.keepPartial(chunk, at);
  }

  private readPreface(chunk: Buffer): number {
    const from = PREFACE.length - this.prefaceLeft;
    const size = Math.min(this.prefaceLeft, chunk.length);
    if (PREFACE.compare(chunk, 0, size, from, from + size) !== 0) {
      throw new ConnectionError(ERROR.protocol);
    }
    this.prefaceLeft -= size;
    return size;
  }

  /** Puts what comes behind what there is of a frame; returns where the next frame begins. */
  private fillPartial(chunk: Buffer, from: number): number {
    let at = from;
    if (this.have < FRAME_HEAD_BYTES) {
      at += this.copyPartial(chunk, at, FRAME_HEAD_BYTES);
      if (this.have < FRAME_HEAD_BYTES) return at;
    }
    const size = FRAME_HEAD_BYTES + payloadLength(this.partial, 0);
    if (size > this.partial.length) {
      const larger = Buffer.allocUnsafe(size);
      this.partial.copy(larger, 0, 0, this.have);
      this.partial = larger;
    }
    at += this.copyPartial(chunk, at, size);
    if (this.have < size) return at;
    const { partial } = this;
    // An idle connection shall hold no frame that it has read.
    this.partial = NOTHING;
    this.have = 0;
    this.readFrame(partial, 0, size);
    return at;
  }

  private copyPartial(chunk: Buffer, at: number, size: number): number {
    const copied = chunk.copy(this.partial, this.have, at, at + size - this.have);
    this.have += copied;
    return copied;
  }

  private keepPartial(chunk: Buffer, at: number): void {
    const size =
      chunk.length - at < FRAME_HEAD_BYTES
        ? FRAME_HEAD_BYTES
        : FRAME_HEAD_BYTES + payloadLength(chunk, at);
    this.partial = Buffer.allocUnsafe(size);
    this.have = chunk.copy(this.partial, 0, at);
  }

  private readFrame(bytes: Buffer, at: number, end: number): void {
    const type = bytes[at + 3] ?? 0;
    const flags = bytes[at + 4] ?? 0;
    const stream = read31(bytes, at + 5);
    const from = at + FRAME_HEAD_BYTES;
    if (this.block !== undefined && (type !== CONTINUATION || stream !== this.blockStream)) {
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
        if (this.block === undefined) throw new ConnectionError(ERROR.protocol);
        this.collectBlock(bytes, from, end, (flags & END_HEADERS) !== 0);
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
    this.blockStream = stream;
    this.blockEndsStream = (flags & END_STREAM) !== 0;
    if ((flags & END_HEADERS) !== 0) this.readBlock(bytes, start, to - padding);
    else {
      this.block = NOTHING;
      this.blockBytes = 0;
      this.collectBlock(bytes, start, to - padding, false);
    }
  }

  private collectBlock(bytes: Buffer, from: number, to: number, isLast: boolean): void {
    if (from === to) this.patience.bear();
    const have = this.blockBytes;
    this.blockBytes += to - from;
    if (this.blockBytes > MAX_BLOCK_BYTES) throw new ConnectionError(ERROR.enhanceYourCalm);
    let block = this.block ?? NOTHING;
    if (this.blockBytes > block.length) {
      const larger = Buffer.allocUnsafe(this.blockBytes * 2);
      block.copy(larger, 0, 0, have);
      block = larger;
    }
    bytes.copy(block, have, from, to);
    this.block = isLast ? undefined : block;
    if (isLast) this.readBlock(block, 0, this.blockBytes);
  }

  private readBlock(bytes: Buffer, from: number, to: number): void {
    // Even for a stream that is refused: it may change the table of all that follow.
    const fields = this.decoder.decode(bytes, from, to);
    const { blockStream: stream, blockEndsStream: isLast } = this;
    if (stream <= this.lastStream) {
      this.readTrailers(stream, fields, isLast);
      return;
    }
    this.lastStream = stream;
    if (stream > this.lastTaken) {
      // The client will try those elsewhere.
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
      if (value > MAX_WINDOW) throw new ConnectionError(ERROR.flowControl);
      this.peerWindow = value;
      this.windowsGrown = true;
      this.peerWindowChanged = true;
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
      this.window += increment;
      if (increment === 0) throw new ConnectionError(ERROR.protocol);
      if (this.window > MAX_WINDOW) throw new ConnectionError(ERROR.flowControl);
      this.windowsGrown = true;
      return;
    }
    const call = this.calls.get(stream);
    if (call === undefined) return;
    call.credit += increment;
    const window = this.peerWindow + call.credit - call.sentBytes;
    if (increment === 0) this.punish(call, ERROR.protocol);
    else if (window > MAX_WINDOW) this.punish(call, ERROR.flowControl);
    else if (this.waiting.delete(call)) call.sendUnsent();
  }

  /** At the end of what has come: a thousand calls may wait, and a chunk hold a thousand small windows. */
  private sendWaiting(): void {
    if (!this.windowsGrown) return;
    this.windowsGrown = false;
    if (this.peerWindowChanged) this.checkWindows();
    if (this.waiting.size === 0) return;
    for (const call of [...this.waiting]) {
      if (this.window <= 0 || this.isCongested()) return;
      this.waiting.delete(call);
      call.sendUnsent();
    }
  }

  private checkWindows(): void {
    this.peerWindowChanged = false;
    for (const call of this.calls.values()) {
      if (this.peerWindow + call.credit - call.sentBytes > MAX_WINDOW) {
        throw new ConnectionError(ERROR.flowControl);
      }
    }
  }
}

/** Of the frame that begins here. Throws when it is larger than we said that we take. */
function payloadLength(bytes: Buffer, at: number): number {
  const length = ((bytes[at] ?? 0) << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0);
  if (length > MAX_FRAME_BYTES) throw new ConnectionError(ERROR.frameSize);
  return length;
}
