/**
 * One connection of HTTP/2, the server's side: reads the socket, sends what has gathered in one write a turn,
 * keeps the connection alive, asks the client to go, and ends it. What the frames mean is in `streams`.
 */
import type { Socket } from 'node:net';
import { jitteredAgeMs, type CallLimits, type Methods } from '../calls.js';
import { ConnectionError } from './connection-error.js';
import { ERROR, FrameWriter, MAX_STREAM_ID, PING } from './frames.js';
import { FrameReader } from './frame-reader.js';
import { HpackError } from './hpack.js';
import { Streams, type StreamsConnection } from './streams.js';
import { Timers } from './timers.js';

/** When so much waits for a client to read it, nothing more is read of it. */
const MAX_UNSENT_BYTES = 1_048_576;
/** A client that has not said its first words by then is dropped. */
const PREFACE_TIMEOUT_MS = 10_000;
/** The payload of our pings, by what they are for. */
const KEEPALIVE = Buffer.from('alive?\0\0', 'latin1');
const LAST_CALLS = Buffer.from('leaving\0', 'latin1');

/** Told, once each at most, what becomes of a connection. */
export interface ConnectionObserver {
  closed(connection: Connection): void;
  /** Something was thrown that nobody expected. */
  failed(error: unknown): void;
}

export class Connection implements StreamsConnection {
  readonly writer = new FrameWriter();
  private readonly streams: Streams;
  private readonly reader: FrameReader;
  private readonly timers = new Timers();
  private flushing = false;
  private congested = false;
  private closed = false;
  private leaving = false;
  /** How often something has come. */
  private reads = 0;

  constructor(
    private readonly socket: Socket,
    methods: Methods,
    private readonly limits: CallLimits,
    private readonly observer: ConnectionObserver,
  ) {
    const streams = new Streams(this, methods, limits);
    this.streams = streams;
    this.reader = new FrameReader((bytes, at, end) => {
      streams.read(bytes, at, end);
    });
    socket.on('data', (chunk: Buffer) => {
      this.read(chunk);
    });
    socket.on('drain', () => {
      this.decongest();
    });
    socket.once('close', () => {
      this.end();
    });
    streams.greet();
    this.startTimers();
  }

  get isAnswering(): boolean {
    return this.streams.isAnswering;
  }

  flushSoon(): void {
    if (this.flushing) return;
    this.flushing = true;
    process.nextTick(this.flush);
  }

  attempt(act: () => void): void {
    if (this.closed) return;
    try {
      act();
    } catch (error) {
      this.stumble(error);
    }
  }

  /** A GOAWAY that still takes what is on its way, then one that does not; closes after the last call. */
  leave(): void {
    if (this.leaving || this.closed) return;
    this.leaving = true;
    this.writer.goAway(MAX_STREAM_ID, ERROR.none);
    // By the time that this comes back the client has seen it.
    this.writer.frame(PING, 0, 0, LAST_CALLS);
    this.flushSoon();
    this.timers.after(this.limits.keepaliveTimeoutMs, () => {
      this.streams.refuseMore();
    });
  }

  pinged(payload: Buffer): void {
    if (this.leaving && payload.equals(LAST_CALLS)) this.streams.refuseMore();
  }

  destroy(): void {
    this.socket.destroy();
  }

  private startTimers(): void {
    const { limits } = this;
    this.timers.after(Math.min(PREFACE_TIMEOUT_MS, limits.maxConnectionIdleMs), () => {
      if (!this.streams.hasBegun) this.destroy();
    });
    let lastStream = 0;
    this.timers.every(limits.maxConnectionIdleMs, () => {
      if (this.streams.areIdle && this.streams.lastStream === lastStream) this.leave();
      ({ lastStream } = this.streams);
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
    this.streams.end();
    this.observer.closed(this);
  }

  /** The client has broken the protocol: says why, and closes. */
  private abort(code: number): void {
    if (this.closed) return;
    this.writer.goAway(this.streams.lastStream, code);
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
    if (!this.streams.isOver || socket.writableEnded) return;
    socket.end();
    // Its end has to be heard, even if it was paused for not reading.
    socket.resume();
    this.timers.after(this.limits.keepaliveTimeoutMs, () => {
      this.destroy();
    });
  };

  /** Whatever its windows say, a client that does not read is sent no more data. */
  isCongested(): boolean {
    return this.congested || this.writer.length > MAX_UNSENT_BYTES;
  }

  private decongest(): void {
    this.congested = false;
    this.streams.retry();
    this.socket.resume();
  }

  private read(chunk: Buffer): void {
    this.reads++;
    this.attempt(() => {
      this.reader.read(chunk);
      this.streams.sendWaiting();
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
}
