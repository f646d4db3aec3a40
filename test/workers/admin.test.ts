import { expect } from 'chai';
import type { ExplainedRequest } from '../../src/admin/explanation.js';
import type { RuleView } from '../../src/admin/views.js';
import { post } from '../support/admin-fixture.js';
import { freePort, RedisServer } from '../support/redis-server.js';
import { startWeir, type WeirProcess } from '../support/weir-process.js';

const RULES = `
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 5 }
`;

describe('the admin page of several workers', function () {
  this.timeout(30_000);
  let redis: RedisServer;
  let weir: WeirProcess;
  let admin: string;

  before(async () => {
    redis = await RedisServer.start();
    const port = await freePort();
    weir = await startWeir({
      files: { 'shop.yaml': RULES },
      env: { WORKERS: '2', REDIS_URL: `127.0.0.1:${redis.port}`, DEBUG_PORT: String(port) },
    });
    admin = `http://127.0.0.1:${port}`;
  });
  after(async () => {
    await weir.stop();
    await redis.stop();
  });

  /** Each on a connection of its own, so that both workers get some. */
  async function ask(user: string, times: number): Promise<void> {
    const body = JSON.stringify({
      domain: 'shop',
      descriptors: [{ entries: [{ key: 'user', value: user }] }],
    });
    for (let i = 0; i < times; i++) {
      const headers = { connection: 'close' };
      const url = `http://127.0.0.1:${weir.httpPort}/json`;
      await (await fetch(url, { method: 'POST', body, headers })).arrayBuffer();
    }
  }

  async function get<T>(path: string): Promise<T> {
    const response = await fetch(admin + path, { headers: { connection: 'close' } });
    return (await response.json()) as T; // the server's own types
  }

  it('tells the same, whichever worker answers', async () => {
    await ask('42', 12);
    for (let i = 0; i < 6; i++) {
      const { rules } = await get<{ rules: RuleView[] }>('/api/v1/rules');
      expect(rules[0]?.activity.totals).to.include({ allowed: 5, rejected: 7 });
      const { values } = await get<{ values: object[] }>('/api/v1/top?by=rejected');
      expect(values[0]).to.include({ value: 'user=42', requests: 12, rejected: 7 });
      const { body } = await post(
        `${admin}/api/v1/explain`,
        { domain: 'shop', descriptors: ['user=42'] },
        { connection: 'close' },
      );
      const [counter] = (body as ExplainedRequest).descriptors[0]?.counters ?? []; // its own type
      expect(counter?.refused?.count).to.equal(7);
    }
  });

  it('resets what each of them remembers', async () => {
    await ask('43', 12);
    await post(`${admin}/api/v1/reset`, { domain: 'shop', descriptors: ['user=43'] });
    const before = await get<{ rules: RuleView[] }>('/api/v1/rules');
    await ask('43', 4);
    const after = await get<{ rules: RuleView[] }>('/api/v1/rules');
    const allowed = (found: { rules: RuleView[] }): number =>
      found.rules[0]?.activity.totals.allowed ?? NaN;
    expect(allowed(after) - allowed(before)).to.equal(4);
  });
});
