import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { createApp, type App } from '../src/app.js';
import { createLog } from '../src/log/log.js';
import { parseSettings } from '../src/settings/settings.js';
import { freePort } from './support/redis-server.js';

const RULES = `domain: shop
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 2 } }
`;

describe('the service as a whole', () => {
  let root: string;
  let app: App;
  let http: string;
  let admin: string;
  let printed: string;

  async function start(env: Readonly<Record<string, string>> = {}, rules = RULES): Promise<void> {
    writeFileSync(join(root, 'config', 'shop.yaml'), rules);
    const [grpcPort, httpPort, adminPort] = [await freePort(), await freePort(), await freePort()];
    const { settings } = parseSettings({
      RUNTIME_ROOT: root,
      HOST: '127.0.0.1',
      GRPC_HOST: '127.0.0.1',
      GRPC_PORT: String(grpcPort),
      PORT: String(httpPort),
      DEBUG_PORT: String(adminPort),
      ...env,
    });
    printed = '';
    const log = createLog(
      { level: 'warn', format: 'json' },
      { write: (line) => (printed += line) },
    );
    app = createApp(settings, '1.2.3', log);
    await app.start();
    http = `http://127.0.0.1:${String(httpPort)}`;
    admin = `http://127.0.0.1:${String(adminPort)}`;
  }

  const ask = async (user: string): Promise<number> => {
    const descriptors = [{ entries: [{ key: 'user', value: user }] }];
    const body = JSON.stringify({ domain: 'shop', descriptors });
    return (await fetch(`${http}/json`, { method: 'POST', body })).status;
  };
  const text = async (url: string): Promise<string> => (await fetch(url)).text();

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'weir-app-'));
    mkdirSync(join(root, 'config'));
  });
  afterEach(async () => {
    await app.stop(true);
    rmSync(root, { recursive: true, force: true });
  });

  it('decides, counts what it decided, and explains it', async () => {
    await start();
    expect([await ask('a'), await ask('a'), await ask('a'), await ask('b')]).to.deep.equal([
      200, 200, 429, 200,
    ]);
    const metrics = await text(`${http}/metrics`);
    expect(metrics).to.contain(
      'weir_decisions_total{domain="shop",rule="user",outcome="rejected"} 1',
    );
    const explained = await fetch(`${admin}/api/v1/explain`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ domain: 'shop', descriptors: ['user=a'] }),
    });
    expect(await explained.text()).to.contain('f3600|shop|user=a');
    expect(await text(`${admin}/rlconfig`)).to.contain('user');
  });

  it('says where it listens and where it counts, also at the level warn', async () => {
    await start();
    expect(printed).to.contain('weir listens').and.to.contain(http);
    expect(printed).to.contain('counters are in the memory of this process');
  });

  it('is not ready with rules that do not load, and says what is wrong with them', async () => {
    await start({}, 'domain: shop\nrules: []\n');
    const ready = await fetch(`${http}/readyz`);
    expect([ready.status, await ready.text()]).to.deep.equal([503, 'no configuration is loaded']);
    expect(await ask('a')).to.equal(503);
    expect(app.configProblems).to.deep.equal(['shop.yaml:2:1: unknown key `rules`']);
  });

  it('serves without rules when told to, and limits nothing then', async () => {
    await start({ FORCE_START_WITHOUT_INITIAL_CONFIG: 'true' }, 'domain: shop\nrules: []\n');
    expect((await fetch(`${http}/readyz`)).status).to.equal(200);
    expect(await ask('a')).to.equal(200);
  });

  it('is not ready without a domain when one is wanted', async () => {
    await start({ HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED: 'true' });
    expect((await fetch(`${http}/healthcheck`)).status).to.equal(200);
    await app.stop(true);
    rmSync(join(root, 'config'), { recursive: true });
    mkdirSync(join(root, 'config'));
    await start({ HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED: 'true' }, 'domain: ""\n');
    expect((await fetch(`${http}/healthcheck`)).status).to.equal(500);
  });

  it('starts, and answers by policy, where no Redis is', async () => {
    const nobody = String(await freePort());
    await start({
      REDIS_URL: `127.0.0.1:${nobody}`,
      DEFAULT_ON_STORE_ERROR: 'deny',
      REDIS_HEALTH_CHECK_ACTIVE_CONNECTION: 'true',
    });
    expect(await text(`${http}/readyz`)).to.equal('no connection to Redis');
    expect(await ask('a')).to.equal(429);
    expect(await text(`${http}/metrics`)).to.contain('outcome="policy_denied"} 1');
  });

  it('closes every port when it stops', async () => {
    await start({
      USE_PROMETHEUS: 'true',
      PROMETHEUS_ADDR: `127.0.0.1:${String(await freePort())}`,
    });
    await app.stop(true);
    for (const url of [`${http}/healthz`, `${admin}/healthz`]) {
      const answered = await fetch(url).then(
        () => true,
        () => false,
      );
      expect(answered).to.equal(false);
    }
  });
});
