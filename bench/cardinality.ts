/**
 * A million distinct values thrown at 50 rules: does the process stay small, does the number of series stay
 * put, and are the active keys right? Fails when memory exceeds 250 MiB, a series is added, or a rule's active
 * keys are off by more than 3 %. Waits for a minute to begin, as active keys are those of two clock minutes.
 * `npm run build && npx tsx bench/cardinality.ts [values]`
 */
import { RedisServer } from '../test/support/redis-server.js';
import { startWeir } from '../test/support/weir-process.js';
import { Caller } from './caller.js';
import { encodeRequest, type Entries } from './wire.js';

const values = Number(process.argv[2] ?? 1_000_000);
const RULES = 50;
const PER_REQUEST = 10;
const IN_FLIGHT = 64;
const MOST_BYTES = 250 * 1024 * 1024;
const MOST_ERROR = 0.03;

const yaml = `domain: bench\ndescriptors:\n${Array.from(
  { length: RULES },
  (_, rule) => `  - key: k${rule}\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n`,
).join('')}`;

function encode(first: number): Buffer {
  const entries = (i: number): Entries => [[`k${i % RULES}`, `value-${i}`]];
  return encodeRequest(...Array.from({ length: PER_REQUEST }, (_, i) => entries(first + i)));
}

interface Scrape {
  readonly series: number;
  readonly residentBytes: number;
  readonly activeKeys: readonly number[];
  readonly ms: number;
}

async function scrape(port: number): Promise<Scrape> {
  const startMs = performance.now();
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const ms = performance.now() - startMs;
  const lines = text.split('\n').filter((line) => line.startsWith('weir_'));
  const number = (pattern: RegExp): number[] =>
    [...text.matchAll(pattern)].map(([, value]) => Number(value));
  return {
    series: lines.length,
    residentBytes: number(/^process_resident_memory_bytes (\S+)$/gm)[0] ?? NaN,
    activeKeys: number(/^weir_active_keys\{.*\} (\S+)$/gm),
    ms,
  };
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const redis = await RedisServer.start();
const weir = await startWeir({
  files: { 'bench.yaml': yaml },
  env: { REDIS_URL: `127.0.0.1:${redis.port}` },
  program: ['dist/main.js'],
});
const caller = await Caller.open(weir.grpcPort, 4);

try {
  const before = await scrape(weir.httpPort);
  await sleep(60_000 - (Date.now() % 60_000));
  let mostBytes = 0;
  let failed = 0;
  let next = 0;
  const watch = setInterval(() => {
    void scrape(weir.httpPort).then(({ residentBytes }) => {
      mostBytes = Math.max(mostBytes, residentBytes);
    });
  }, 1000);
  const startMs = performance.now();
  const chain = (): Promise<void> =>
    new Promise((resolve) => {
      const step = (): void => {
        if (next >= values) {
          resolve();
          return;
        }
        const request = encode(next);
        next += PER_REQUEST;
        caller.ask(request, (verdict) => {
          if (verdict === 'failed') failed++;
          step();
        });
      };
      step();
    });
  await Promise.all(Array.from({ length: IN_FLIGHT }, chain));
  const seconds = (performance.now() - startMs) / 1000;
  // The figures of all instances are asked for every 15 s.
  await sleep(17_000);
  clearInterval(watch);
  const after = await scrape(weir.httpPort);
  mostBytes = Math.max(mostBytes, after.residentBytes);
  const truth = values / RULES;
  const errors = after.activeKeys.map((found) => Math.abs(found - truth) / truth);
  const worst = Math.max(...errors);
  const mib = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(0)} MiB`;
  console.log(`${values} values at ${RULES} rules in ${seconds.toFixed(0)} s, ${failed} failed`);
  console.log(`memory: ${mib(before.residentBytes)} before, ${mib(mostBytes)} at most`);
  console.log(
    `series: ${before.series} before, ${after.series} after; scrape ${after.ms.toFixed(1)} ms`,
  );
  console.log(
    `active keys of a rule: ${truth} in truth, off by at most ${(worst * 100).toFixed(1)} %, ` +
      `${((errors.reduce((sum, error) => sum + error, 0) / errors.length) * 100).toFixed(1)} % on average`,
  );
  const fine =
    failed === 0 &&
    mostBytes < MOST_BYTES &&
    before.series === after.series &&
    errors.length === RULES &&
    worst < MOST_ERROR;
  process.exitCode = fine ? 0 : 1;
} finally {
  caller.close();
  await weir.stop();
  await redis.stop();
}
