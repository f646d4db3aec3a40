import { expect } from 'chai';
import {
  label,
  mergeFamilies,
  textOf,
  writeExposition,
  type Family,
  type Sample,
} from '../../src/metrics/exposition.js';

const counter = (...samples: [string, number][]): Family => ({
  name: 'a_total',
  help: 'Some \\ help\nin two lines.',
  type: 'counter',
  merge: 'sum',
  samples: samples.map(([labels, value]) => ({ suffix: '', labels, value })),
});
const gauge = (value: number): Family => ({
  name: 'b',
  help: 'B.',
  type: 'gauge',
  merge: 'max',
  samples: [{ suffix: '', labels: '', value }],
});

describe('the exposition', () => {
  it('escapes labels and help', async () => {
    expect(label('l', 'a"b\\c\nd')).to.equal('l="a\\"b\\\\c\\nd"');
    expect(textOf(await writeExposition([counter(['', 1])], undefined))).to.equal(
      '# HELP a_total Some \\\\ help\\nin two lines.\n# TYPE a_total counter\na_total 1\n',
    );
  });

  it('writes numbers that are not finite as Prometheus does', async () => {
    const body: (string | undefined)[] = [];
    for (const value of [Infinity, -Infinity, NaN, 1e21, 0.5]) {
      body.push(textOf(await writeExposition([gauge(value)], undefined)).split('\n')[2]);
    }
    expect(body).to.deep.equal(['b +Inf', 'b -Inf', 'b NaN', 'b 1e+21', 'b 0.5']);
  });

  it('holds megabytes of any text', async () => {
    const samples = Array.from({ length: 20_000 }, (_, i): [string, number] => [
      label('l', `${i} ${'😀é'.repeat(20)}`),
      i,
    ]);
    const body = textOf(await writeExposition([counter(...samples)], undefined));
    const lines = body.split('\n');
    expect(lines.length).to.equal(20_003);
    expect(lines[20_001]).to.equal(`a_total{l="19999 ${'😀é'.repeat(20)}"} 19999`);
  });

  it('lets others have their turn while it writes much', async () => {
    let turns = 0;
    const counting = setInterval(() => turns++, 0);
    const samples = function* (): Generator<Sample> {
      for (let i = 0; i < 200_000; i++)
        yield { suffix: '', labels: label('l', String(i)), value: i };
    };
    await writeExposition([{ ...counter(), samples: samples() }], undefined);
    clearInterval(counting);
    expect(turns).to.be.greaterThan(5);
  });

  it('merges processes: counters add up, of gauges the largest stays', () => {
    const merged = mergeFamilies([
      [counter(['x="1"', 1], ['x="2"', 5]), gauge(-1)],
      [counter(['x="2"', 2], ['x="3"', 7]), gauge(-3)],
      [counter(['x="2"', 10]), gauge(-2)],
    ]);
    expect(
      merged.map(({ samples }) => samples.map(({ labels, value }) => [labels, value])),
    ).to.deep.equal([
      [
        ['x="1"', 1],
        ['x="2"', 17],
        ['x="3"', 7],
      ],
      [['', -1]],
    ]);
  });
});
