/**
 * A long run with faults drawn from a seed: a steady load of ever new users while Redis and its network fail in
 * one way after the other. Says which promises were not kept; see soak.ts for the command.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { startWeir } from '../test/support/weir-process.js';
import type { WeirProcess } from '../test/support/weir-process.js';
import { Caller, openLoop } from './caller.js';
import { FaultyRedis } from './faulty-redis.js';
import { encodeOne } from './wire.js';

export interface SoakOptions {
  readonly seed: number;
  readonly seconds: number;
  readonly perSecond: number;
  /** Arguments of Node that run the service: `['dist/main.js']`. */
  readonly program: readonly string[];
  readonly print: (line: string) => void;
}

const LIMIT = 5;
const ALGORITHMS = ['fixed_window', 'sliding_window', 'sliding_window_counter', 'token_bucket'];
const POLICIES = ['allow', 'deny', 'local'] as const;
const ENDPOINTS = ALGORITHMS.flatMap((algorithm) =>
  POLICIES.map((policy) => ({ path: `/${algorithm}/${policy}`, algorithm, policy })),
);
const RULES = `
domain: bench
descriptors:
${ENDPOINTS.map(
  ({ path, algorithm, policy }) => `  - key: endpoint
    value: ${path}
    descriptors:
      - key: user
        rate_limit: { algorithm: ${algorithm}, unit: day, requests_per_unit: ${LIMIT}, on_store_error: ${policy} }
`,
).join('')}`;

/** New users come at this pace, each of them asked for about so long. */
const USERS_AT_ONCE = 60;
const USER_MS = 5000;
/** Memory may swing by so much around what it was after the first fifth of the run. */
const MAY_GROW = 1.25;
const MAY_GROW_MIB = 40;

/** What was promised and not kept, empty when all was. */
export async function soak(options: SoakOptions): Promise<string[]> {
  const random = randomOf(options.seed);
  const problems: string[] = [];
  const redis = await FaultyRedis.start();
  const weir = await startWeir({
    files: { 'bench.yaml': RULES },
    env: { REDIS_URL: `127.0.0.1:${redis.proxy.port}` },
    program: options.program,
  });
  const caller = await Caller.open(weir.grpcPort, 4);
  const counts = { sent: 0, ok: 0, over_limit: 0, failed: 0 };
  const admitted = new Map<string, number>();
  const send = (done: () => void): void => {
    const endpoint = ENDPOINTS[counts.sent++ % ENDPOINTS.length];
    if (endpoint === undefined) return;
    const wave = Math.floor(performance.now() / USER_MS);
    const user = `w${wave}u${Math.floor(random() * USERS_AT_ONCE)}`;
    caller.ask(encodeOne(endpoint.path, user), (verdict) => {
      counts[verdict]++;
      if (verdict === 'ok' && endpoint.policy !== 'allow') {
        const id = `${endpoint.policy} ${endpoint.path} ${user}`;
        admitted.set(id, (admitted.get(id) ?? 0) + 1);
      }
      done();
    });
  };
  const load = openLoop(options.perSecond, options.seconds, send);
  const memoryMiB: number[] = [];
  const endMs = performance.now() + options.seconds * 1000;
  try {
    // The last seconds are quiet, so that every counter can be looked at.
    while (performance.now() < endMs - 5000) {
      const fault = redis.passing[Math.floor(random() * redis.passing.length)];
      if (fault === undefined) break;
      await sleep(500 + random() * 2000);
      await fault.begin();
      await sleep(500 + random() * 3000);
      await fault.end?.();
      const backMs = await recoveryMs(weir);
      memoryMiB.push((await metric(weir, 'process_resident_memory_bytes')) / 1_048_576);
      options.print(
        `${fault.name}: back after ${backMs.toFixed(0)} ms, ${(memoryMiB.at(-1) ?? 0).toFixed(0)} MiB`,
      );
      if (backMs > 2000) problems.push(`${fault.name}: back after ${backMs.toFixed(0)} ms`);
    }
    await load;
    if (counts.failed > 0) problems.push(`${counts.failed} calls failed`);
    problems.push(...(await wrongSums(weir, counts)), ...wrongMemory(memoryMiB));
    for (const [id, count] of admitted) {
      // One share for Redis, one for the memory of the only instance.
      const most = id.startsWith('local') ? 2 * LIMIT : LIMIT;
      if (count > most) problems.push(`${id}: ${count} admitted, ${most} would be right`);
    }
    const immortal = await redis.immortalKeys();
    if (immortal.length > 0) problems.push(`without expiry: ${immortal.slice(0, 5).join(' ')}`);
    options.print(`${JSON.stringify(counts)} and ${admitted.size} limits`);
  } finally {
    caller.close();
    const code = await weir.stop();
    if (code !== 0) problems.push(`the service ended with exit code ${String(code)}`);
    if (/unhandled|uncaught/i.test(weir.output())) problems.push(weir.output().slice(-2000));
    await redis.stop();
  }
  return problems;
}

/** Every call is in exactly one place of the service's own count. */
async function wrongSums(
  weir: WeirProcess,
  counts: { sent: number; ok: number; over_limit: number },
): Promise<string[]> {
  const sumOf = (outcomes: string): Promise<number> =>
    metric(weir, 'weir_decisions_total', new RegExp(`outcome="(${outcomes})"`));
  const allowed = await sumOf('allowed|policy_allowed|policy_local_allowed');
  const refused = await sumOf('rejected|policy_denied|policy_local_rejected');
  const all = await metric(weir, 'weir_decisions_total');
  const problems: string[] = [];
  const differs = (what: string, ours: number, theirs: number): void => {
    if (ours !== theirs) problems.push(`${what}: we saw ${ours}, the service counts ${theirs}`);
  };
  differs('admitted', counts.ok, allowed);
  differs('refused', counts.over_limit, refused);
  differs('in all', counts.sent, all);
  return problems;
}

function wrongMemory(memoryMiB: readonly number[]): string[] {
  const early = memoryMiB[Math.floor(memoryMiB.length / 5)];
  const last = memoryMiB.at(-1);
  if (early === undefined || last === undefined || memoryMiB.length < 5) return [];
  const most = Math.max(early * MAY_GROW, early + MAY_GROW_MIB);
  return last > most ? [`${last.toFixed(0)} MiB at the end, ${early.toFixed(0)} early on`] : [];
}

/** Resolves with how long it takes from now until the service no longer answers by policy. */
async function recoveryMs(weir: WeirProcess): Promise<number> {
  const startMs = performance.now();
  let before = await metric(weir, 'weir_degraded_total');
  for (;;) {
    await sleep(100);
    const now = await metric(weir, 'weir_degraded_total');
    if (now === before) return performance.now() - startMs;
    if (performance.now() - startMs > 30_000) return Infinity;
    before = now;
  }
}

/** The sum of a metric's series, or of those whose labels match. */
async function metric(weir: WeirProcess, name: string, labels = /.*/): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${weir.httpPort}/metrics`)).text();
  let sum = 0;
  for (const [, found = '', value] of text.matchAll(
    new RegExp(`^${name}(?:\\{(.*)\\})? (\\S+)$`, 'gm'),
  )) {
    if (labels.test(found)) sum += Number(value);
  }
  return sum;
}

/** mulberry32: the same numbers, 0 to below 1, for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
