/**
 * Memory of counters: bytes each in Redis beyond the key's own length, by Redis's own count, and in this
 * process. `node --expose-gc --import tsx bench/memory.ts [counters, default 1000000]`
 */
import { Redis } from 'ioredis';
import { ALGORITHM_NAMES, type AlgorithmName, type Charge, type Limit } from '../src/model.js';
import { keyHead } from '../src/store/keys.js';
import { MemoryStore } from '../src/store/memory.js';
import { encodeCall } from '../src/store/script-call.js';
import { buildScript } from '../src/store/script.js';
import { StoreRequest } from '../src/store/store.js';
import { RedisServer } from '../test/support/redis-server.js';

const COUNTERS = Number(process.argv[2] ?? 1_000_000);
const BATCH = 256;
/** Hits of an exact log, one at a time, to see what each costs. */
const HITS = 500;

function limitOf(algorithm: AlgorithmName): Limit {
  const windowUs = 3_600_000_000;
  return {
    name: '',
    algorithm,
    requests: 1000,
    unit: 'hour',
    unitMultiplier: 1,
    windowUs,
    burst: 1000,
    precisionUs: algorithm === 'sliding_window_counter' ? windowUs / 60 : 0,
    onStoreError: 'allow',
    countRejected: undefined,
    disclose: 'full',
    keyHead: keyHead(algorithm, windowUs),
  };
}

function chargeOf(limit: Limit, user: number): Charge {
  const key = `${limit.keyHead}|bench|user=${String(user).padStart(8, '0')}`;
  return { limit, key, hits: 1, role: 'enforced', mode: 'take' };
}

async function inRedis(algorithm: AlgorithmName, counters: number, hits: number): Promise<number> {
  const redis = await RedisServer.start();
  const client = new Redis(redis.port);
  try {
    const limit = limitOf(algorithm);
    const script = buildScript();
    const used = async (): Promise<number> =>
      Number(/used_memory:(\d+)/.exec(await client.info('memory'))?.[1]);
    const { keys, argument } = encodeCall([{ charges: [chargeOf(limit, -1)] }], 0);
    await client.eval(script, keys.length, ...keys, argument);
    const before = await used();
    let keyBytes = 0;
    for (let hit = 0; hit < hits; hit++) {
      for (let first = 0; first < counters; first += BATCH) {
        const batch = Array.from({ length: Math.min(BATCH, counters - first) }, (_, i) => ({
          charges: [chargeOf(limit, first + i)],
        }));
        const call = encodeCall(batch, 0);
        if (hit === 0) keyBytes += call.keys.reduce((sum, key) => sum + key.length, 0);
        await client.eval(script, call.keys.length, ...call.keys, call.argument);
      }
    }
    return ((await used()) - before - keyBytes) / counters;
  } finally {
    client.disconnect();
    await redis.stop();
  }
}

function inMemory(algorithm: AlgorithmName): number {
  const limit = limitOf(algorithm);
  const observer = { memoryOverflow: () => undefined };
  const nowUs = Date.now() * 1000;
  const store = new MemoryStore({ nowUs: () => nowUs, maxCounters: COUNTERS, observer });
  globalThis.gc?.();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < COUNTERS; i++) {
    const request = new StoreRequest([chargeOf(limit, i)], Infinity, () => undefined);
    store.decide([request], () => undefined);
  }
  globalThis.gc?.();
  const bytes = (process.memoryUsage().heapUsed - before) / store.size;
  void store.stop();
  return bytes;
}

console.log(`${String(COUNTERS)} counters with one hit each, bytes a counter`);
for (const algorithm of ALGORITHM_NAMES) {
  const [redis, memory] = [await inRedis(algorithm, COUNTERS, 1), inMemory(algorithm)];
  console.log(
    `${algorithm.padEnd(24)} Redis ${redis.toFixed(1).padStart(6)} beyond the key; process ${memory.toFixed(0).padStart(4)} with it`,
  );
}
const few = await inRedis('sliding_window', 500, HITS);
const one = await inRedis('sliding_window', 500, 1);
console.log(
  `sliding_window: each further hit ${((few - one) / (HITS - 1)).toFixed(1)} bytes in Redis`,
);
