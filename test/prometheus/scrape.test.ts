import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse, stringify } from 'yaml';
import { findCommand } from '../support/command.js';
import { freePort, RedisServer } from '../support/redis-server.js';
import { startWeir, type WeirProcess } from '../support/weir-process.js';

const RULES = `
domain: shop
descriptors:
  - key: endpoint
    value: /pay
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: user
    detailed_metric: true
    rate_limit: { unit: second, requests_per_unit: 1000 }
`;

/** What the alerts and the recording rules ask, without the thresholds: a quiet alert has no data of its own. */
function expressionsOfRules(file: string): string[] {
  const { groups } = parse(readFileSync(file, 'utf8')) as {
    groups: { rules: { expr: string }[] }[];
  }; // our own file; promtool checks its form
  return groups
    .flatMap(({ rules }) => rules.map(({ expr }) => expr))
    .flatMap((expr) => expr.split(/ and | != /))
    .map((expr) => expr.replace(/ (?:>|==) [\d.]+$/, ''));
}

function expressionsOfDashboard(file: string): string[] {
  const { panels } = JSON.parse(readFileSync(file, 'utf8')) as {
    panels: { targets?: { expr: string }[]; panels?: { targets?: { expr: string }[] }[] }[];
  }; // our own file
  return panels
    .flatMap((panel) => [panel, ...(panel.panels ?? [])])
    .flatMap(({ targets }) => targets ?? [])
    .map(({ expr }) =>
      expr.replaceAll('$__rate_interval', '10s').replace(/\$(?:instance|domain|rule)\b/g, '.*'),
    );
}

describe('a real Prometheus that scrapes a real Weir', function () {
  this.timeout(60_000);
  let promtool: string;
  let redis: RedisServer | undefined;
  let weir: WeirProcess | undefined;
  let httpPort = 0;
  let prometheus: ChildProcess | undefined;
  let url: string;
  let directory = '';
  let load: Promise<void> | undefined;
  let loading = true;

  before(async function () {
    const program = findCommand('prometheus', this);
    promtool = findCommand('promtool', this);
    redis = await RedisServer.start();
    weir = await startWeir({
      files: { 'shop.yaml': RULES },
      env: { REDIS_URL: `127.0.0.1:${redis.port}`, METRICS_COMPAT: 'true' },
    });
    httpPort = weir.httpPort;
    load = keepAsking(`http://127.0.0.1:${httpPort}/json`, () => loading);
    const port = await freePort();
    directory = mkdtempSync(join(tmpdir(), 'weir-prometheus-'));
    for (const file of ['rules.yml', 'alerts.yml']) {
      copyFileSync(`deploy/prometheus/${file}`, join(directory, file));
    }
    writeFileSync(
      join(directory, 'prometheus.yml'),
      stringify({
        global: { scrape_interval: '1s', evaluation_interval: '1s' },
        rule_files: ['rules.yml', 'alerts.yml'],
        scrape_configs: [
          {
            job_name: 'weir',
            static_configs: [{ targets: [`127.0.0.1:${httpPort}`] }],
          },
        ],
      }),
    );
    prometheus = spawn(
      program,
      [
        '--config.file=prometheus.yml',
        `--storage.tsdb.path=${join(directory, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
        '--log.level=error',
      ],
      { cwd: directory, stdio: 'ignore' },
    );
    url = `http://127.0.0.1:${port}`;
    // Rates need a few scrapes, and the rules that build on them a few evaluations.
    await until(async () => {
      const seen = await query('count_over_time(instance:weir_policy_ratio:rate5m[1m])');
      return Number(seen[0]?.value[1] ?? 0) >= 4;
    });
  });

  after(async () => {
    loading = false;
    await load;
    if (prometheus !== undefined) {
      prometheus.kill('SIGTERM');
      await once(prometheus, 'exit');
    }
    await weir?.stop();
    await redis?.stop();
    if (directory !== '') rmSync(directory, { recursive: true, force: true });
  });

  async function query(expr: string): Promise<{ value: [number, string] }[]> {
    const response = await fetch(`${url}/api/v1/query?query=${encodeURIComponent(expr)}`);
    const answer = (await response.json()) as {
      error?: string;
      data?: { result: { value: [number, string] }[] };
    }; // Prometheus's own form
    if (answer.data === undefined) throw new Error(`${expr}: ${answer.error ?? ''}`);
    return answer.data.result;
  }

  for (const [file, read] of [
    ['deploy/prometheus/rules.yml', expressionsOfRules],
    ['deploy/prometheus/alerts.yml', expressionsOfRules],
    ['deploy/grafana/weir.json', expressionsOfDashboard],
  ] as const) {
    it(`has an answer to every expression of ${file}`, async () => {
      const expressions = read(file);
      expect(expressions.length).to.be.greaterThan(5);
      const silent: string[] = [];
      for (const expr of expressions) {
        const answers = await query(expr);
        if (!answers.some(({ value }) => value[1] !== 'NaN')) silent.push(expr);
      }
      expect(silent).to.deep.equal([]);
    });
  }

  it('raises no alert over a service that is well', async () => {
    const firing = await query('ALERTS{alertstate="firing"}');
    expect(firing).to.deep.equal([]);
  });

  it('serves metrics that promtool finds well named', async () => {
    const text = await (await fetch(`http://127.0.0.1:${httpPort}/metrics`)).text();
    const ours = text
      .split('\n')
      .filter((line) => !/^(?:# (?:HELP|TYPE) )?ratelimit_/.test(line))
      .join('\n');
    const { stdout, stderr } = spawnSync(promtool, ['check', 'metrics'], { input: ours });
    expect(stdout.toString() + stderr.toString()).to.equal('');
  });
});

async function keepAsking(url: string, more: () => boolean): Promise<void> {
  const ask = async (user: number): Promise<void> => {
    const entries = [
      { key: 'endpoint', value: '/pay' },
      { key: 'user', value: `${user % 3}` },
    ];
    for (const descriptor of [entries, entries.slice(1), [{ key: 'nobody', value: '1' }]]) {
      const body = JSON.stringify({ domain: 'shop', descriptors: [{ entries: descriptor }] });
      await (await fetch(url, { method: 'POST', body })).arrayBuffer();
    }
    const stray = JSON.stringify({ domain: 'other', descriptors: [{ entries }] });
    await (await fetch(url, { method: 'POST', body: stray })).arrayBuffer();
  };
  for (let i = 0; more(); i++) {
    await ask(i);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  const giveUpMs = performance.now() + 40_000;
  for (;;) {
    if (await holds().catch(() => false)) return;
    if (performance.now() > giveUpMs) throw new Error('Prometheus has not seen enough');
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}
