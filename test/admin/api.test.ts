import { expect } from 'chai';
import type { ExplainedRequest } from '../../src/admin/explanation.js';
import type { RuleView, Status } from '../../src/admin/views.js';
import { post, startAdmin, type AdminFixture } from '../support/admin-fixture.js';

const YAML = `
domain: shop
descriptors:
  - key: endpoint
    value: /pay
    rate_limit: { unit: second, requests_per_unit: 100 }
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: user
    value: vip*
    rate_limit: { unlimited: true }
  - key: user
    rate_limit: { algorithm: token_bucket, unit: second, requests_per_unit: 10, burst: 50 }
  - key: api_key
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: trial
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: blocked
    rate_limit: { unit: hour, requests_per_unit: 0 }
`;

// 2025-06-15 15:06:40 UTC, 20 s before a minute's end.
const START_MS = 1_750_000_000_000;

describe('admin API', () => {
  let admin: AdminFixture;

  beforeEach(async () => {
    admin = await startAdmin({ yaml: YAML, startMs: START_MS });
  });
  afterEach(() => admin.stop());

  async function explain(descriptor: string, domain = 'shop'): Promise<ExplainedRequest> {
    const { status, body } = await post(`${admin.url}/api/v1/explain`, {
      domain,
      descriptors: [descriptor],
    });
    expect(status).to.equal(200);
    return body as ExplainedRequest; // the server's own type
  }

  async function get(path: string): Promise<unknown> {
    const response = await fetch(admin.url + path);
    expect(response.status, path).to.equal(200);
    return response.json();
  }

  it('answers which limit refuses a value, since when, how much and until when', async () => {
    await admin.ask('shop', 'endpoint=/pay,user=42', 6);
    admin.pass(3000);
    await admin.ask('shop', 'endpoint=/pay,user=42', 2);
    admin.pass(1000);
    const explained = await explain('endpoint=/pay,user=42');
    expect(explained.allowed).to.equal(false);
    expect(explained.descriptors[0]).to.deep.include({
      descriptor: 'endpoint=/pay,user=42',
      rule: {
        path: 'endpoint=/pay.user',
        file: 'shop.yaml',
        line: 8,
        column: 9,
        unlimited: false,
        shadow: false,
        quota: false,
      },
      refuses: true,
      verdict:
        'Refused now: `endpoint=/pay,user=42` has 5 of 5 used (5 per minute). Refused 3 times by this ' +
        'instance in 4 s. Free again in 16 s.',
    });
    expect(explained.descriptors[0]?.counters).to.deep.equal([
      {
        key: 'f60|shop|endpoint=/pay|user=42',
        id: 'fwa6pXiGxh',
        name: '',
        limit: '5 per minute',
        algorithm: 'fixed_window',
        windowSeconds: 60,
        capacity: 5,
        used: 5,
        remaining: 0,
        role: 'enforced',
        source: 'store',
        fits: false,
        freeAtMs: START_MS + 20_000,
        resetAtMs: START_MS + 20_000,
        refused: { sinceMs: START_MS, lastMs: START_MS + 3000, count: 3 },
      },
    ]);
  });

  it('says why each other rule does not match', async () => {
    const { rules } = (await explain('user=vip7')).descriptors[0] ?? { rules: [] };
    expect(rules.map(({ path, line, matched }) => ({ path, line, matched }))).to.deep.equal([
      { path: 'endpoint=/pay', line: 4, matched: false },
      { path: 'endpoint=/pay.user', line: 8, matched: false },
      { path: 'user=vip*', line: 10, matched: true },
      { path: 'user', line: 13, matched: false },
      { path: 'api_key', line: 15, matched: false },
      { path: 'trial', line: 17, matched: false },
      { path: 'blocked', line: 20, matched: false },
    ]);
    expect(rules[0]?.reason).to.equal("the first entry's key is `user`, not `endpoint`");
  });

  it('takes nothing by looking', async () => {
    for (let i = 0; i < 5; i++) await explain('endpoint=/pay,user=7');
    expect((await explain('endpoint=/pay,user=7')).descriptors[0]?.counters[0]?.used).to.equal(0);
  });

  const verdicts: readonly [descriptor: string, verdict: string][] = [
    ['user=vip7', 'Not limited: the rule says `unlimited`.'],
    ['nobody=1', 'Not limited: no rule matches.'],
    ['user=9', 'Would pass: `user=9` has 0 of 50 used (10 per second, burst 50), 50 left.'],
    ['blocked=1', 'Refused now: `blocked=1` has 0 of 0 used (0 per hour). Never: the limit is 0.'],
  ];
  for (const [descriptor, verdict] of verdicts) {
    it(`says of ${descriptor}: ${verdict}`, async () => {
      expect((await explain(descriptor)).descriptors[0]?.verdict).to.equal(verdict);
    });
  }

  it('says that shadow mode lets pass what is over the limit', async () => {
    await admin.ask('shop', 'trial=1', 2);
    const explained = await explain('trial=1');
    expect(explained.allowed).to.equal(true);
    expect(explained.descriptors[0]?.verdict).to.match(/^Over the limit, but in shadow mode: /);
  });

  it('names the domains when one is misspelt', async () => {
    const explained = await explain('user=1', 'shpo');
    expect(explained).to.deep.include({ domainKnown: false, domains: ['shop'] });
    expect(explained.descriptors[0]?.verdict).to.match(/no configuration has a domain `shpo`/);
  });

  it('explains all descriptors that the native API makes of an identity', async () => {
    const { body } = await post(`${admin.url}/api/v1/explain`, {
      domain: 'shop',
      identity: { endpoint: '/pay', user: '42', ip: '::ffff:10.0.0.1' },
    });
    const { descriptors } = body as ExplainedRequest; // the server's own type
    expect(descriptors.map(({ descriptor, rule }) => [descriptor, rule?.path])).to.deep.equal([
      ['endpoint=/pay', 'endpoint=/pay'],
      ['user=42', 'user'],
      ['ip=10.0.0.1', undefined],
      ['client=user:42', undefined],
      ['endpoint=/pay,user=42', 'endpoint=/pay.user'],
      ['endpoint=/pay,ip=10.0.0.1', undefined],
      ['endpoint=/pay,client=user:42', undefined],
    ]);
  });

  it('shows a secret value nowhere', async () => {
    await admin.ask('shop', 'api_key=hunter2-secret', 4);
    const explained = await explain('api_key=hunter2-secret');
    const top = await get('/api/v1/top?domain=shop&rule=api_key');
    const near = await explain('api_key=hunter2-secret,user=1');
    await post(`${admin.url}/api/v1/reset`, {
      domain: 'shop',
      descriptors: ['api_key=hunter2-secret'],
    });
    expect(explained.descriptors[0]?.verdict).to.match(
      /^Refused now: `api_key#[\w-]{22}` has 2 of 2/,
    );
    expect(JSON.stringify([explained, top, near, admin.logged])).not.to.contain('hunter2');
  });

  it('resets the counter of an exact descriptor, and says so in the log', async () => {
    await admin.ask('shop', 'endpoint=/pay,user=42', 6);
    await admin.ask('shop', 'endpoint=/pay,user=43', 6);
    const { status, body } = await post(`${admin.url}/api/v1/reset`, {
      domain: 'shop',
      descriptors: ['endpoint=/pay,user=42'],
    });
    expect(status).to.equal(200);
    expect(body).to.deep.include({ reset: ['f60|shop|endpoint=/pay|user=42'], existed: 1 });
    expect((await admin.ask('shop', 'endpoint=/pay,user=42')).allowed).to.equal(true);
    expect((await admin.ask('shop', 'endpoint=/pay,user=43')).allowed).to.equal(false);
    expect(admin.logged).to.deep.equal([
      {
        fields: {
          domain: 'shop',
          descriptor: 'endpoint=/pay,user=42',
          rule: 'endpoint=/pay.user',
          existed: 1,
          from: '127.0.0.1',
        },
        message: 'counters were reset by hand',
      },
    ]);
  });

  it('resets nothing without exactly one descriptor', async () => {
    for (const body of [
      { domain: 'shop', identity: { user: '42' } },
      { domain: 'shop', descriptors: ['user=1', 'user=2'] },
      { domain: 'shop', descriptors: [] },
      { domain: 'shop' },
      { descriptors: ['user=1'] },
      [],
    ]) {
      const { status } = await post(`${admin.url}/api/v1/reset`, body);
      expect(status, JSON.stringify(body)).to.equal(400);
    }
    await admin.ask('shop', 'endpoint=/pay,user=42', 5);
    const wildcard = await post(`${admin.url}/api/v1/reset`, {
      domain: 'shop',
      descriptors: ['endpoint=/pay,user=*'],
    });
    expect(wildcard.body).to.deep.include({ reset: ['f60|shop|endpoint=/pay|user=*'] });
    expect((await admin.ask('shop', 'endpoint=/pay,user=42')).allowed).to.equal(false);
  });

  it('looks no more entries up than a decision may have', async () => {
    const entries = Array.from({ length: 33 }, () => ({ key: 'api_key', value: 'a' }));
    const attributes = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`a${i}`, 'x']));
    for (const question of [
      { descriptors: [entries] },
      { descriptors: ['api_key=a,'.repeat(32) + 'user=1'] },
      { identity: { attributes } },
    ]) {
      const { status } = await post(`${admin.url}/api/v1/explain`, { domain: 'shop', ...question });
      expect(status).to.equal(400);
    }
    const { status } = await post(`${admin.url}/api/v1/explain`, {
      domain: 'shop',
      descriptors: [entries.slice(1)],
    });
    expect(status).to.equal(200);
  });

  it('lists each rule with its place, its limit and what it does now', async () => {
    await admin.ask('shop', 'endpoint=/pay,user=42', 20);
    admin.pass(1000);
    const { rules } = (await get('/api/v1/rules')) as { rules: RuleView[] }; // the server's own type
    expect(rules.map(({ path, limits }) => [path, ...limits])).to.deep.equal([
      ['endpoint=/pay', '100 per second'],
      ['endpoint=/pay.user', '5 per minute'],
      ['user=vip*'],
      ['user', '10 per second, burst 50'],
      ['api_key', '2 per hour'],
      ['trial', '1 per hour'],
      ['blocked', '0 per hour'],
    ]);
    expect(rules[1]).to.deep.include({ file: 'shop.yaml', line: 8, hidden: false });
    expect(rules[1]?.activity).to.include({ rejectRatio: 0.75 });
    expect(rules[4]?.hidden).to.equal(true);
  });

  it('names the heaviest values, over all rules and of one', async () => {
    await admin.ask('shop', 'endpoint=/pay,user=42', 20);
    await admin.ask('shop', 'user=7', 3);
    const all = await get('/api/v1/top?by=rejected');
    expect(all).to.deep.include({
      values: [
        {
          domain: 'shop',
          path: 'endpoint=/pay.user',
          value: 'endpoint=/pay, user=42',
          id: 'fwa6pXiGxh',
          requests: 20,
          rejected: 15,
          error: 0,
        },
      ],
    });
    const one = await get('/api/v1/top?domain=shop&rule=endpoint%3D%2Fpay.user');
    expect(one).to.have.deep.nested.property('refusals[0]', {
      value: 'endpoint=/pay, user=42',
      id: 'fwa6pXiGxh',
      limit: '5 per minute',
      sinceMs: START_MS,
      lastMs: START_MS,
      count: 15,
      untilMs: START_MS + 20_000,
    });
    expect((await fetch(`${admin.url}/api/v1/top?domain=shop&rule=none`)).status).to.equal(404);
  });

  it('tells what is loaded and how the store is', async () => {
    const status = (await get('/api/v1/status')) as Status; // the server's own type
    expect(status.config).to.deep.equal({
      generation: 1,
      loadedAtMs: START_MS,
      files: ['shop.yaml'],
      domains: ['shop'],
      rules: 7,
    });
    expect(status.stores).to.deep.equal([{ name: 'memory', kind: 'memory', breakerOpen: false }]);
  });

  it('dumps the rules under the path that the usual service has', async () => {
    const text = await (await fetch(`${admin.url}/rlconfig`)).text();
    expect(text.split('\n').slice(0, 4)).to.deep.equal([
      'shop.endpoint=/pay: unit=SECOND requests_per_unit=100  # shop.yaml:4',
      'shop.endpoint=/pay.user: unit=MINUTE requests_per_unit=5  # shop.yaml:8',
      'shop.user=vip*: unlimited  # shop.yaml:10',
      'shop.user: unit=SECOND requests_per_unit=10 (token_bucket: 10 per second, burst 50)  # shop.yaml:13',
    ]);
  });

  it('takes a CPU profile, one at a time', async () => {
    const first = fetch(`${admin.url}/debug/pprof/profile?seconds=0.2`);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect((await fetch(`${admin.url}/debug/pprof/profile?seconds=0.2`)).status).to.equal(409);
    const profile = (await (await first).json()) as object; // parsed to see its fields only
    expect(profile).to.include.keys('nodes', 'samples', 'timeDeltas');
    expect((await fetch(`${admin.url}/debug/pprof/profile?seconds=31`)).status).to.equal(400);
    expect((await fetch(`${admin.url}/debug/pprof/heap`)).status).to.equal(200);
  });
});
