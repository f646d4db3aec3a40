import { spawnSync } from 'node:child_process';
import { expect } from 'chai';
import { loadConfig } from '../../src/config/load.js';
import { textOf } from '../../src/metrics/exposition.js';
import { Metrics, type MetricsOptions } from '../../src/metrics/metrics.js';
import type {
  Decision,
  Descriptor,
  LimitDecision,
  Mode,
  Role,
  Snapshot,
  Source,
} from '../../src/model.js';
import { compileRules } from '../../src/rules/rules.js';
import { entriesOf, limitOf } from '../support/decided.js';

function snapshotOf(yaml: string, generation = 1): Snapshot {
  return loadConfig([{ name: 'a.yaml', text: yaml }], {
    mergeDomains: false,
    defaultOnStoreError: 'allow',
    generation,
    nowMs: 1_700_000_000_000,
  }).snapshot;
}

/** 20,000 rules: `path=FIRST`, and so on. */
function largeSnapshot(generation: number, first: number): Snapshot {
  const [pattern] = shopRule.rules;
  if (pattern === undefined) throw new Error('no rule');
  const rules = Array.from({ length: 20_000 }, (_, index) => ({
    ...pattern,
    value: String(first + index),
    children: [],
  }));
  return { ...shopRule, generation, ...compileRules([{ name: 'shop', rules }]) };
}

const shopRule = snapshotOf(
  'domain: shop\ndescriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 9}}]\n',
);

interface Part {
  readonly entries: string;
  /** One per limit of the rule, the same for all by default. */
  readonly fits?: boolean | readonly boolean[];
  readonly taken?: boolean;
  readonly remaining?: number;
  readonly hits?: number;
  readonly role?: Role;
  readonly mode?: Mode;
  readonly source?: Source;
  readonly override?: boolean;
  readonly replaced?: boolean;
}

function decide(
  snapshot: Snapshot,
  allowed: boolean,
  parts: readonly Part[],
  domain = 'shop',
): Decision {
  const descriptors = parts.map((part) => {
    const descriptor: Descriptor = {
      entries: entriesOf(part.entries),
      override: part.override === true ? { requests: 4, unit: 'hour' } : undefined,
      hits: undefined,
      giveBack: false,
    };
    const rule = snapshot.match(domain, descriptor.entries);
    const limits = part.override === true ? [limitOf(4, 'hour')] : (rule?.limits ?? []);
    const fits = part.fits ?? true;
    return {
      descriptor,
      rule,
      unlimited: rule?.unlimited ?? false,
      overLimit: fits !== true,
      limits: (part.replaced === true ? [] : limits).map((limit, at): LimitDecision => {
        const own = typeof fits === 'boolean' ? fits : (fits[at] ?? true);
        return {
          charge: {
            limit,
            key: `${limit.keyHead}|${domain}|${part.entries}`,
            hits: part.hits ?? 1,
            role: part.role ?? (rule?.shadow === true ? 'shadow' : 'enforced'),
            mode: part.mode ?? 'take',
          },
          source: part.source ?? 'store',
          outcome: {
            fits: own,
            taken: part.taken ?? (own && allowed),
            remaining: part.remaining ?? (own ? limit.requests : 0),
            resetUs: 0,
            retryAfterUs: 0,
          },
        };
      }),
    };
  });
  return {
    request: {
      domain,
      descriptors: descriptors.map((part) => part.descriptor),
      hits: 1,
      mode: undefined,
    },
    snapshot,
    allowed,
    degraded: parts.some((part) => part.source !== undefined && part.source !== 'store'),
    domainKnown: snapshot.domains.has(domain),
    descriptors,
    nowUs: 0,
  };
}

const SHOP = `
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: ip
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: dry
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: pair
    rate_limits:
      - { unit: second, requests_per_unit: 10 }
      - { unit: hour, requests_per_unit: 100 }
  - key: open
    rate_limit: { unlimited: true }
  - key: parent
    descriptors:
      - key: child
        value: a
        rate_limit: { unit: hour, requests_per_unit: 10 }
`;

