import { execFileSync } from 'node:child_process';
import { expect } from 'chai';

/** Allocates much that lives for a while, turn by turn as a server does; prints the most that a half was. */
const SCRIPT = `
  import { boundYoungGeneration, halfBytes } from './src/workers/young-generation.ts';
  if (process.argv[1] === 'bound') boundYoungGeneration();
  const kept = [];
  let most = 0;
  let turns = 0;
  const turn = () => {
    for (let i = 0; i < 30000; i++) kept[i % 20000] = { i, list: [i] };
    most = Math.max(most, halfBytes());
    if (++turns < 400) setImmediate(turn);
    else console.log(most / 1048576);
  };
  turn();
`;

function mostMegabytes(how: 'bound' | 'left alone'): number {
  // As Node 24 has it by default.
  const node = [
    '--max-semi-space-size=64',
    '--import',
    'tsx',
    '--input-type=module',
    '-e',
    SCRIPT,
    how,
  ];
  return Number(execFileSync(process.execPath, node, { encoding: 'utf8' }));
}

describe('the young generation', function () {
  this.timeout(60_000);

  it('grows to 16 MB a half and no further', () => {
    expect(mostMegabytes('left alone')).to.be.at.least(32);
    expect(mostMegabytes('bound')).to.equal(16);
  });
});
