/**
 * A load on a server of Envoy's API, in a process of its own: raw HTTP/2, so that one core of load can keep a
 * core of server busy. Closed loop (so many calls in flight), or open (so many a second, each timed from when
 * it was due, so that a server that stands still cannot hide it). Prints one line of JSON.
 * `node --import tsx bench/load.ts '{"port":8081,"keys":"zipf","seconds":5}'`
 */
import { connect, type Socket } from 'node:net';
import {
  callData,
  callHeaders,
  encodeTwo,
  FLAG,
  FRAME,
  frame,
  FrameReader,
  preface,
  windowUpdate,
} from './wire.js';

export interface LoadOptions {
  readonly port: number;
  /** One user, or 100,000 that are asked for alike, or by Zipf's law. */
  readonly keys: 'hot' | 'uniform' | 'zipf';
  readonly seconds: number;
  /** Not measured. */
  readonly warmupSeconds?: number;
  readonly connections?: number;
  /** In flight on each connection; not with `rate`. */
  readonly streams?: number;
  /** Requests a second, in an open loop. */
  readonly rate?: number;
  readonly endpoint?: string;
}

/** Times in ms. */
export interface LoadResult {
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
  readonly ok: number;
  readonly over: number;
  readonly failed: number;
}

const USERS = 100_000;
const RENEW_WINDOW_AT = 1 << 28;
const BUCKETS_PER_MS = 100;
const MOST_MS = 2000;

/** Draws users. Seeded: every run asks for the same ones. */
function drawer(keys: LoadOptions['keys']): () => number {
  let state = 2654435761;
  const random = (): number => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 4294967296;
  };
  if (keys === 'hot') return () => 0;
  if (keys === 'uniform') return () => Math.floor(random() * USERS);
  const sums = new Float64Array(USERS);
  let total = 0;
  for (let i = 0; i < USERS; i++) {
    total += 1 / (i + 1);
    sums[i] = total;
  }
  return () => {
    const wanted = random() * total;
    let low = 0;
    let high = USERS - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((sums[middle] ?? 0) < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  };
}

/** How long answers took and what they said, while it is on. */
class Record {
  on = false;
  ok = 0;
  over = 0;
  failed = 0;
  private max = 0;
  private readonly buckets = new Uint32Array(MOST_MS * BUCKETS_PER_MS);

  note(ms: number, code: number): void {
    if (!this.on) return;
    if (code === 1) this.ok++;
    else if (code === 2) this.over++;
    else this.failed++;
    this.max = Math.max(this.max, ms);
    const bucket = Math.min(this.buckets.length - 1, Math.floor(ms * BUCKETS_PER_MS));
    this.buckets[bucket] = (this.buckets[bucket] ?? 0) + 1;
  }

  result(seconds: number): LoadResult {
    const { ok, over, failed, max } = this;
    const total = ok + over + failed;
    const at = (part: number): number => {
      let left = part * total;
      const bucket = this.buckets.findIndex((count) => (left -= count) <= 0);
      return bucket / BUCKETS_PER_MS;
    };
    return {
      perSecond: Math.round(total / seconds),
      p50: at(0.5),
      p99: at(0.99),
      p999: at(0.999),
      max: Math.round(max * BUCKETS_PER_MS) / BUCKETS_PER_MS,
      ok,
      over,
      failed,
    };
  }
}

/** One connection with its calls. Ends the process when the server does not keep to the protocol. */
class Connection {
  readonly socket: Socket;
  private readonly reader = new FrameReader();
  private readonly dueMs = new Map<number, number>();
  private readonly codes = new Map<number, number>();
  private readonly headers: Buffer;
  private out: Buffer[] = [];
  private stream = 1;
  private window = 65_535;
  private held = 0;
  private received = 0;

  constructor(
    options: LoadOptions,
    private readonly message: () => Buffer,
    private readonly record: Record,
    private readonly closedLoop: boolean,
  ) {
    this.headers = callHeaders(`127.0.0.1:${options.port}`);
    this.socket = connect({ host: '127.0.0.1', port: options.port, noDelay: true });
    this.socket.on('connect', () => {
      this.socket.write(preface());
      for (let i = 0; closedLoop && i < (options.streams ?? 32); i++) this.send();
      this.flush();
    });
    this.socket.on('data', (bytes) => {
      this.reader.read(bytes, (type, flags, stream, payload) => {
        this.meet(type, flags, stream, payload);
      });
      this.flush();
    });
    const broken = (reason: string): void => {
      if (!this.socket.destroyed) console.error(`the connection broke: ${reason}`);
      process.exit(1);
    };
    this.socket.on('error', (error) => {
      broken(error.message);
    });
    this.socket.on('end', () => {
      broken('closed by the server');
    });
  }

  /** Puts a call into the next write. Where the window is full it waits for room. */
  send(dueMs = performance.now()): void {
    const message = this.message();
    if (this.window < message.length + 5) {
      this.held++;
      return;
    }
    this.window -= message.length + 5;
    const stream = this.stream;
    this.stream += 2;
    const headers = Buffer.from(this.headers);
    headers.writeUInt32BE(stream, 5);
    this.out.push(headers, callData(stream, message));
    this.dueMs.set(stream, dueMs);
  }

  flush(): void {
    if (this.out.length === 0) return;
    this.socket.write(Buffer.concat(this.out));
    this.out = [];
  }

  private meet(type: number, flags: number, stream: number, payload: Buffer): void {
    if (type === FRAME.data) this.readAnswer(stream, payload);
    else if (type === FRAME.settings && (flags & FLAG.ack) === 0) {
      this.out.push(frame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(0)));
    } else if (type === FRAME.ping && (flags & FLAG.ack) === 0) {
      this.out.push(frame(FRAME.ping, FLAG.ack, 0, payload));
    } else if (type === FRAME.window && stream === 0) {
      this.window += payload.readUInt32BE(0);
      for (; this.held > 0 && this.window > 1024; this.held--) this.send();
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
    // The message's first field is the overall code: 08 01 or 08 02, behind five bytes of gRPC.
    if (payload[5] === 8) this.codes.set(stream, payload[6] ?? 0);
  }

  private end(stream: number): void {
    const dueMs = this.dueMs.get(stream);
    if (dueMs === undefined) return;
    this.record.note(performance.now() - dueMs, this.codes.get(stream) ?? 0);
    this.dueMs.delete(stream);
    this.codes.delete(stream);
    if (this.closedLoop) this.send();
  }
}

const options = JSON.parse(process.argv[2] ?? '{}') as LoadOptions; // written by who starts this
const { seconds, warmupSeconds = 0, connections = 8, rate, endpoint = '/v1/messages' } = options;
const record = new Record();
const draw = drawer(options.keys);
const message = (): Buffer => encodeTwo(endpoint, `u${draw()}`);
const open = Array.from(
  { length: connections },
  () => new Connection(options, message, record, rate === undefined),
);
if (rate !== undefined) {
  const startMs = performance.now() + 200;
  let sent = 0;
  setInterval(() => {
    const nowMs = performance.now();
    for (;;) {
      const dueMs = startMs + (sent * 1000) / rate;
      if (dueMs > nowMs) break;
      open[sent++ % connections]?.send(dueMs);
    }
    for (const connection of open) connection.flush();
  }, 1);
}
setTimeout(() => {
  record.on = true;
  const startMs = performance.now();
  setTimeout(() => {
    console.log(JSON.stringify(record.result((performance.now() - startMs) / 1000)));
    process.exit(0);
  }, seconds * 1000);
}, warmupSeconds * 1000);
