import { readFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { expect } from 'chai';
import { loadConfig } from '../../src/config/load.js';
import { createLimiter } from '../../src/limiter.js';
import { textOf } from '../../src/metrics/exposition.js';
import { Metrics, NO_METRICS } from '../../src/metrics/metrics.js';
import type { Decision, Descriptor, Snapshot } from '../../src/model.js';
import { CounterKeys } from '../../src/store/keys.js';
import { MemoryStore } from '../../src/store/memory.js';
import { findCommand } from '../support/command.js';
import { entriesOf } from '../support/decided.js';

const NOW_MS = 1_750_000_000_000;

interface Asked {
  readonly entries: string;
  readonly hits?: number;
  readonly times?: number;
  readonly override?: number;
  readonly domain?: string;
}

/** Asks a limiter with these rules; what the metrics say afterwards. */
async function count(
  yaml: string,
  asked: readonly Asked[],
  options: { shadowMode?: boolean; nearLimitRatio?: number; maxNames?: number } = {},
): Promise<{ statsd: string; text: string; openMetrics: string }> {
  const { snapshot } = loadConfig([{ name: 'shop.yaml', text: yaml }], {
    mergeDomains: false,
    defaultOnStoreError: 'allow',
    generation: 1,
    nowMs: NOW_MS,
  });
  const metrics = new Metrics({
    version: '1',
    store: 'memory',
    nearLimitRatio: options.nearLimitRatio ?? 0.8,
    detailedMaxSeries: options.maxNames ?? 500,
    compat: { shadowMode: options.shadowMode ?? false },
    nowMs: () => NOW_MS,
    processMetrics: false,
  });
  metrics.configLoaded(snapshot);
  for (const each of asked) {
    for (let i = 0; i < (each.times ?? 1); i++) {
      metrics.observeDecision(decide(snapshot, each, options.shadowMode ?? false));
    }
  }
  return {
    statsd: metrics.statsd(),
    text: textOf(await metrics.exposition(undefined)),
    openMetrics: textOf(await metrics.exposition('application/openmetrics-text')),
  };
}

const store = new MemoryStore({
  nowUs: () => NOW_MS * 1000,
  observer: { memoryOverflow: () => undefined },
});
let run = 0;

function decide(snapshot: Snapshot, asked: Asked, shadowMode: boolean): Decision {
  const limiter = createLimiter({
    snapshot: () => snapshot,
    keys: new CounterKeys(String(run)),
    gate: { submit: (request) => store.decide([request], () => undefined) },
    fallback: store,
    instances: () => 1,
    nowUs: () => NOW_MS * 1000,
    shadowMode,
    quotaMode: false,
    stopIncrement: undefined,
    defaultOnStoreError: 'allow',
  });
  const descriptor: Descriptor = {
    entries: entriesOf(asked.entries),
    override: asked.override === undefined ? undefined : { requests: asked.override, unit: 'hour' },
    hits: asked.hits === 0 ? 0 : undefined,
    giveBack: false,
  };
  let decided: Decision | undefined;
  limiter.decide(
    {
      domain: asked.domain ?? 'gauge',
      descriptors: [descriptor],
      hits: asked.hits ?? 1,
      mode: undefined,
    },
    Infinity,
    (decision) => (decided = decision),
  );
  if (decided === undefined) throw new Error('memory decides at once');
  return decided;
}

const rule = (text: string): string => `domain: gauge\ndescriptors:\n  - ${text}\n`;
const HOURLY = (requests: number): string =>
  `rate_limit: {unit: hour, requests_per_unit: ${requests}}`;

describe('metrics under the names of the usual service', () => {
  beforeEach(() => {
    run++;
  });

  const cases: readonly {
    readonly what: string;
    readonly yaml: string;
    readonly asked: readonly Asked[];
    readonly options?: Parameters<typeof count>[2];
    readonly expected: Readonly<Record<string, number>>;
  }[] = [
    {
      what: 'count hits of a rule as total, within and near',
      yaml: rule(`{key: job, value: nightly, ${HOURLY(10)}}`),
      asked: [{ entries: 'job=nightly', times: 9 }],
      expected: {
        'rate_limit.gauge.job_nightly.total_hits': 9,
        'rate_limit.gauge.job_nightly.within_limit': 9,
        'rate_limit.gauge.job_nightly.near_limit': 1,
        'rate_limit.gauge.job_nightly.over_limit': 0,
        'rate_limit.gauge.job_nightly.shadow_mode': 0,
        config_load_success: 1,
        config_load_error: 0,
      },
    },
    {
      what: 'have one name for all values of a rule without value',
      yaml: rule(`{key: job, ${HOURLY(1)}}`),
      asked: [{ entries: 'job=a', times: 3 }, { entries: 'job=b' }],
      expected: {
        'rate_limit.gauge.job.total_hits': 4,
        'rate_limit.gauge.job.within_limit': 2,
        'rate_limit.gauge.job.over_limit': 2,
      },
    },
    {
      what: 'join levels with a dot',
      yaml: rule(`{key: org, descriptors: [{key: job, value: z, ${HOURLY(10)}}]}`),
      asked: [{ entries: 'org=a,job=z' }],
      expected: { 'rate_limit.gauge.org.job_z.total_hits': 1 },
    },
    {
      what: 'begin to be near at the ratio, rounded down',
      yaml: rule(`{key: job, ${HOURLY(9)}}`),
      asked: [{ entries: 'job=a', hits: 6 }],
      options: { nearLimitRatio: 0.5 },
      expected: {
        'rate_limit.gauge.job.total_hits': 6,
        'rate_limit.gauge.job.within_limit': 6,
        'rate_limit.gauge.job.near_limit': 2,
      },
    },
    {
      what: 'have all real values under detailed_metric',
      yaml: rule(`{key: org, descriptors: [{key: job, detailed_metric: true, ${HOURLY(10)}}]}`),
      asked: [{ entries: 'org=a,job=b' }],
      expected: { 'rate_limit.gauge.org_a.job_b.total_hits': 1 },
    },
    {
      what: 'have the real value of a level under value_to_metric',
      yaml: rule(`{key: org, value_to_metric: true, descriptors: [{key: job, ${HOURLY(10)}}]}`),
      asked: [{ entries: 'org=a,job=b' }, { entries: 'org=,job=b' }],
      expected: {
        'rate_limit.gauge.org_a.job.total_hits': 1,
        'rate_limit.gauge.org.job.total_hits': 1,
      },
    },
    {
      what: 'keep the pattern of a shared counter',
      yaml: rule(
        `{key: job, value: "n*", share_threshold: true, value_to_metric: true, ${HOURLY(10)}}`,
      ),
      asked: [{ entries: 'job=nightly' }],
      expected: { 'rate_limit.gauge.job_n*.total_hits': 1 },
    },
    {
      what: 'count answers that SHADOW_MODE made OK',
      yaml: rule(`{key: job, ${HOURLY(0)}}`),
      asked: [{ entries: 'job=a', times: 3 }],
      options: { shadowMode: true },
      expected: { global_shadow_mode: 3 },
    },
    {
      what: 'count what the shadow mode of a rule let pass',
      yaml: rule(`{key: job, shadow_mode: true, ${HOURLY(1)}}`),
      asked: [{ entries: 'job=a', times: 3 }],
      expected: {
        'rate_limit.gauge.job.over_limit': 2,
        'rate_limit.gauge.job.shadow_mode': 2,
      },
    },
    {
      what: 'have the real values of a limit that the request brings',
      yaml: rule(`{key: ip, ${HOURLY(5)}}`),
      asked: [{ entries: 'ip=x,deep=y', override: 4 }],
      expected: { 'rate_limit.gauge.ip_x.deep_y.total_hits': 1 },
    },
    {
      what: "replace statsd's own characters and the dots of an address",
      yaml: rule(`{key: peer, detailed_metric: true, ${HOURLY(10)}}`),
      asked: [{ entries: 'peer=10.20.30.40:80|x' }],
      expected: { 'rate_limit.gauge.peer_10_20_30_40_80_x.total_hits': 1 },
    },
    {
      what: 'leave out a mere look',
      yaml: rule(`{key: job, ${HOURLY(1)}}`),
      asked: [{ entries: 'job=a', hits: 0, times: 4 }],
      expected: { 'rate_limit.gauge.job.total_hits': 0, 'rate_limit.gauge.job.over_limit': 0 },
    },
    {
      what: 'are bounded where requests bring the names',
      yaml: rule(`{key: job, detailed_metric: true, ${HOURLY(10)}}`),
      asked: ['a', 'b', 'c', 'd'].map((value) => ({ entries: `job=${value}` })),
      options: { maxNames: 2 },
      expected: {
        'rate_limit.gauge.job_a.total_hits': 1,
        'rate_limit.gauge.job_b.total_hits': 1,
        'rate_limit.gauge.other.total_hits': 2,
      },
    },
  ];
  for (const { what, yaml, asked, options, expected } of cases) {
    it(what, async () => {
      const { statsd } = await count(yaml, asked, options);
      for (const [name, value] of Object.entries(expected)) {
        expect(statsd).to.contain(`ratelimit.service.${name}: ${value}\n`);
      }
    });
  }

  it('have the labels of the mapping, and sum what it does not tell apart', async () => {
    const yaml = rule(
      `{key: org, descriptors: [{key: job, descriptors: [{key: a, ${HOURLY(9)}}, {key: b, ${HOURLY(9)}}]}]}`,
    );
    const { text } = await count(yaml, [
      { entries: 'org=1,job=2,a=3' },
      { entries: 'org=1,job=2,b=3' },
    ]);
    expect(text).to.match(/^# TYPE ratelimit_service_rate_limit_total_hits counter$/m);
    expect(text).to.match(
      /^ratelimit_service_rate_limit_total_hits\{domain="gauge",key1="org",key2="job"\} 2$/m,
    );
    const short = await count(rule(`{key: job, ${HOURLY(9)}}`), [{ entries: 'job=1' }]);
    expect(short.text).to.match(
      /^ratelimit_service_rate_limit_within_limit\{domain="gauge",key1="job"\} 1$/m,
    );
    expect(short.text).to.match(
      /^ratelimit_service_should_rate_limit_error\{err_type="redis_error"\} 0$/m,
    );
  });

  it('show no secret', async () => {
    const { statsd, text } = await count(
      rule(`{key: api_key, detailed_metric: true, ${HOURLY(9)}}`),
      [{ entries: 'api_key=hunter2' }],
    );
    expect(statsd + text).not.to.contain('hunter2');
  });

  it('are not there unless asked for', async () => {
    const metrics = new Metrics({
      version: '1',
      store: 'memory',
      nearLimitRatio: 0.8,
      detailedMaxSeries: 10,
      nowMs: () => 0,
    });
    expect(textOf(await metrics.exposition(undefined))).not.to.contain('ratelimit_');
  });

  it('are empty where nothing is counted', async () => {
    const exposition = await NO_METRICS.exposition('application/openmetrics-text');
    expect(textOf(exposition)).to.equal('# EOF\n');
    expect(exposition.contentType).to.match(/^application\/openmetrics-text/);
    expect(NO_METRICS.statsd()).to.equal('');
  });

  it('can be read in both formats', async function () {
    const promtool = findCommand('promtool', this);
    const { text, openMetrics } = await count(rule(`{key: job, ${HOURLY(9)}}`), []);
    const ours = text.split('\n').filter((line) => line.includes('ratelimit_'));
    const { stderr } = spawnSync(promtool, ['check', 'metrics'], { input: `${ours.join('\n')}\n` });
    // The names are the usual service's own, which the linter would have otherwise.
    expect(stderr.toString()).not.to.match(/error while linting|parsing/);
    expect(openMetrics).to.contain('# TYPE ratelimit_service_rate_limit_total_hits unknown\n');
  });

  it('are all described', async () => {
    const { text } = await count(rule(`{key: job, ${HOURLY(9)}}`), []);
    const served = [...text.matchAll(/^# TYPE (ratelimit_\w+) /gm)].map(([, name]) => name);
    const docs = readFileSync('docs/metrics.md', 'utf8');
    const described = [...docs.matchAll(/^\| `(ratelimit_\w+)`/gm)].map(([, name]) => name);
    expect(described).to.have.members(served);
  });
});
