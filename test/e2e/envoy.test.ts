import { expect } from 'chai';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { findEnvoy, startEnvoy } from '../support/envoy.js';
import type { EnvoyProcess } from '../support/envoy.js';
import { startWeir } from '../support/weir-process.js';
import type { WeirProcess } from '../support/weir-process.js';

/** Three a user on each path, by one algorithm a path; the windows are long, so that none ends in a test. */
const RULES = `
domain: edge
descriptors:
  - key: endpoint
    value: /fixed
    descriptors:
      - key: user
        rate_limit: { unit: day, requests_per_unit: 3 }
  - key: endpoint
    value: /sliding
    descriptors:
      - key: user
        rate_limit: { algorithm: sliding_window, unit: hour, requests_per_unit: 3 }
  - key: endpoint
    value: /counter
    descriptors:
      - key: user
        rate_limit: { algorithm: sliding_window_counter, unit: hour, requests_per_unit: 3 }
  - key: endpoint
    value: /bucket
    descriptors:
      - key: user
        rate_limit: { algorithm: token_bucket, unit: hour, requests_per_unit: 3 }
  - key: endpoint
    value: /whole
    rate_limit: { unit: day, requests_per_unit: 4 }
    descriptors:
      - key: user
        rate_limit: { unit: day, requests_per_unit: 3 }
`;

/** What a busy machine cannot exceed; how Weir does within Envoy's 20 ms is measured in bench/. */
const PATIENT = '5s';

const binary = findEnvoy();
if (binary === undefined && process.env['CI'] !== 'true') {
  console.error('*** test/e2e/envoy is skipped: no Envoy (make tools installs it)');
}

describe('Envoy with Weir behind it', function () {
  this.timeout(60_000);
  let app: Server;
  let weir: WeirProcess;
  let envoy: EnvoyProcess;
  let served = 0;

  before(async function () {
    if (binary === undefined) {
      if (process.env['CI'] === 'true') throw new Error('Envoy is missing: make tools');
      this.skip();
    }
    app = createServer((_request, response) => {
      served++;
      response.end('hello');
    }).listen(0, '127.0.0.1');
    await once(app, 'listening');
    const { port: appPort } = app.address() as AddressInfo; // bound to TCP
    weir = await startWeir({ files: { 'edge.yaml': RULES } });
    envoy = await startEnvoy({ binary, weirPort: weir.grpcPort, appPort, timeout: PATIENT });
  });

  after(async () => {
    // What `before` did not reach is undefined here, whatever the types say.
    await (envoy as EnvoyProcess | undefined)?.stop();
    await (weir as WeirProcess | undefined)?.stop();
    (app as Server | undefined)?.close();
  });

  function get(path: string, user?: string): Promise<Response> {
    return fetch(envoy.url + path, user === undefined ? {} : { headers: { 'x-user': user } });
  }

  for (const path of ['/fixed', '/sliding', '/counter', '/bucket']) {
    it(`passes three requests to ${path} and refuses the fourth with 429`, async () => {
      const servedBefore = served;
      const remaining: (string | null)[] = [];
      for (let i = 0; i < 3; i++) {
        const passed = await get(path, 'ann');
        expect(passed.status).to.equal(200);
        expect(await passed.text()).to.equal('hello');
        expect(passed.headers.get('x-ratelimit-limit')).to.match(/^3, 3;w=\d+/);
        remaining.push(passed.headers.get('x-ratelimit-remaining'));
      }
      expect(remaining).to.deep.equal(['2', '1', '0']);

      const refused = await get(path, 'ann');
      expect(refused.status).to.equal(429);
      expect(refused.headers.get('x-envoy-ratelimited')).to.equal('true');
      expect(refused.headers.get('x-ratelimit-remaining')).to.equal('0');
      expect(Number(refused.headers.get('x-ratelimit-reset'))).to.be.within(1, 86_400);
      expect(Number(refused.headers.get('retry-after'))).to.be.within(1, 86_400);
      expect(served - servedBefore).to.equal(3);
    });
  }

  it('counts each user apart', async () => {
    for (let i = 0; i < 3; i++) await get('/fixed', 'bob');
    expect((await get('/fixed', 'bob')).status).to.equal(429);
    expect((await get('/fixed', 'carol')).status).to.equal(200);
  });

  it('counts a path as one, whatever its query and its doubled slashes', async () => {
    for (const path of ['/fixed?a=1', '//fixed', '/fixed?b=2']) {
      expect((await get(path, 'dave')).status).to.equal(200);
    }
    expect((await get('/fixed', 'dave')).status).to.equal(429);
  });

  it('limits a path as a whole beside each of its users', async () => {
    for (let i = 0; i < 3; i++) expect((await get('/whole', 'erin')).status).to.equal(200);
    // A refused request costs the path nothing, so one is left for another user.
    expect((await get('/whole', 'erin')).status).to.equal(429);
    expect((await get('/whole', 'frank')).status).to.equal(200);
    expect((await get('/whole', 'grace')).status).to.equal(429);
  });

  it('lets pass what no rule matches, without headers', async () => {
    const response = await get('/elsewhere', 'ann');
    expect(response.status).to.equal(200);
    expect(response.headers.get('x-ratelimit-limit')).to.equal(null);
  });

  it('makes Envoy count decisions, and no error', async () => {
    await get('/fixed', 'heidi');
    expect(await envoy.counter('cluster.app.ratelimit.ok')).to.be.greaterThan(0);
    expect(await envoy.counter('cluster.app.ratelimit.error')).to.equal(0);
    expect(await envoy.counter('cluster.app.ratelimit.failure_mode_allowed')).to.equal(0);
  });
});
