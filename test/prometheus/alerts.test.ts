import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { parse, stringify } from 'yaml';
import { findCommand } from '../support/command.js';

const run = promisify(execFile);

interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly annotations: Readonly<Record<string, string>>;
}

function readAlerts(): readonly Alert[] {
  // Our own file; promtool checks its form.
  const file = parse(readFileSync('deploy/prometheus/alerts.yml', 'utf8')) as {
    groups: { rules: Alert[] }[];
  };
  return file.groups.flatMap(({ rules }) => rules);
}

/** A sample each 30 s, as promtool writes series: `start+step×count`. */
type Series = Readonly<Record<string, string>>;

const bucket = (le: string): string =>
  `weir_request_duration_seconds_bucket{job="weir",instance="a",method="envoy",le="${le}"}`;
const decisions = (outcome: string, rule = 'user', instance = 'a'): string =>
  `weir_decisions_total{job="weir",instance="${instance}",domain="shop",rule="${rule}",outcome="${outcome}"}`;
const of = (metric: string, instance = 'a'): string =>
  `${metric}{job="weir",instance="${instance}"}`;

/** A service under load, with the small mishaps of every day: nothing of this may raise an alert. */
const HEALTHY: Series = {
  [of('up')]: '1x120',
  'up{job="envoy",instance="e"}': '0x120',
  [decisions('allowed')]: '0+3000x120',
  [decisions('rejected')]: '0+300x120',
  [decisions('policy_allowed')]: '0+10x120',
  // Everything is refused of a rule that hardly anybody asks.
  [decisions('allowed', 'rare')]: '0x120',
  [decisions('rejected', 'rare')]: '0+1x120',
  'weir_redis_errors_total{job="weir",instance="a",kind="timeout"}': '0+5x120',
  [of('weir_breaker_open')]: '0 1 0 0 1 0 0x114',
  [of('weir_deadline_exceeded_total')]: '0+5x120',
  [bucket('0.002')]: '0+3290x120',
  [bucket('0.02')]: '0+3300x120',
  [bucket('+Inf')]: '0+3300x120',
  [of('weir_config_generation')]: '3x120',
  [of('weir_config_last_reload_success')]: '1x120',
  [of('weir_config_rules')]: '12x120',
  [of('weir_config_rules', 'b')]: '11x10 12x110',
  [of('weir_unknown_domain_total')]: '7x120',
  [of('weir_redis_eviction_policy_unsafe')]: '0x120',
  [of('weir_redis_evicted_keys')]: '5x120',
  [of('weir_memory_overflows_total')]: '3x120',
  [of('weir_undo_failures_total')]: '0+1x120',
  [of('weir_clock_skew_seconds')]: '-0.02x120',
};

interface Situation {
  readonly alert: string;
  readonly series: Series;
  /** Not yet, and not for a while only. */
  readonly quietAt: string;
  readonly firesAt: string;
  readonly labels: Series;
  readonly summary: string;
}

const ONE = { job: 'weir', instance: 'a' };

