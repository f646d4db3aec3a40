/**
 * What a second worker brings on two cores: requests a second with WORKERS=1 and WORKERS=2, in turns. The load
 * needs a core too, so it is made cheap beside the work: every request has 64 descriptors, the same bytes
 * each time, whose limits are used up. Medians. `npm run build && node --import tsx bench/workers.ts [rounds] [seconds]`
 */
import { RedisServer } from '../test/support/redis-server.js';
import { startWeir } from '../test/support/weir-process.js';
import { Connection } from './connection.js';
import { encodeRequest, type Entries } from './wire.js';

const rounds = Number(process.argv[2] ?? 5);
const seconds = Number(process.argv[3] ?? 5);
const CONNECTIONS = 16;
const IN_FLIGHT = 8;
const DESCRIPTORS = 64;

const RULES = `
domain: bench
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 0 }
`;
const request = encodeRequest(
  ...Array.from({ length: DESCRIPTORS }, (_, i): Entries => [['user', `u${i}`]]),
);

async function perSecond(workers: number): Promise<number> {
  const redis = await RedisServer.start();
  const weir = await startWeir({
    files: { 'bench.yaml': RULES },
    env: { WORKERS: String(workers), REDIS_URL: `127.0.0.1:${redis.port}`, LOG_LEVEL: 'error' },
    program: ['dist/main.js'],
  });
  const open = Array.from({ length: CONNECTIONS }, () => Connection.open(weir.grpcPort));
  const connections = await Promise.all(open);
  let answers = 0;
  const again = (connection: Connection): void => {
    connection.send(request, (code) => {
      if (code !== 2) throw new Error(`answered with code ${code}`);
      answers++;
      again(connection);
    });
  };
  for (const connection of connections) {
    for (let i = 0; i < IN_FLIGHT; i++) again(connection);
  }
  await pause(2); // code gets warm
  const before = answers;
  const startMs = performance.now();
  await pause(seconds);
  const found = ((answers - before) * 1000) / (performance.now() - startMs);
  for (const connection of connections) connection.silence();
  await weir.stop();
  await redis.stop();
  return found;
}

function pause(ofSeconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ofSeconds * 1000));
}

function median(numbers: readonly number[]): number {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? NaN;
}

const one: number[] = [];
const two: number[] = [];
for (let round = 0; round < rounds; round++) {
  one.push(await perSecond(1));
  two.push(await perSecond(2));
}
console.log(`WORKERS=1: ${median(one).toFixed(0)} requests a second`);
console.log(`WORKERS=2: ${median(two).toFixed(0)}, ×${(median(two) / median(one)).toFixed(2)}`);
