/**
 * How often Envoy gives up on a decision: requests at a fixed pace through a real Envoy that waits 20 ms, as it
 * does by default, then its own counters. `npm run build && npx tsx bench/envoy.ts [per second] [seconds]`,
 * with REDIS_URL to count in that Redis; otherwise one is started for the run.
 */
import { once } from 'node:events';
import { Agent, createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import { findEnvoy, startEnvoy } from '../test/support/envoy.js';
import { RedisServer } from '../test/support/redis-server.js';
import { startWeir } from '../test/support/weir-process.js';
import { openLoop } from './caller.js';

const perSecond = Number(process.argv[2] ?? 1000);
const seconds = Number(process.argv[3] ?? 20);
const TIMEOUT = '0.02s';

const RULES = `
domain: edge
descriptors:
  - key: endpoint
    descriptors:
      - key: user
        rate_limit: { algorithm: token_bucket, unit: second, requests_per_unit: 1, burst: 5 }
`;

const binary = findEnvoy();
if (binary === undefined) throw new Error('no Envoy: make tools installs it');

const ownRedis = process.env['REDIS_URL'] === undefined ? await RedisServer.start() : undefined;
const app = createServer((_request, response) => response.end('hello')).listen(0, '127.0.0.1');
await once(app, 'listening');
const { port: appPort } = app.address() as AddressInfo; // bound to TCP
const weir = await startWeir({
  files: { 'edge.yaml': RULES },
  env: { REDIS_URL: process.env['REDIS_URL'] ?? `127.0.0.1:${ownRedis?.port ?? 0}` },
  program: ['dist/main.js'],
});
const envoy = await startEnvoy({ binary, weirPort: weir.grpcPort, appPort, timeout: TIMEOUT });

const agent = new Agent({ keepAlive: true, maxSockets: 256 });
const statuses = new Map<number | string, number>();
const latenciesMs: number[] = [];
let sent = 0;

function send(done: () => void): void {
  const sentMs = performance.now();
  const note = (status: number | string): void => {
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
    latenciesMs.push(performance.now() - sentMs);
    done();
  };
  const headers = { 'x-user': String(sent++ % 500) };
  get(`${envoy.url}/pay`, { agent, headers }, (response) => {
    response.resume().on('end', () => {
      note(response.statusCode ?? 0);
    });
  }).on('error', (error: NodeJS.ErrnoException) => {
    note(error.code ?? error.message);
  });
}

const NAMES = ['ok', 'over_limit', 'error', 'failure_mode_allowed'];
const read = (): Promise<number[]> =>
  Promise.all(NAMES.map((name) => envoy.counter(`cluster.app.ratelimit.${name}`)));

try {
  await openLoop(perSecond, 2, send); // code gets warm, connections open
  const before = await read();
  statuses.clear();
  latenciesMs.length = 0;
  await openLoop(perSecond, seconds, send);
  const after = await read();
  latenciesMs.sort((a, b) => a - b);
  const at = (part: number): string =>
    (latenciesMs[Math.floor((latenciesMs.length - 1) * part)] ?? 0).toFixed(1);
  console.log(`${perSecond} requests a second for ${seconds} s through Envoy, time-out ${TIMEOUT}`);
  console.log('statuses', Object.fromEntries(statuses));
  console.log(
    'Envoy',
    Object.fromEntries(NAMES.map((n, i) => [n, (after[i] ?? 0) - (before[i] ?? 0)])),
  );
  console.log(`whole request: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, p99.9 ${at(0.999)} ms`);
} finally {
  agent.destroy();
  await envoy.stop();
  await weir.stop();
  await ownRedis?.stop();
  app.close();
}