const SITUATIONS: readonly Situation[] = [
  {
    alert: 'WeirDown',
    series: { [of('up')]: '1x9 0x20', 'up{job="envoy",instance="e"}': '0x30' },
    quietAt: '5m',
    firesAt: '8m',
    labels: { severity: 'critical', ...ONE },
    summary: 'a does not answer its scrapes',
  },
  {
    alert: 'WeirRejectRatioHigh',
    series: { [decisions('allowed')]: '0+100x60', [decisions('rejected')]: '0+300x60' },
    quietAt: '9m',
    firesAt: '20m',
    labels: { severity: 'warning', domain: 'shop', rule: 'user' },
    summary: 'Limit user of shop refuses 75% of its requests',
  },
  {
    alert: 'WeirStoreFailing',
    series: {
      'weir_redis_errors_total{job="weir",instance="a",kind="timeout"}': '0+20x60',
      'weir_redis_errors_total{job="weir",instance="a",kind="connection"}': '0+20x60',
    },
    quietAt: '1m',
    firesAt: '10m',
    labels: { severity: 'critical', ...ONE },
    summary: 'Redis does not answer a in time',
  },
  {
    alert: 'WeirBreakerOpen',
    series: { [of('weir_breaker_open')]: '0x9 1x50' },
    quietAt: '5m',
    firesAt: '10m',
    labels: { severity: 'critical', ...ONE },
    summary: 'a has given up on Redis for now',
  },
  {
    alert: 'WeirAnswersByPolicy',
    series: {
      [decisions('allowed')]: '0+90x60',
      [decisions('policy_denied')]: '0+7x60',
      [decisions('policy_local_allowed', 'path')]: '0+3x60',
      [decisions('allowed', 'user', 'b')]: '0+999x60',
      [decisions('policy_allowed', 'user', 'b')]: '0+1x60',
    },
    quietAt: '4m',
    firesAt: '15m',
    labels: { severity: 'warning', ...ONE },
    summary: '10% of the decisions of a are made without Redis',
  },
  {
    alert: 'WeirDeadlineExceeded',
    series: { [of('weir_deadline_exceeded_total')]: '0+60x60' },
    quietAt: '4m',
    firesAt: '15m',
    labels: { severity: 'warning', ...ONE },
    summary: 'a answers after its callers have given up',
  },
  {
    alert: 'WeirSlow',
    series: {
      [bucket('0.015')]: '0+900x60',
      [bucket('0.02')]: '0+1000x60',
      [bucket('+Inf')]: '0+1000x60',
    },
    quietAt: '9m',
    firesAt: '20m',
    labels: { severity: 'warning', ...ONE },
    summary: 'One call in a hundred to a takes 19.5ms or more',
  },
  {
    alert: 'WeirNoConfiguration',
    series: { [of('weir_config_generation')]: '0x60', [of('weir_config_generation', 'b')]: '1x60' },
    quietAt: '1m',
    firesAt: '5m',
    labels: { severity: 'critical', ...ONE },
    summary: 'a has no rules',
  },
  {
    alert: 'WeirConfigurationRejected',
    series: {
      [of('weir_config_generation')]: '2x60',
      [of('weir_config_last_reload_success')]: '0x60',
      // Has none at all, which is another alert's matter.
      [of('weir_config_generation', 'b')]: '0x60',
      [of('weir_config_last_reload_success', 'b')]: '0x60',
    },
    quietAt: '4m',
    firesAt: '10m',
    labels: { severity: 'warning', ...ONE },
    summary: 'a runs on old rules: the new ones have mistakes',
  },
  {
    alert: 'WeirConfigurationsDiffer',
    series: { [of('weir_config_rules')]: '4x60', [of('weir_config_rules', 'b')]: '5x60' },
    quietAt: '9m',
    firesAt: '15m',
    labels: { severity: 'warning', job: 'weir' },
    summary: 'Some instances run on other rules than the rest',
  },
  {
    alert: 'WeirUnknownDomain',
    series: { [of('weir_unknown_domain_total')]: '0+1x60' },
    quietAt: '14m',
    firesAt: '20m',
    labels: { severity: 'info', job: 'weir' },
    summary: 'Somebody asks for a domain that no file declares',
  },
  {
    alert: 'WeirEvictionPolicyUnsafe',
    series: { [of('weir_redis_eviction_policy_unsafe')]: '1x60' },
    quietAt: '9m',
    firesAt: '15m',
    labels: { severity: 'warning', job: 'weir' },
    summary: 'Redis may drop counters that are in force when its memory is full',
  },
  {
    alert: 'WeirCountersEvicted',
    series: { [of('weir_redis_evicted_keys')]: '5x40 9x20' },
    quietAt: '15m',
    firesAt: '22m',
    labels: { severity: 'critical', job: 'weir' },
    summary: 'Redis drops keys, so that limits are forgotten',
  },
  {
    alert: 'WeirMemoryFull',
    series: { [of('weir_memory_overflows_total')]: '0+1x60' },
    quietAt: '4m',
    firesAt: '10m',
    labels: { severity: 'warning', ...ONE },
    summary: 'a has no place in its memory for new counters',
  },
  {
    alert: 'WeirUndoFailing',
    series: { [of('weir_undo_failures_total')]: '0+30x60' },
    quietAt: '9m',
    firesAt: '15m',
    labels: { severity: 'info', ...ONE },
    summary: 'Refused requests of a keep hits on some node of the cluster',
  },
  {
    alert: 'WeirClocksDiffer',
    series: { [of('weir_clock_skew_seconds')]: '-1.5x60' },
    quietAt: '9m',
    firesAt: '15m',
    labels: { severity: 'info', ...ONE },
    summary: 'The clocks of a and Redis are more than a second apart',
  },
];

