import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { status } from '@grpc/grpc-js';
import { expect } from 'chai';
import type {
  CallLimits,
  Methods,
  StreamingCall,
  UnaryCall,
} from '../../../src/transport/calls.js';
import { Http2Server } from '../../../src/transport/http2/http2-server.js';
import { quietLogger } from '../fixtures.js';
import {
  ACK,
  block,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  GOAWAY,
  head,
  HEADERS,
  message,
  PADDED,
  PING,
  PREFACE,
  PRIORITY,
  PUSH_PROMISE,
  RST_STREAM,
  SETTINGS,
  settings,
  uint32,
  WINDOW_UPDATE,
  windowUpdate,
  WITH_PRIORITY,
} from './raw-client.js';

/** As many as a test can take; more, by hand, when the server is changed. */
const SEQUENCES = Number(process.env['HTTP2_FUZZ_SEQUENCES'] ?? 3000);
const FIRST_SEED = Number(process.env['HTTP2_FUZZ_SEED'] ?? 1);

const LIMITS: CallLimits = {
  maxMessageBytes: 100_000,
  maxConcurrentStreams: 10,
  maxConnectionAgeMs: 86_400_000,
  maxConnectionAgeGraceMs: 1000,
  maxConnectionIdleMs: 60_000,
  keepaliveTimeMs: 60_000,
  keepaliveTimeoutMs: 20_000,
};

type Random = (below: number) => number;

/** mulberry32. */
function randomOf(seed: number): Random {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4_294_967_296) * below);
  };
}

/** The server's end of a connection, whose other end reads when it is let. */
class Wire extends Duplex {
  reading = true;
  /** What was wrong with what was sent. */
  fault: unknown;
  private written: (() => void) | undefined;
  private pending: Buffer = Buffer.alloc(0);
  private streamsOver = new Set<number>();
  private sent = new Map<number, number>();
  private largestWindow = 65_535;
  private window = 65_535;
  private readonly credit = new Map<number, number>();
  answers = 0;

  override _read(): void {
    // What comes is pushed.
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    try {
      this.check(chunk);
    } catch (error) {
      this.fault ??= error;
    }
    if (this.reading) done();
    else this.written = done;
  }

  letRead(reading: boolean): void {
    this.reading = reading;
    if (!reading) return;
    const { written } = this;
    this.written = undefined;
    written?.();
  }

  destroySoon(): void {
    this.end(() => this.destroy());
  }

  /** What the client says of windows, for what the server may send. */
  allow(stream: number, increment: number): void {
    if (stream === 0) this.window += increment;
    else this.credit.set(stream, (this.credit.get(stream) ?? 0) + increment);
  }

  allowEach(window: number): void {
    this.largestWindow = Math.max(this.largestWindow, window);
  }

  /** What is sent has to be frames, none on a stream after its end, and no more data than may be. */
  private check(chunk: Buffer): void {
    this.pending = Buffer.concat([this.pending, chunk]);
    while (this.pending.length >= 9) {
      const length = this.pending.readUIntBE(0, 3);
      if (this.pending.length < 9 + length) return;
      const type = this.pending[3] ?? 0;
      const flags = this.pending[4] ?? 0;
      const stream = this.pending.readUInt32BE(5);
      this.pending = this.pending.subarray(9 + length);
      if (length > 16_384) throw new Error('a frame that is too large');
      if (type === WINDOW_UPDATE || type === RST_STREAM || stream === 0) continue;
      if (type !== DATA && type !== HEADERS) throw new Error(`a frame of type ${type}`);
      if (this.streamsOver.has(stream)) throw new Error('a stream that goes on after its end');
      if ((flags & END_STREAM) !== 0) {
        this.streamsOver.add(stream);
        this.answers++;
      }
      if (type !== DATA) continue;
      this.window -= length;
      if (this.window < 0) throw new Error('more data than the connection may carry');
      const sent = (this.sent.get(stream) ?? 0) + length;
      this.sent.set(stream, sent);
      if (sent > this.largestWindow + (this.credit.get(stream) ?? 0)) {
        throw new Error('more data than the stream may carry');
      }
    }
  }
}

