import { expect } from 'chai';
import type { Family } from '../../src/metrics/exposition.js';
import { WorkerTotals } from '../../src/workers/totals.js';

function counter(value: number): Family {
  const samples = [{ suffix: '', labels: 'rule="user"', value }];
  return { name: 'weir_decisions_total', help: '', type: 'counter', merge: 'sum', samples };
}

function gauge(value: number): Family {
  const samples = [{ suffix: '', labels: '', value }];
  return { name: 'process_open_fds', help: '', type: 'gauge', merge: 'sum', samples };
}

function valuesOf(totals: WorkerTotals): Record<string, number | undefined> {
  return Object.fromEntries(totals.all().map(({ name, samples }) => [name, samples[0]?.value]));
}

describe('the metrics of all workers', () => {
  it('are added up, from the latest that each has told', () => {
    const totals = new WorkerTotals();
    totals.update(1, [counter(1)]);
    totals.update(1, [counter(3), gauge(10)]);
    totals.update(2, [counter(4), gauge(12)]);
    expect(valuesOf(totals)).to.deep.equal({ weir_decisions_total: 7, process_open_fds: 22 });
  });

  it('keep the counters of workers that have ended, and not their gauges', () => {
    const totals = new WorkerTotals();
    totals.update(1, [counter(3), gauge(10)]);
    totals.update(2, [counter(4), gauge(12)]);
    totals.remove(1);
    expect(valuesOf(totals)).to.deep.equal({ weir_decisions_total: 7, process_open_fds: 12 });
    totals.remove(2);
    totals.update(3, [counter(1), gauge(1)]);
    expect(valuesOf(totals)).to.deep.equal({ weir_decisions_total: 8, process_open_fds: 1 });
  });
});
