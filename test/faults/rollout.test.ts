import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { findEnvoy, startEnvoy } from '../support/envoy.js';
import type { EnvoyProcess } from '../support/envoy.js';
import { freePort, RedisServer } from '../support/redis-server.js';
import { startWeir } from '../support/weir-process.js';
import type { WeirProcess } from '../support/weir-process.js';

const LIMIT = 1_000_000;
const RULES = `
domain: edge
descriptors:
  - { key: endpoint, value: /count, rate_limit: { unit: year, requests_per_unit: ${LIMIT} } }
`;

/** What a busy machine cannot exceed: lost calls are looked for here, not late ones. */
const PATIENT = '5s';
/** Longer than Envoy, as it is shipped, takes to notice that a replica drains. */
const DRAIN_DELAY = '5s';

const binary = findEnvoy();
if (binary === undefined && process.env['CI'] !== 'true') {
  console.error('*** test/faults/rollout is skipped: no Envoy (make tools installs it)');
}

describe('a roll-out of two replicas behind one Envoy', function () {
  this.timeout(120_000);
  let app: Server;
  let redis: RedisServer;
  let replicas: WeirProcess[];
  let envoy: EnvoyProcess;
  let env: Record<string, string>;
  let ports: number[];

  const start = (port: number): Promise<WeirProcess> =>
    startWeir({ files: { 'edge.yaml': RULES }, env: { ...env, GRPC_PORT: String(port) } });

  before(async function () {
    if (binary === undefined) {
      if (process.env['CI'] === 'true') throw new Error('Envoy is missing: make tools');
      this.skip();
    }
    app = createServer((_request, response) => response.end('hello')).listen(0, '127.0.0.1');
    await once(app, 'listening');
    const { port: appPort } = app.address() as AddressInfo; // bound to TCP
    redis = await RedisServer.start();
    env = {
      REDIS_URL: `127.0.0.1:${redis.port}`,
      DRAIN_DELAY,
      DECISION_TIMEOUT: '5s',
      DEFAULT_ON_STORE_ERROR: 'deny',
    };
    ports = [await freePort(), await freePort()];
    replicas = await Promise.all(ports.map(start));
    envoy = await startEnvoy({ binary, weirPort: ports, appPort, timeout: PATIENT });
  });

  after(async () => {
    // What `before` did not reach is undefined here, whatever the types say.
    await (envoy as EnvoyProcess | undefined)?.stop();
    for (const replica of (replicas as WeirProcess[] | undefined) ?? []) {
      replica.signal('SIGKILL');
      await replica.stop();
    }
    await (redis as RedisServer | undefined)?.stop();
    (app as Server | undefined)?.close();
  });

  it('fails no call and loses no hit', async () => {
    const load = { ended: false };
    let sent = 0;
    const refused: number[] = [];
    const loading = (async () => {
      const asked: Promise<void>[] = [];
      while (!load.ended) {
        sent++;
        asked.push(
          fetch(`${envoy.url}/count`).then(async (response) => {
            await response.text();
            if (response.status !== 200) refused.push(response.status);
          }),
        );
        await sleep(10);
      }
      await Promise.all(asked);
    })();
    for (const [i, port] of ports.entries()) {
      await sleep(1000);
      expect(await replicas[i]?.stop()).to.equal(0);
      replicas[i] = await start(port);
      // Until Envoy has found it well again.
      await sleep(3000);
    }
    load.ended = true;
    await loading;
    expect(sent).to.be.greaterThan(500);
    expect(refused).to.deep.equal([]);
    expect(await envoy.counter('cluster.app.ratelimit.error')).to.equal(0);
    expect(await envoy.counter('cluster.app.ratelimit.failure_mode_allowed')).to.equal(0);
    expect(await envoy.counter('cluster.app.ratelimit.ok')).to.equal(sent);
    const last = await fetch(`${envoy.url}/count`);
    expect(Number(last.headers.get('x-ratelimit-remaining'))).to.equal(LIMIT - sent - 1);
  });
});