/** Does what it likes with each call. */
function methodsOf(random: Random, later: (() => void)[]): Methods {
  const bytes = (): Buffer => Buffer.alloc(random(4) === 0 ? random(70_000) : random(100));
  const settle = (call: UnaryCall): void => {
    if (random(4) === 0) call.fail(status.INTERNAL, 'ü'.repeat(random(2000)));
    else call.answer(bytes());
  };
  const unary = (call: UnaryCall): void => {
    const what = random(4);
    if (what === 0) settle(call);
    else if (what < 3) later.push(() => settle(call));
  };
  const act = (call: StreamingCall): void => {
    const what = random(10);
    if (what === 0) call.end();
    else if (what === 1) call.fail(status.ABORTED, 'no');
    else call.write(bytes());
  };
  const streaming = (call: StreamingCall) => ({
    message: () => {
      act(call);
      if (random(2) === 0) later.push(() => act(call));
    },
    ended: () => {
      call.end();
    },
    closed: () => undefined,
  });
  return { unary: new Map([['/a/Unary', unary]]), streaming: new Map([['/a/Stream', streaming]]) };
}

const PLAIN = message(Buffer.alloc(40, 1));
const LARGE = message(Buffer.alloc(60_000, 2));
const ZIPPED = message(gzipSync('hello'), 1);
const BODIES = [PLAIN, PLAIN, LARGE, ZIPPED, Buffer.alloc(0), Buffer.from([0, 255, 0, 0, 0])];
const PATHS = ['/a/Unary', '/a/Unary', '/a/Stream', '/a/Stream', '/a/None'];

