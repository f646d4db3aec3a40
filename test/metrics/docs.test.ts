import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { Metrics } from '../../src/metrics/metrics.js';

describe('docs/metrics.md', () => {
  it('names every metric there is, with its type, and no other', async () => {
    const metrics = new Metrics({
      version: '1',
      store: 'memory',
      nearLimitRatio: 0.8,
      detailedMaxSeries: 1,
      alsoMilliseconds: true,
      nowMs: () => 0,
      processMetrics: false,
    });
    const served = (await metrics.collect()).map(({ name, type }) => `${name} ${type}`);
    const rows = readFileSync('docs/metrics.md', 'utf8').matchAll(/^\| `(weir_\w+)` +\| (\w+)/gm);
    const described = [...rows].map(([, name, type]) => `${name ?? ''} ${type ?? ''}`);
    expect(described.toSorted()).to.deep.equal(served.toSorted());
  });
});
