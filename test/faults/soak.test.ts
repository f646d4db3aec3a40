import { expect } from 'chai';
import { soak } from '../../bench/soak-run.js';

/** How long; none where the environment does not say, as it takes a while. */
const seconds = Number(process.env['SOAK_SECONDS'] ?? 0);

describe('load with random faults', function () {
  this.timeout((seconds + 60) * 1000);

  it('keeps every promise', async function () {
    if (seconds === 0) this.skip();
    const lines: string[] = [];
    const problems = await soak({
      seed: 42,
      seconds,
      perSecond: 200,
      program: ['--import', 'tsx', 'src/main.ts'],
      print: (line) => lines.push(line),
    });
    expect(problems, lines.join('\n')).to.deep.equal([]);
  });
});
