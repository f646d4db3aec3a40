import { expect } from 'chai';
import { readdirSync, readFileSync } from 'node:fs';
import { textOf } from '../../src/metrics/exposition.js';
import { Metrics } from '../../src/metrics/metrics.js';

const FILES = ['deploy/prometheus', 'deploy/grafana']
  .flatMap((folder) => readdirSync(folder).map((name) => `${folder}/${name}`))
  .filter((file) => readFileSync(file, 'utf8').includes('weir_'));

/** Not what a recording rule makes: those have colons in their names. */
const METRIC = /(?<![\w:])(?:weir|process|nodejs)_\w+(?![\w:])/g;

/** The metrics that a scrape announces, each with the names of its series. */
async function servedNames(): Promise<Set<string>> {
  const metrics = new Metrics({
    version: '1.0.0',
    store: 'memory',
    nearLimitRatio: 0.8,
    detailedMaxSeries: 10,
    nowMs: () => 1_700_000_000_000,
  });
  const names = new Set<string>();
  for (const [, name = '', type = ''] of textOf(await metrics.exposition(undefined)).matchAll(
    /^# TYPE (\S+) (\S+)$/gm,
  )) {
    names.add(name);
    if (type === 'histogram')
      for (const end of ['bucket', 'sum', 'count']) names.add(`${name}_${end}`);
  }
  return names;
}

describe('alerts and dashboard', () => {
  for (const file of FILES) {
    it(`${file} asks for metrics that are served`, async () => {
      const served = await servedNames();
      const asked = readFileSync(file, 'utf8').match(METRIC) ?? [];
      expect(asked).to.not.be.empty;
      expect(asked.filter((name) => !served.has(name))).to.deep.equal([]);
    });
  }
});
