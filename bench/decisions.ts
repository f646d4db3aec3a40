/**
 * Decisions a second and how long one takes, by algorithm, over gRPC with counters in a Redis of its own. All
 * on one machine: client, service and Redis share its cores, so compare runs, not absolute numbers.
 * `npm run build && npx tsx bench/decisions.ts [seconds each]`
 */
import { ALGORITHM_NAMES } from '../src/model.js';
import { RedisServer } from '../test/support/redis-server.js';
import { startWeir } from '../test/support/weir-process.js';
import { Caller, closedLoop, encodeRequest, openLoop, Tally } from './caller.js';

const seconds = Number(process.argv[2] ?? 5);
const IN_FLIGHT = 128;
const PACE = 2000;
const USERS = 10_000;

const RULES = `
domain: bench
descriptors:
${ALGORITHM_NAMES.map(
  (algorithm) => `  - key: endpoint
    value: /${algorithm}
    descriptors:
      - key: user
        rate_limit: { algorithm: ${algorithm}, unit: minute, requests_per_unit: 100 }
`,
).join('')}`;

const redis = await RedisServer.start();
const weir = await startWeir({
  files: { 'bench.yaml': RULES },
  env: { REDIS_URL: `127.0.0.1:${redis.port}` },
  program: ['dist/main.js'],
});
const caller = await Caller.open(weir.grpcPort, 4);

try {
  console.log(
    `${USERS} users, 100 a minute each; ${seconds} s a run, ${IN_FLIGHT} in flight or ${PACE} a second`,
  );
  for (const algorithm of ALGORITHM_NAMES) {
    const requests = Array.from({ length: USERS }, (_, i) =>
      encodeRequest(`/${algorithm}`, String(i)),
    );
    const send = (tally: Tally) => (done: () => void) => {
      const request = requests[Math.floor(Math.random() * USERS)];
      if (request === undefined) throw new Error('no such user');
      caller.ask(request, (verdict, ms) => {
        tally.note(verdict, ms);
        done();
      });
    };
    await closedLoop(IN_FLIGHT, 1, send(new Tally())); // code gets warm
    const most = new Tally();
    await closedLoop(IN_FLIGHT, seconds, send(most));
    const paced = new Tally();
    await openLoop(PACE, seconds, send(paced));
    const at = (part: number): string => paced.percentileMs(part).toFixed(2);
    console.log(
      `${algorithm.padEnd(24)} ${Math.round(most.count / seconds)} decisions/s; ` +
        `at ${PACE}/s p50 ${at(0.5)} ms, p99 ${at(0.99)} ms; ` +
        `failed ${most.verdicts.failed + paced.verdicts.failed}`,
    );
  }
} finally {
  caller.close();
  await weir.stop();
  await redis.stop();
}
