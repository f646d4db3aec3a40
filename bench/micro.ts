/**
 * What each step of a decision costs this process, in ns and in bytes of garbage; each algorithm in memory,
 * and each script in Redis by Redis's own count of its time. The least of many short rounds, so that it
 * hardly depends on who else runs. A request has two descriptors, (endpoint) and (endpoint, user).
 * `node --expose-gc --max-semi-space-size=128 --min-semi-space-size=128 --import tsx bench/micro.ts`
 */
import { RecentDecisions } from '../src/admin/recent-decisions.js';
import { loadConfig } from '../src/config/load.js';
import { createLimiter } from '../src/limiter.js';
import { Metrics } from '../src/metrics/metrics.js';
import { ALGORITHM_NAMES, type AlgorithmName, type Decision, type Outcome } from '../src/model.js';
import { CounterKeys } from '../src/store/keys.js';
import { MemoryStore } from '../src/store/memory.js';
import { encodeCall, ScriptReply } from '../src/store/script-call.js';
import { buildScript } from '../src/store/script.js';
import type { StoreRequest } from '../src/store/store.js';
import { type Gate } from '../src/store/store.js';
import { decodeRequest, encodeResponse, MAX_ENTRIES } from '../src/transport/envoy-codec.js';
import { toDecisionRequest, toResponse } from '../src/transport/envoy.js';
import { Redis } from 'ioredis';
import { RedisServer } from '../test/support/redis-server.js';
import { encodeTwo } from './wire.js';

const BOUNDS = { maxDescriptors: 128, maxEntries: MAX_ENTRIES, maxValueBytes: 65_536 };
const USERS = 10_000;
const ROUND = 10_000;
const ROUNDS = 40;
const BATCH = 64;

const collect = globalThis.gc ?? (() => undefined);

/** ns and bytes of one call of `work`, which is given the number of the call. */
function measure(work: (i: number) => void): { ns: number; bytes: number } {
  let ns = Infinity;
  let bytes = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    collect();
    const heap = process.memoryUsage().heapUsed;
    const start = process.hrtime.bigint();
    for (let i = 0; i < ROUND; i++) work(i);
    ns = Math.min(ns, Number(process.hrtime.bigint() - start) / ROUND);
    bytes = Math.min(bytes, (process.memoryUsage().heapUsed - heap) / ROUND);
  }
  return { ns, bytes };
}

function report(name: string, { ns, bytes }: { ns: number; bytes: number }, per = 1): void {
  console.log(
    `${name.padEnd(44)} ${(ns / per).toFixed(0).padStart(7)} ns ${(bytes / per).toFixed(0).padStart(7)} B`,
  );
}

function rulesOf(algorithm: AlgorithmName): string {
  return `
domain: bench
descriptors:
  - key: endpoint
    rate_limit: { unit: hour, requests_per_unit: 4000000000 }
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: ${algorithm} }
`;
}

function snapshotOf(algorithm: AlgorithmName) {
  return loadConfig([{ name: 'bench.yaml', text: rulesOf(algorithm) }], {
    mergeDomains: false,
    defaultOnStoreError: 'allow',
    generation: 1,
    nowMs: 0,
  }).snapshot;
}

const OUTCOME: Outcome = { fits: true, taken: true, remaining: 9, resetUs: 1, retryAfterUs: 0 };
const nothing = (): void => undefined;

function limiterOf(algorithm: AlgorithmName, gate: Gate) {
  const snapshot = snapshotOf(algorithm);
  return createLimiter({
    snapshot: () => snapshot,
    keys: new CounterKeys(''),
    gate,
    fallback: new MemoryStore({ nowUs: () => 0, observer: { memoryOverflow: nothing } }),
    instances: () => 1,
    nowUs: () => 0,
    shadowMode: false,
    quotaMode: false,
    stopIncrement: undefined,
    defaultOnStoreError: 'allow',
  });
}

const instant: Gate = {
  submit(request) {
    for (let i = 0; i < request.charges.length; i++) request.outcomes[i] = OUTCOME;
    request.settle();
  },
};

const messages = Array.from({ length: USERS }, (_, i) => encodeTwo('/v1/messages', `u${i}`));
const message = (i: number): Buffer => messages[i % USERS] ?? Buffer.alloc(0);
const wires = messages.map((bytes) => decodeRequest(bytes, BOUNDS));
const requests = wires.map(toDecisionRequest);
const at = <T>(list: readonly T[], i: number): T => list[i % list.length] as T; // never empty here

