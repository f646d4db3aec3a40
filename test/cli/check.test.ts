import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { checkCommand } from '../../src/cli/check.js';
import { run } from './recorder.js';

const GOOD =
  'domain: shop\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n';

describe('weir check', () => {
  let directory: string;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'weir-check-'));
  });

  afterEach(() => {
    rmSync(directory, { recursive: true });
  });

  const write = (name: string, text: string): void => {
    writeFileSync(join(directory, name), text);
  };

  it('says what a good directory holds', async () => {
    write('a.yaml', GOOD);
    write('.hidden.yaml', 'nonsense: {');
    const { out, err, code } = await run(checkCommand, directory);
    expect([out, err, code]).to.deep.equal(['ok: 1 file, 1 domain, 1 rule\n', '', 0]);
  });

  it('takes one file as well', async () => {
    write('a.yaml', GOOD);
    write('b.yaml', 'nonsense: {');
    const { out, code } = await run(checkCommand, join(directory, 'a.yaml'));
    expect([out, code]).to.deep.equal(['ok: 1 file, 1 domain, 1 rule\n', 0]);
  });

  it('prints every problem at its place, and exits 1', async () => {
    write('a.yaml', GOOD.replace('day', 'fortnight'));
    write('b.yaml', GOOD.replace('shop', 'mall').replace('key:', 'kye:'));
    const { out, err, code } = await run(checkCommand, directory);
    expect(code).to.equal(1);
    expect(out).to.equal('');
    const lines = err.trimEnd().split('\n');
    expect(lines[0]).to.match(/a\.yaml:3:\d+ shop\.a\.rate_limit\.unit: .*fortnight/);
    expect(lines[2]).to.match(/b\.yaml:3:\d+ mall.*unknown key `kye`/);
    expect(lines.at(-1)).to.match(/^3 problems in 2 files$/);
  });

  it('tells warnings from problems, and exits 0 with them', async () => {
    write('a.yaml', GOOD.replace('unit: day', 'shadow_mode: true, unit: day'));
    const { out, err, code } = await run(checkCommand, directory);
    expect(err).to.match(/^warning: .*a\.yaml:3:\d+ /);
    expect(out).to.equal('ok: 1 file, 1 domain, 1 rule, 1 warning\n');
    expect(code).to.equal(0);
  });

  it('lets files share a domain only when told to', async () => {
    write('a.yaml', GOOD);
    write('b.yaml', GOOD.replace('key: a', 'key: b'));
    expect((await run(checkCommand, directory)).code).to.equal(1);
    const merged = await run(checkCommand, '--merge', directory);
    expect(merged.out).to.equal('ok: 2 files, 1 domain, 2 rules\n');
  });

  it('prints JSON for programs', async () => {
    write('a.yaml', GOOD.replace('day', 'fortnight'));
    const { out, code } = await run(checkCommand, '--json', directory);
    const found = JSON.parse(out) as { ok: boolean; problems: { line: number; file: string }[] };
    expect(code).to.equal(1);
    expect(found.ok).to.equal(false);
    expect(found.problems.map(({ line, file }) => [line, file])).to.deep.equal([
      [3, join(directory, 'a.yaml')],
    ]);
  });

  it('refuses what is not there, or empty', async () => {
    const nowhere = await run(checkCommand, join(directory, 'nowhere'));
    expect([nowhere.code, nowhere.err]).to.deep.equal([
      1,
      `error: ${directory}/nowhere: there is no such file or directory\n`,
    ]);
    mkdirSync(join(directory, 'empty'));
    const empty = await run(checkCommand, join(directory, 'empty'));
    expect(empty.code).to.equal(1);
    expect(empty.err).to.include('there are no files here');
  });
});
