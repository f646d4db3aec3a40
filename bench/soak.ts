/**
 * A long run with faults: a steady load of ever new users, Redis killed for five seconds every minute. Ends with
 * exit code 1 when a call failed, when memory grew, when Redis was not picked up again within two seconds, or
 * when a counter is left without expiry. `npm run build && npx tsx bench/soak.ts [minutes] [per second]`
 */
import { execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { RedisServer } from '../test/support/redis-server.js';
import { startWeir } from '../test/support/weir-process.js';
import { Caller, encodeRequest, openLoop, Tally } from './caller.js';

const minutes = Number(process.argv[2] ?? 10);
const perSecond = Number(process.argv[3] ?? 500);
const OUTAGE_MS = 5000;
const MAY_GROW = 1.3;

const PATHS = ['fixed_window', 'sliding_window', 'sliding_window_counter', 'token_bucket'];
const RULES = `
domain: bench
descriptors:
${PATHS.map(
  (algorithm) => `  - key: endpoint
    value: /${algorithm}
    descriptors:
      - key: user
        rate_limit: { algorithm: ${algorithm}, unit: minute, requests_per_unit: 5 }
`,
).join('')}`;

const faults: string[] = [];
let redis = await RedisServer.start();
const redisPort = redis.port;
const weir = await startWeir({
  files: { 'bench.yaml': RULES },
  env: { REDIS_URL: `127.0.0.1:${redisPort}` },
  program: ['dist/main.js'],
});
const caller = await Caller.open(weir.grpcPort, 4);

/** The sum of a metric's series. */
async function metric(name: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${weir.httpPort}/metrics`)).text();
  const lines = text.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, 'gm'));
  return [...lines].reduce((sum, [, value]) => sum + Number(value), 0);
}

/** Resolves with how long it takes from now until the service no longer answers by policy. */
async function recoveryMs(): Promise<number> {
  const startMs = performance.now();
  let before = await metric('weir_degraded_total');
  for (;;) {
    await sleep(100);
    const now = await metric('weir_degraded_total');
    if (now === before) return performance.now() - startMs;
    if (performance.now() - startMs > 30_000) return Infinity;
    before = now;
  }
}

let sent = 0;
/** New users all the time, each asked a few times, so that some are refused. */
function nextRequest(): Buffer {
  const user = Math.floor(sent++ / 2000) * 100 + Math.floor(Math.random() * 100);
  return encodeRequest(`/${PATHS[sent % PATHS.length] ?? ''}`, String(user));
}

let baseline = 0;
try {
  for (let minute = 1; minute <= minutes; minute++) {
    const tally = new Tally();
    const load = openLoop(perSecond, 60, (done) => {
      caller.ask(nextRequest(), (verdict, ms) => {
        tally.note(verdict, ms);
        done();
      });
    });
    await sleep(20_000);
    await redis.stop();
    await sleep(OUTAGE_MS);
    redis = await RedisServer.start({ port: redisPort });
    const recovered = await recoveryMs();
    await load;
    const memoryMiB = (await metric('process_resident_memory_bytes')) / 1_048_576;
    if (minute === Math.min(2, minutes)) baseline = memoryMiB;
    console.log(
      `minute ${minute}: ${JSON.stringify(tally.verdicts)}, p50 ${tally.percentileMs(0.5).toFixed(1)} ms, ` +
        `p99 ${tally.percentileMs(0.99).toFixed(1)} ms, recovered after ${recovered.toFixed(0)} ms, ` +
        `${memoryMiB.toFixed(0)} MiB`,
    );
    if (tally.verdicts.failed > 0)
      faults.push(`minute ${minute}: ${tally.verdicts.failed} calls failed`);
    if (recovered > 2000)
      faults.push(`minute ${minute}: recovered after ${recovered.toFixed(0)} ms`);
    if (baseline > 0 && memoryMiB > baseline * MAY_GROW) {
      faults.push(`minute ${minute}: ${memoryMiB.toFixed(0)} MiB, after ${baseline.toFixed(0)}`);
    }
  }
  const keys = redisCli('--scan').split('\n').filter(Boolean);
  const immortal = keys.filter((key) => redisCli('ttl', key).trim() === '-1');
  console.log(`${keys.length} keys in Redis, ${immortal.length} without expiry`);
  if (immortal.length > 0) faults.push(`without expiry: ${immortal.slice(0, 5).join(' ')}`);
} finally {
  caller.close();
  const code = await weir.stop();
  if (code !== 0) faults.push(`ended with exit code ${String(code)}`);
  await redis.stop();
}
for (const fault of faults) console.error(`FAULT ${fault}`);
process.exitCode = faults.length > 0 ? 1 : 0;

function redisCli(...args: string[]): string {
  return execFileSync('redis-cli', ['-p', String(redisPort), ...args]).toString();
}
