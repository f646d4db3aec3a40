import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { schemaCommand } from '../../src/cli/schema.js';
import { scriptCommand } from '../../src/cli/script.js';
import { settingsCommand } from '../../src/cli/settings.js';
import { formatMs, formatTable } from '../../src/cli/terminal.js';
import { VARIABLES } from '../../src/settings/table.js';
import { run } from './recorder.js';

describe('what commands print', () => {
  it('is every setting, or those that contain a word', async () => {
    const all = (await run(settingsCommand)).out;
    for (const name of Object.keys(VARIABLES)) expect(all).to.include(`  ${name}=`);
    const some = (await run(settingsCommand, 'drain')).out;
    expect(some.match(/^ {2}\w+=/gm)).to.deep.equal(['  DRAIN_DELAY=', '  DRAIN_TIMEOUT=']);
  });

  it('is the page docs/settings.md, which is up to date', async () => {
    const { out } = await run(settingsCommand, '--markdown');
    expect(readFileSync('docs/settings.md', 'utf8')).to.equal(out);
  });

  it('is a JSON Schema', async () => {
    const schema = JSON.parse((await run(schemaCommand)).out) as Record<string, unknown>;
    expect(schema.$schema).to.equal('https://json-schema.org/draft/2020-12/schema');
  });

  it('is the script of Redis', async () => {
    expect((await run(scriptCommand)).out).to.include('KEYS');
  });

  it('is a table with numbers at the right end of their columns', () => {
    expect(
      formatTable(
        ['a', 'number'],
        [
          ['long', '1'],
          ['', '23'],
        ],
        ['left', 'right'],
      ),
    ).to.equal('a     number\nlong       1\n          23\n');
  });

  for (const [ms, text] of [
    [0, '0ms'],
    [250.2, '251ms'],
    [1000, '1s'],
    [59_001, '1m'],
    [90_000, '1m30s'],
    [3_661_000, '1h1m'],
    [86_400_000, '1d'],
    [31_536_000_000, '365d'],
  ] as const) {
    it(`is ${text} for ${ms} ms`, () => {
      expect(formatMs(ms)).to.equal(text);
    });
  }
});