/** What a client may say, most of it right. */
function conversation(random: Random, wire: Wire): Buffer {
  const frames: Buffer[] = [];
  let next = 1;
  const some = (): number =>
    random(10) === 0 ? random(30) : Math.max(1, next - 2 - 2 * random(4));
  const end = (): number => (random(2) === 0 ? END_STREAM : 0);
  const padded = (type: number, flags: number, stream: number, payload: Buffer): Buffer => {
    if (random(8) !== 0) return frame(type, flags, stream, payload);
    const padding = Buffer.alloc(random(20));
    const all = Buffer.concat([Buffer.from([padding.length]), payload, padding]);
    return frame(type, flags | PADDED, stream, all);
  };
  const data = (stream: number): void => {
    const body = BODIES[random(BODIES.length)] ?? PLAIN;
    const size = 1 + random(16_000);
    for (let at = 0; at === 0 || at < body.length; at += size) {
      const isLast = at + size >= body.length;
      frames.push(padded(DATA, isLast ? end() : 0, stream, body.subarray(at, at + size)));
    }
  };
  const begin = (): void => {
    const fields = head(PATHS[random(PATHS.length)] ?? '', {
      ...(random(4) === 0 && { 'grpc-encoding': 'gzip' }),
      ...(random(10) === 0 && { 'x-fill': 'x'.repeat(random(16_000)) }),
      ...(random(30) === 0 && { 'Bad-Name': '1' }),
    });
    const last = random(8) === 0 ? END_STREAM : 0;
    const cut = random(fields.length);
    if (random(4) === 0 || fields.length > 16_000) {
      frames.push(frame(HEADERS, last, next, fields.subarray(0, cut)));
      frames.push(frame(CONTINUATION, END_HEADERS, next, fields.subarray(cut).subarray(0, 16_384)));
    } else if (random(8) === 0) {
      const priority = Buffer.concat([uint32(0), Buffer.from([1]), fields]);
      frames.push(frame(HEADERS, END_HEADERS | WITH_PRIORITY | last, next, priority));
    } else frames.push(padded(HEADERS, END_HEADERS | last, next, fields));
    if (last === 0 && random(8) !== 0) data(next);
    next += 2;
  };
  const grow = (stream: number): void => {
    const increment = 1 + random(random(3) === 0 ? 200_000 : 20);
    wire.allow(stream, increment);
    frames.push(windowUpdate(stream, increment));
  };
  const resize = (): void => {
    const window = random(random(2) === 0 ? 20 : 300_000);
    wire.allowEach(window);
    frames.push(settings([4, window], [99, 1]));
  };
  const rare = [
    () => frame(PING, 0, 0, '12345678'),
    () => frame(PING, ACK, 0, 'leaving\0'),
    () => frame(SETTINGS, ACK, 0),
    () => frame(PRIORITY, 0, some(), '\0\0\0\0\u0005'),
    () => frame(77, random(256), random(9), 'what'),
    () => frame(HEADERS, END_HEADERS | END_STREAM, some(), block({ 'x-trailer': '1' })),
    () => frame(GOAWAY, 0, 0, '12345678'),
    () => frame(random(12), random(256), random(9), Buffer.alloc(random(20), random(256))),
    () => frame(PUSH_PROMISE, 0, some(), '1234'),
    () => frame(DATA, END_STREAM, some()),
    () => windowUpdate(some(), 0),
  ];
  const steps = 1 + random(25);
  for (let step = 0; step < steps; step++) {
    const what = random(20);
    if (what < 8) begin();
    else if (what < 11) data(some());
    else if (what < 13) grow(some());
    else if (what < 14) grow(0);
    else if (what < 16) resize();
    else if (what < 18) frames.push(frame(RST_STREAM, 0, some(), uint32(8)));
    else frames.push(rare[random(rare.length)]?.() ?? Buffer.alloc(0));
  }
  const bytes = Buffer.concat([PREFACE, settings(), ...frames]);
  if (random(10) === 0) {
    const at = random(bytes.length);
    bytes[at] = (bytes[at] ?? 0) ^ (1 << random(8));
  }
  return bytes;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** One connection from its beginning to its end. Returns how many of its calls were answered. */
async function converse(seed: number): Promise<number> {
  const random = randomOf(seed);
  const later: (() => void)[] = [];
  const logger = quietLogger();
  const server = new Http2Server(methodsOf(random, later), LIMITS, logger);
  const wire = new Wire({ allowHalfOpen: false });
  wire.on('error', (error: unknown) => (wire.fault ??= error));
  // Of a socket, the server uses what this has, too.
  server.accept(wire as unknown as Socket);
  const [connection] = Reflect.get(server, 'connections') as Set<object>;
  const streams = Reflect.get(connection ?? {}, 'streams') as object;
  const bytes = conversation(random, wire);
  const size = 1 + random(random(3) === 0 ? 20 : 30_000);
  for (let at = 0; at < bytes.length && !wire.destroyed && !wire.readableEnded; at += size) {
    wire.push(bytes.subarray(at, at + size));
    if (random(4) === 0 || bytes.length / size < 50) await turn();
    if (random(3) === 0) later.splice(random(later.length), 1)[0]?.();
    if (random(20) === 0) wire.letRead(!wire.reading);
    if (random(200) === 0) server.shutdown(() => undefined);
  }
  for (const act of later.splice(0)) act();
  wire.letRead(true);
  await turn();
  await turn();
  wire.destroy();
  await turn();
  for (const act of later.splice(0)) act();
  if (wire.fault !== undefined) throw wire.fault as Error;
  expect(logger.lines).to.deep.equal([]);
  expect(Reflect.get(server, 'connections')).to.have.property('size', 0);
  expect(streams).to.have.property('unfinishedBytes').which.is.a('number');
  while (Reflect.get(streams, 'unfinishedBytes') !== 0) await turn();
  expect(streams).to.include({ unsentBytes: 0, unfinishedBytes: 0 });
  expect(Reflect.get(streams, 'calls')).to.have.property('size', 0);
  return wire.answers;
}

describe('HTTP/2 under any sequence of frames', () => {
  it(`sends what it may, fails nowhere and keeps nothing (${SEQUENCES} times)`, async function () {
    this.timeout(20_000 + SEQUENCES * 20);
    let answers = 0;
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEQUENCES; seed++) {
      try {
        answers += await converse(seed);
      } catch (error) {
        throw new Error(`sequence ${seed}: ${String(error)}`, { cause: error });
      }
    }
    expect(answers).to.be.greaterThan(SEQUENCES);
  });
});
