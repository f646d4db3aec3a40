/**
 * A load on a server of Envoy's API, in a process of its own: raw HTTP/2, so that one core of load can keep a
 * core of server busy. Closed loop (so many calls in flight), or open (so many a second, each timed from when
 * it was due, so that a server that stands still cannot hide it). Prints one line of JSON.
 * `node --import tsx bench/load.ts '{"port":8081,"keys":"zipf","seconds":5}'`
 */
import { Connection } from './connection.js';
import { encodeTwo } from './wire.js';

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

const options = JSON.parse(process.argv[2] ?? '{}') as LoadOptions; // written by who starts this
const { seconds, warmupSeconds = 0, connections = 8, streams = 32 } = options;
const { rate, endpoint = '/v1/messages' } = options;
const record = new Record();
const draw = drawer(options.keys);
const open = await Promise.all(
  Array.from({ length: connections }, () => Connection.open(options.port)),
);

function send(connection: Connection | undefined, dueMs: number, next?: () => void): void {
  connection?.send(encodeTwo(endpoint, `u${draw()}`), (code) => {
    record.note(performance.now() - dueMs, code);
    next?.();
  });
}

if (rate === undefined) {
  for (const connection of open) {
    const again = (): void => {
      send(connection, performance.now(), again);
    };
    for (let i = 0; i < streams; i++) again();
  }
} else {
  const startMs = performance.now() + 200;
  let sent = 0;
  setInterval(() => {
    const nowMs = performance.now();
    for (;;) {
      const dueMs = startMs + (sent * 1000) / rate;
      if (dueMs > nowMs) break;
      send(open[sent++ % connections], dueMs);
    }
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