function steps(): void {
  const options = { headers: undefined, dynamicMetadata: false };
  const decisions: Decision[] = [];
  const limiter = limiterOf('fixed_window', instant);
  for (const request of requests) {
    limiter.decide(request, Infinity, (decision) => decisions.push(decision));
  }
  const responses = decisions.map((decision, i) => toResponse(decision, at(wires, i), options));
  const metrics = new Metrics({
    version: '',
    store: 'redis',
    nearLimitRatio: 0.8,
    detailedMaxSeries: 500,
    nowMs: () => Date.now(),
    processMetrics: false,
  });
  const recent = new RecentDecisions({ nowMs: () => Date.now() });
  report(
    'decode the message',
    measure((i) => decodeRequest(message(i), BOUNDS)),
  );
  report(
    'match, charge and fold (store: none)',
    measure((i) => {
      limiter.decide(at(requests, i), Infinity, nothing);
    }),
  );
  report(
    'answer from a decision',
    measure((i) => toResponse(at(decisions, i), at(wires, i), options)),
  );
  report(
    'encode the answer',
    measure((i) => encodeResponse(at(responses, i))),
  );
  report(
    'metrics',
    measure((i) => {
      metrics.observeDecision(at(decisions, i));
    }),
  );
  report(
    'rates and heaviest values',
    measure((i) => {
      recent.observe(at(decisions, i));
    }),
  );
}

function storeRequests(algorithm: AlgorithmName): StoreRequest[] {
  const found: StoreRequest[] = [];
  const limiter = limiterOf(algorithm, {
    submit: (request) => {
      found.push(request);
    },
  });
  for (const request of requests) limiter.decide(request, Infinity, nothing);
  return found;
}

function wire(): void {
  const all = storeRequests('fixed_window');
  const batches = Array.from({ length: USERS / BATCH }, (_, i) =>
    all.slice(i * BATCH, (i + 1) * BATCH),
  );
  report(
    `call of the script, of ${BATCH}`,
    measure((i) => {
      if (i % BATCH === 0) encodeCall(at(batches, i / BATCH), 0);
    }),
  );
  const reply = Buffer.alloc(8 + 2 * BATCH * 33);
  report(
    `reply of the script, of ${BATCH}`,
    measure((i) => {
      if (i % BATCH !== 0) return;
      const parsed = ScriptReply.parse(reply, 2 * BATCH);
      for (let k = 0; k < 2 * BATCH; k++) parsed?.outcome(k);
    }),
  );
}

function memory(): void {
  for (const algorithm of ALGORITHM_NAMES) {
    const start = Date.now() * 1000;
    let now = start;
    const store = new MemoryStore({ nowUs: () => now, observer: { memoryOverflow: nothing } });
    const limiter = limiterOf(algorithm, {
      submit: (request) => {
        store.decide([request], nothing);
      },
    });
    report(
      `decide in memory: ${algorithm}`,
      measure((i) => {
        now += 20;
        limiter.decide(at(requests, i), Infinity, nothing);
      }),
    );
  }
}

/** Time of the script by Redis's own count, hot (one user) and over all users. */
async function scripts(): Promise<void> {
  const redis = await RedisServer.start();
  const client = new Redis(redis.port, { maxRetriesPerRequest: 0 });
  try {
    const script = buildScript();
    for (const algorithm of ALGORITHM_NAMES) {
      for (const users of [1, USERS]) {
        const all = storeRequests(algorithm).slice(0, users);
        let least = Infinity;
        for (let round = 0; round < 5; round++) {
          await client.config('RESETSTAT');
          const calls = 40;
          for (let call = 0; call < calls; call++) {
            const batch = Array.from({ length: BATCH }, (_, i) => at(all, call * BATCH + i));
            const { keys, argument } = encodeCall(batch, 0);
            await client.eval(script, keys.length, ...keys, argument);
          }
          const stats = await client.info('commandstats');
          const us = Number(/cmdstat_eval:.*?usec=(\d+)/.exec(stats)?.[1]);
          least = Math.min(least, us / (calls * BATCH));
        }
        const name = `script: ${algorithm}, ${users} user${users === 1 ? '' : 's'}`;
        console.log(`${name.padEnd(44)} ${least.toFixed(2).padStart(7)} µs a request`);
      }
    }
  } finally {
    client.disconnect();
    await redis.stop();
  }
}

steps();
wire();
memory();
if (process.argv[2] !== 'own') await scripts();