function create(more: Partial<MetricsOptions> = {}): Metrics {
  return new Metrics({
    version: '1.2.3',
    store: 'memory',
    nearLimitRatio: 0.8,
    detailedMaxSeries: 500,
    nowMs: () => 1_700_000_000_000,
    processMetrics: false,
    ...more,
  });
}

/** The samples of one metric that are not 0, by labels. */
async function read(metrics: Metrics, name: string): Promise<Record<string, number>> {
  const body = textOf(await metrics.exposition(undefined));
  const found: Record<string, number> = {};
  for (const line of body.split('\n')) {
    const [, own, labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (own === name && Number(value) !== 0) found[labels] = Number(value);
  }
  return found;
}

async function outcomes(metrics: Metrics, path: string): Promise<Record<string, number>> {
  const all = await read(metrics, 'weir_decisions_total');
  const head = `domain="shop",rule="${path}",outcome=`;
  return Object.fromEntries(
    Object.entries(all)
      .filter(([labels]) => labels.startsWith(head))
      .map(([labels, value]) => [labels.slice(head.length + 1, -1), value]),
  );
}

describe('Metrics', () => {
  const shop = snapshotOf(SHOP);
  let metrics: Metrics;

  beforeEach(() => {
    metrics = create();
    metrics.configLoaded(shop);
  });

  it('has every counter of a rule at 0 from the moment it is loaded', async () => {
    const body = textOf(await metrics.exposition(undefined));
    for (const outcome of ['allowed', 'rejected', 'shadow_rejected', 'policy_denied']) {
      expect(body).to.include(
        `weir_decisions_total{domain="shop",rule="user",outcome="${outcome}"} 0\n`,
      );
    }
    expect(body).to.include('weir_unmatched_total{domain="shop"} 0\n');
    expect(body).to.include('weir_redis_errors_total{kind="timeout"} 0\n');
    expect(body).to.not.include('rule="parent",');
  });

  it('keeps what was allowed, over, over in shadow, refused by policy, unmatched and invalid apart', async () => {
    for (let i = 0; i < 100; i++)
      metrics.observeDecision(decide(shop, true, [{ entries: 'user=a' }]));
    for (let i = 0; i < 50; i++) {
      metrics.observeDecision(decide(shop, false, [{ entries: 'user=a', fits: false }]));
    }
    for (let i = 0; i < 20; i++) {
      metrics.observeDecision(decide(shop, true, [{ entries: 'dry=a', fits: false }]));
    }
    for (let i = 0; i < 30; i++) {
      metrics.observeDecision(
        decide(shop, false, [{ entries: 'user=a', fits: false, source: 'deny' }]),
      );
    }
    for (let i = 0; i < 10; i++)
      metrics.observeDecision(decide(shop, true, [{ entries: 'nobody=a' }]));
    for (let i = 0; i < 5; i++) metrics.invalidRequest();

    expect(await outcomes(metrics, 'user')).to.deep.equal({
      allowed: 100,
      rejected: 50,
      policy_denied: 30,
    });
    expect(await outcomes(metrics, 'dry')).to.deep.equal({ shadow_rejected: 20 });
    expect(await read(metrics, 'weir_unmatched_total')).to.deep.equal({ 'domain="shop"': 10 });
    expect(await read(metrics, 'weir_invalid_requests_total')).to.deep.equal({ '': 5 });
    expect(await read(metrics, 'weir_degraded_total')).to.deep.equal({ '': 30 });
    expect((await read(metrics, 'weir_reject_ratio'))['domain="shop",rule="user"']).to.equal(
      50 / 150,
    );
  });

  for (const [what, allowed, part, expected] of [
    ['taken', true, {}, 'allowed'],
    ['let pass with nothing to take', true, { taken: false }, 'allowed'],
    ['recorded while another refused', false, { taken: true }, 'allowed'],
    ['left untaken while another refused', false, {}, 'not_taken'],
    ['over its limit', false, { fits: false }, 'rejected'],
    ['recorded though over', false, { fits: false, taken: true, mode: 'record' }, 'rejected'],
    ['a quota with room elsewhere', true, { fits: false, role: 'quota' }, 'shadow_rejected'],
    ['the last quota', false, { fits: false, role: 'quota' }, 'rejected'],
    ['over under SHADOW_MODE', true, { fits: false, role: 'shadow' }, 'shadow_rejected'],
    ['let pass by policy', true, { source: 'allow' }, 'policy_allowed'],
    ['refused by policy', false, { source: 'deny', fits: false }, 'policy_denied'],
    ['let pass locally', true, { source: 'local' }, 'policy_local_allowed'],
    ['refused locally', false, { source: 'local', fits: false }, 'policy_local_rejected'],
    [
      'in shadow, by policy',
      true,
      { source: 'deny', fits: false, role: 'shadow' },
      'policy_allowed',
    ],
  ] as const) {
    it(`counts a request ${what} as ${expected}`, async () => {
      metrics.observeDecision(decide(shop, allowed, [{ entries: 'user=a', ...part }]));
      expect(await outcomes(metrics, 'user')).to.deep.equal({ [expected]: 1 });
    });
  }

  it('tells the rule that refused from one that would have let pass', async () => {
    const parts = [{ entries: 'user=a', fits: false }, { entries: 'ip=a' }];
    metrics.observeDecision(decide(shop, false, parts));
    expect(await outcomes(metrics, 'user')).to.deep.equal({ rejected: 1 });
    expect(await outcomes(metrics, 'ip')).to.deep.equal({ not_taken: 1 });
    expect(await read(metrics, 'weir_reject_ratio')).to.deep.equal({
      'domain="shop",rule="user"': 1,
    });
  });

  it('counts a rule once a request, however many limits and descriptors it has there', async () => {
    metrics.observeDecision(decide(shop, false, [{ entries: 'pair=a', fits: [true, false] }]));
    metrics.observeDecision(
      decide(shop, false, [{ entries: 'user=a' }, { entries: 'user=b', fits: false }]),
    );
    expect(await outcomes(metrics, 'pair')).to.deep.equal({ rejected: 1 });
    expect(await outcomes(metrics, 'user')).to.deep.equal({ rejected: 1 });
  });

  it('counts neither looks, nor give-backs, nor replaced rules', async () => {
    metrics.observeDecision(decide(shop, true, [{ entries: 'user=a', mode: 'peek', hits: 0 }]));
    metrics.observeDecision(decide(shop, true, [{ entries: 'user=a', mode: 'give_back' }]));
    metrics.observeDecision(decide(shop, true, [{ entries: 'user=a', replaced: true }]));
    expect(await outcomes(metrics, 'user')).to.deep.equal({});
    expect(await read(metrics, 'weir_unmatched_total')).to.deep.equal({});
  });

  it('counts what is unlimited as allowed', async () => {
    metrics.observeDecision(decide(shop, true, [{ entries: 'open=a' }]));
    expect(await outcomes(metrics, 'open')).to.deep.equal({ allowed: 1 });
  });

  it('counts limits without a rule as override, and unknown domains without their names', async () => {
    metrics.observeDecision(decide(shop, true, [{ entries: 'x=a', override: true }]));
    metrics.observeDecision(decide(shop, true, [{ entries: 'x=a' }], 'elsewhere'));
    expect(await outcomes(metrics, 'override')).to.deep.equal({ allowed: 1 });
    expect(await read(metrics, 'weir_unknown_domain_total')).to.deep.equal({ '': 1 });
    expect(textOf(await metrics.exposition(undefined))).to.not.include('elsewhere');
  });

  for (const [requests, ratio, hits, used, near] of [
    [10, 0.8, 1, 8, 0],
    [10, 0.8, 1, 9, 1],
    [9, 0.5, 6, 6, 2],
    [10, 0.8, 5, 10, 2],
    [10, 0, 3, 3, 3],
    [10, 1, 3, 10, 0],
  ] as const) {
    it(`finds ${near} of ${hits} hits near a limit of ${requests} at ${used} and ratio ${ratio}`, async () => {
      metrics = create({ nearLimitRatio: ratio });
      const snapshot = snapshotOf(
        SHOP.replace('requests_per_unit: 10', `requests_per_unit: ${requests}`),
      );
      const part = { entries: 'user=a', hits, remaining: requests - used };
      metrics.observeDecision(decide(snapshot, true, [part]));
      expect(
        (await read(metrics, 'weir_near_limit_total'))['domain="shop",rule="user"'] ?? 0,
      ).to.equal(near);
    });
  }

  it('goes on counting through a reload, and drops rules that are gone', async () => {
    metrics.observeDecision(decide(shop, true, [{ entries: 'user=a' }, { entries: 'ip=a' }]));
    metrics.observeDecision(decide(shop, true, [{ entries: 'x=a', override: true }]));
    const next = snapshotOf(
      `domain: shop\ndescriptors:\n  - key: new\n    rate_limit: { unit: day, requests_per_unit: 1 }\n` +
        `  - key: user\n    rate_limit: { unit: day, requests_per_unit: 1 }\n`,
      2,
    );
    metrics.observeDecision(decide(next, true, [{ entries: 'user=a' }]));
    // Of a request that began before the reload: its rule is still there, or is not.
    metrics.observeDecision(decide(shop, true, [{ entries: 'user=a' }, { entries: 'ip=a' }]));
    expect(await outcomes(metrics, 'user')).to.deep.equal({ allowed: 3 });
    expect(await outcomes(metrics, 'override')).to.deep.equal({ allowed: 1 });
    const body = textOf(await metrics.exposition(undefined));
    expect(body).to.not.include('rule="ip"');
    expect(body).to.include('rule="new",outcome="allowed"} 0\n');
    expect(await read(metrics, 'weir_config_generation')).to.deep.equal({ '': 2 });
  });

  it('counts rules of a large reload before it has entered them all', async () => {
    const many = create({ compat: { shadowMode: false } });
    const first = largeSnapshot(1, 0);
    many.configLoaded(first);
    many.observeDecision(decide(first, true, [{ entries: 'path=19999' }]));
    many.observeDecision(decide(first, true, [{ entries: 'path=5' }]));
    many.observeDecision(decide(first, true, [{ entries: 'x=a', override: true }]));
    const next = largeSnapshot(2, 10_000);
    many.configLoaded(next);
    // Of requests that began before the reload.
    many.observeDecision(decide(first, true, [{ entries: 'path=19998' }, { entries: 'path=5' }]));
    many.observeDecision(decide(first, true, [{ entries: 'x=b', override: true }]));
    many.observeDecision(
      decide(next, true, [{ entries: 'path=19998' }, { entries: 'path=29999' }]),
    );
    expect(await read(many, 'weir_decisions_total')).to.deep.equal({
      'domain="shop",rule="path=19998",outcome="allowed"': 2,
      'domain="shop",rule="path=19999",outcome="allowed"': 1,
      'domain="shop",rule="path=29999",outcome="allowed"': 1,
      'domain="shop",rule="override",outcome="allowed"': 2,
    });
    expect(await read(many, 'ratelimit_service_rate_limit_total_hits')).to.deep.equal({
      'domain="shop",key1="path_19998"': 2,
      'domain="shop",key1="path_19999"': 1,
      'domain="shop",key1="path_29999"': 1,
      'domain="shop",key1="path_5"': 2,
      'domain="shop",key1="x_a"': 1,
      'domain="shop",key1="x_b"': 1,
    });
    const body = textOf(await many.exposition(undefined));
    expect(body.match(/^weir_active_keys/gm)).to.have.length(20_001);
  });

  it('says whether the newest configuration is in use', async () => {
    expect(await read(metrics, 'weir_config_last_reload_success')).to.deep.equal({ '': 1 });
    metrics.configRejected();
    expect(await read(metrics, 'weir_config_last_reload_success')).to.deep.equal({});
    expect(await read(metrics, 'weir_config_rejected_total')).to.deep.equal({ '': 1 });
    metrics.configLoaded(shop);
    expect(await read(metrics, 'weir_config_last_reload_success')).to.deep.equal({ '': 1 });
  });

  it('has as many series after 20,000 users and limits of their own as before', async () => {
    const seriesOf = async (): Promise<number> =>
      textOf(await metrics.exposition(undefined)).split('\n').length;
    metrics.observeDecision(decide(shop, true, [{ entries: 'x=a', override: true }]));
    const before = await seriesOf();
    for (let i = 0; i < 20_000; i++) {
      metrics.observeDecision(
        decide(shop, true, [{ entries: `user=${i}` }, { entries: `x=${i}`, override: true }]),
      );
    }
    expect(await seriesOf()).to.equal(before);
  });

  it('answers a scrape of 1,000 rules fast', async () => {
    const rules = Array.from(
      { length: 1000 },
      (_, i) =>
        `  - { key: path, value: /v1/path/${i}, rate_limit: { unit: day, requests_per_unit: 9 } }`,
    );
    metrics.configLoaded(snapshotOf(`domain: shop\ndescriptors:\n${rules.join('\n')}\n`, 2));
    let fastestMs = Infinity;
    for (let i = 0; i < 10; i++) {
      const begunMs = performance.now();
      await metrics.exposition(undefined);
      fastestMs = Math.min(fastestMs, performance.now() - begunMs);
    }
    // 3 ms alone; the machine that runs tests may be busy.
    expect(fastestMs).to.be.below(30);
  });

  it('estimates the distinct keys of each rule', async () => {
    for (let i = 0; i < 5000; i++) {
      metrics.observeDecision(decide(shop, true, [{ entries: `user=u${i}` }]));
    }
    const keys = (await read(metrics, 'weir_active_keys'))['domain="shop",rule="user"'];
    expect(keys).to.be.within(4850, 5150);
  });

  describe('by value', () => {
    const detailed = snapshotOf(`
domain: shop
descriptors:
  - key: org
    descriptors:
      - key: job
        detailed_metric: true
        rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: team
    value_to_metric: true
    descriptors:
      - key: job
        rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: token
    detailed_metric: true
    hash_value: true
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: pool
    value: "n*"
    share_threshold: true
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 10 }
`);

    it('adds a series per value of the levels that ask for it', async () => {
      metrics = create();
      metrics.observeDecision(
        decide(detailed, true, [
          { entries: 'org=a,job=b' },
          { entries: 'team=a,job=b' },
          { entries: 'pool=nightly' },
        ]),
      );
      expect(Object.keys(await read(metrics, 'weir_decisions_total'))).to.deep.equal([
        'domain="shop",rule="org.job",value="org=a.job=b",outcome="allowed"',
        'domain="shop",rule="team.job",value="team=a",outcome="allowed"',
        'domain="shop",rule="pool=n*",outcome="allowed"',
      ]);
    });

    it('never shows a secret value', async () => {
      metrics = create();
      metrics.observeDecision(decide(detailed, true, [{ entries: 'token=hush' }]));
      const body = textOf(await metrics.exposition(undefined));
      expect(body).to.include('value="token=');
      expect(body).to.not.include('hush');
    });

    it('lumps values beyond the most together', async () => {
      metrics = create({ detailedMaxSeries: 2 });
      for (let i = 0; i < 10_000; i++) {
        metrics.observeDecision(decide(detailed, true, [{ entries: `org=a,job=${i}` }]));
      }
      expect(await read(metrics, 'weir_decisions_total')).to.deep.equal({
        'domain="shop",rule="org.job",value="org=a.job=0",outcome="allowed"': 1,
        'domain="shop",rule="org.job",value="org=a.job=1",outcome="allowed"': 1,
        'domain="shop",rule="org.job",value="other",outcome="allowed"': 9998,
      });
    });
  });

  it('puts durations into the bucket that holds them, in seconds', async () => {
    for (let i = 0; i < 100; i++) metrics.observeRequest('envoy', 0.0112);
    metrics.observeRequest('envoy', 0.001);
    metrics.observeRequest('envoy', 7);
    const body = textOf(await metrics.exposition(undefined));
    const bucket = (le: string): string =>
      new RegExp(`weir_request_duration_seconds_bucket\\{method="envoy",le="${le}"\\} (\\d+)`).exec(
        body,
      )?.[1] ?? '';
    expect(['0.00075', '0.001', '0.01', '0.015', '1', '\\+Inf'].map(bucket)).to.deep.equal([
      '0',
      '1',
      '1',
      '101',
      '101',
      '102',
    ]);
    expect(body).to.not.include('milliseconds');
  });

  it('has durations in milliseconds too when asked', async () => {
    metrics = create({ alsoMilliseconds: true });
    metrics.observeRequest('json', 0.0112);
    const body = textOf(await metrics.exposition(undefined));
    expect(body).to.include('weir_request_duration_milliseconds_bucket{method="json",le="10"} 0\n');
    expect(body).to.include('weir_request_duration_milliseconds_bucket{method="json",le="15"} 1\n');
    expect(body).to.include('weir_request_duration_milliseconds_sum{method="json"} 11.2\n');
  });

  it('counts what the store tells', async () => {
    metrics.storeFailed('timeout');
    metrics.roundtrip(0.002);
    metrics.batchSent(3);
    metrics.breakerOpen(true);
    metrics.clockSkew(-0.25);
    metrics.scriptReloaded();
    metrics.denyCacheHit();
    metrics.memoryOverflow();
    metrics.undoFailed();
    metrics.evictionSeen(true, 17);
    metrics.deadlineExceeded();
    const body = textOf(await metrics.exposition(undefined));
    for (const line of [
      'weir_redis_errors_total{kind="timeout"} 1',
      'weir_redis_roundtrip_seconds_bucket{le="0.002"} 1',
      'weir_batch_requests_bucket{le="2"} 0',
      'weir_batch_requests_bucket{le="4"} 1',
      'weir_batch_requests_sum 3',
      'weir_breaker_open 1',
      'weir_clock_skew_seconds -0.25',
      'weir_script_reloads_total 1',
      'weir_deny_cache_hits_total 1',
      'weir_memory_overflows_total 1',
      'weir_undo_failures_total 1',
      'weir_redis_eviction_policy_unsafe 1',
      'weir_redis_evicted_keys 17',
      'weir_deadline_exceeded_total 1',
    ]) {
      expect(body).to.include(line + '\n');
    }
  });

  describe('the exposition', () => {
    const odd = snapshotOf(`
domain: "od\\"d"
descriptors:
${['10.0.0.0/8', 'a|b:c', '\\"quoted\\\\', 'two\\nlines', '\u{1f600}', '', 'a\\tb']
  .map(
    (value) => `  - { key: k, value: "${value}", rate_limit: { unit: day, requests_per_unit: 1 } }`,
  )
  .join('\n')}
`);

    it('satisfies promtool, whatever the values', async () => {
      metrics = create({ processMetrics: true });
      metrics.configLoaded(odd);
      const exposition = await metrics.exposition(undefined);
      expect(exposition.contentType).to.equal('text/plain; version=0.0.4; charset=utf-8');
      const checked = spawnSync('promtool', ['check', 'metrics'], {
        input: textOf(exposition),
        encoding: 'utf8',
      });
      expect([checked.status, checked.stderr + checked.stdout]).to.deep.equal([0, '']);
    });

    it('has a series of its own for each rule', async () => {
      metrics = create();
      metrics.configLoaded(odd);
      const body = textOf(await metrics.exposition(undefined));
      const ratios = body.split('\n').filter((line) => line.startsWith('weir_reject_ratio{'));
      expect(new Set(ratios).size).to.equal(odd.rules.length);
    });

    it('is OpenMetrics for who asks for it, and classic again afterwards', async () => {
      metrics = create({ processMetrics: true });
      metrics.configLoaded(odd);
      const exposition = await metrics.exposition(
        'application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3',
      );
      const body = textOf(exposition);
      expect(exposition.contentType).to.equal(
        'application/openmetrics-text; version=1.0.0; charset=utf-8',
      );
      expect(body).to.include('# TYPE weir_invalid_requests counter\n');
      expect(body).to.include('\nweir_invalid_requests_total 0\n');
      expect(body).to.include('le="1.0"} 0\n');
      expect(body.endsWith('# EOF\n')).to.equal(true);
      const classic = textOf(await metrics.exposition('text/plain'));
      expect(classic).to.include('# TYPE weir_invalid_requests_total counter\n');
      expect(classic).to.include('# TYPE process_cpu_seconds_total counter\n');
    });
  });
});