describe('alerts', function () {
  this.timeout(30_000);
  const alerts = readAlerts();
  let promtool: string;
  let directory: string;

  before(function () {
    promtool = findCommand('promtool', this);
    directory = mkdtempSync(join(tmpdir(), 'weir-alerts-'));
    for (const file of ['rules.yml', 'alerts.yml']) {
      copyFileSync(`deploy/prometheus/${file}`, join(directory, file));
    }
  });
  after(() => {
    if (directory !== '') rmSync(directory, { recursive: true, force: true });
  });

  /** Rejects with what promtool says when an expectation is not met. */
  async function test(name: string, series: Series, expectations: object): Promise<void> {
    const file = join(directory, `${name}.yml`);
    writeFileSync(
      file,
      stringify({
        rule_files: ['rules.yml', 'alerts.yml'],
        evaluation_interval: '30s',
        tests: [
          {
            interval: '30s',
            input_series: Object.entries(series).map(([each, values]) => ({
              series: each,
              values,
            })),
            ...expectations,
          },
        ],
      }),
    );
    const { stdout, stderr } = await run(promtool, ['test', 'rules', file]).catch(
      (error: unknown) => error as { stdout: string; stderr: string }, // what execFile rejects with
    );
    expect(stdout + stderr, name).to.contain('SUCCESS');
  }

  it('stay silent over a healthy service', async () => {
    await test('healthy', HEALTHY, {
      alert_rule_test: alerts.map(({ alert }) => ({
        alertname: alert,
        eval_time: '50m',
        exp_alerts: [],
      })),
      promql_expr_test: [
        {
          expr: 'rule:weir_reject_ratio:rate5m{rule="user"}',
          eval_time: '50m',
          exp_samples: [
            {
              labels: 'rule:weir_reject_ratio:rate5m{domain="shop",rule="user"}',
              value: 1 / 11,
            },
          ],
        },
      ],
    });
  });

  for (const { alert, series, quietAt, firesAt, labels, summary } of SITUATIONS) {
    it(`${alert} fires in its situation, and not before`, async () => {
      const { description, runbook } =
        alerts.find((candidate) => candidate.alert === alert)?.annotations ?? {};
      await test(alert, series, {
        alert_rule_test: [
          { alertname: alert, eval_time: quietAt, exp_alerts: [] },
          {
            alertname: alert,
            eval_time: firesAt,
            exp_alerts: [
              { exp_labels: labels, exp_annotations: { summary, description, runbook } },
            ],
          },
        ],
      });
    });
  }

  it('are all tested here', () => {
    expect(alerts.map(({ alert }) => alert)).to.have.members(SITUATIONS.map(({ alert }) => alert));
  });

  it('each have a section in the runbook', () => {
    const runbook = readFileSync('docs/runbook.md', 'utf8');
    const sections = [...runbook.matchAll(/^## (\S+)$/gm)].map(([, name]) => name);
    for (const { alert, annotations } of alerts) {
      expect(sections).to.include(alert);
      expect(annotations['runbook']).to.equal(`docs/runbook.md#${alert.toLowerCase()}`);
    }
  });
});
