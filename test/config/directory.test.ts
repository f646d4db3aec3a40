import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { rename, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { loadReading, readConfigDir } from '../../src/config/directory.js';
import { ConfigError, formatProblem } from '../../src/config/problems.js';

const OPTIONS = {
  mergeDomains: false,
  defaultOnStoreError: 'allow',
  generation: 1,
  nowMs: 0,
} as const;

describe('config directory', () => {
  let directory: string;
  const write = (name: string, text: string | Buffer): void => {
    writeFileSync(join(directory, name), text);
  };
  const namesRead = async (): Promise<readonly string[]> =>
    (await readConfigDir(directory)).files.map((file) => file.name);
  const problemsOf = async (): Promise<readonly string[]> =>
    (await readConfigDir(directory)).problems.map(formatProblem);

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'weir-config-'));
  });
  afterEach(() => {
    rmSync(directory, { recursive: true });
  });

  it('gives every file whatever its extension, sorted by name', async () => {
    for (const name of ['b.yaml', 'a.yml', 'c', 'B.json']) write(name, name);
    expect(await namesRead()).to.deep.equal(['B.json', 'a.yml', 'b.yaml', 'c']);
  });

  it('passes over names that begin with a dot, and backups of editors', async () => {
    for (const name of ['.a.yaml.swp', '..data', 'a.yaml~', 'a.yaml']) write(name, '');
    expect(await namesRead()).to.deep.equal(['a.yaml']);
  });

  it('passes over sub-directories and what is no file, with a warning', async () => {
    mkdirSync(join(directory, 'sub'));
    execFileSync('mkfifo', [join(directory, 'pipe')]);
    const reading = await readConfigDir(directory);
    expect(reading.files).to.deep.equal([]);
    expect(reading.problems).to.deep.equal([]);
    expect(reading.warnings.map(formatProblem)).to.deep.equal([
      'pipe:1:1: is not a file, so it is not read',
      'sub:1:1: is a directory, which is not read',
    ]);
  });

  it('follows links to files, and names one that leads nowhere', async () => {
    write('..real', 'text');
    symlinkSync('..real', join(directory, 'a.yaml'));
    symlinkSync('nowhere', join(directory, 'b.yaml'));
    const reading = await readConfigDir(directory);
    expect(reading.files).to.deep.equal([{ name: 'a.yaml', text: 'text' }]);
    expect(reading.problems.map(formatProblem)).to.deep.equal([
      'b.yaml:1:1: cannot be read: ENOENT',
    ]);
  });

  it('refuses a file that is not UTF-8', async () => {
    write('a.yaml', Buffer.from([0x64, 0xff, 0xfe]));
    expect(await problemsOf()).to.deep.equal(['a.yaml:1:1: is not UTF-8 text']);
  });

  it('refuses a file of more than 8 MiB without reading it', async () => {
    write('a.yaml', '');
    truncateSync(join(directory, 'a.yaml'), 8 * 1024 * 1024 + 1);
    expect(await problemsOf()).to.deep.equal(['a.yaml:1:1: is larger than 8388608 bytes']);
  });

  it('that does not exist is a problem', async () => {
    const reading = await readConfigDir(join(directory, 'nope'));
    expect(reading.found).to.equal(false);
    expect(reading.problems[0]?.message).to.equal('there is no such directory');
  });

  it('that is a file is a problem', async () => {
    write('a.yaml', '');
    const reading = await readConfigDir(join(directory, 'a.yaml'));
    expect(reading.found).to.equal(true);
    expect(reading.problems[0]?.message).to.equal('cannot be read: ENOTDIR');
  });

  it('gives files of one generation only, while generations are swapped', async () => {
    const names = ['a.yaml', 'b.yaml', 'c.yaml', 'd.yaml'];
    for (const generation of ['..0', '..1']) {
      mkdirSync(join(directory, generation));
      for (const name of names) write(join(generation, name), generation);
    }
    symlinkSync('..0', join(directory, '..data'));
    for (const name of names) symlinkSync(join('..data', name), join(directory, name));
    let swaps = 0;
    let reading = true;
    const swap = async (): Promise<void> => {
      while (reading) {
        await symlink(`..${String(++swaps % 2)}`, join(directory, '..tmp'));
        await rename(join(directory, '..tmp'), join(directory, '..data'));
        await pause(5 + (swaps % 10));
      }
    };
    const swapping = swap();
    try {
      for (let count = 0; count < 80; count++) {
        const { files } = await readConfigDir(directory);
        expect(files.map((file) => file.name)).to.deep.equal(names);
        expect(new Set(files.map((file) => file.text)).size).to.equal(1);
      }
    } finally {
      reading = false;
      await swapping;
    }
    expect(swaps).to.be.greaterThan(10);
  }).timeout(10_000);

  it('has a digest that changes with names and contents, and with nothing else', async () => {
    write('a.yaml', 'x');
    const { digest } = await readConfigDir(directory);
    write('a.yaml', 'x');
    expect((await readConfigDir(directory)).digest).to.equal(digest);
    write('a.yaml', 'y');
    expect((await readConfigDir(directory)).digest).to.not.equal(digest);
    rmSync(join(directory, 'a.yaml'));
    write('b.yaml', 'x');
    expect((await readConfigDir(directory)).digest).to.not.equal(digest);
  });

  it('fails to load with what cannot be read and what is wrong, together', async () => {
    write('a.yaml', 'colour: 1\n');
    symlinkSync('nowhere', join(directory, 'b.yaml'));
    const reading = await readConfigDir(directory);
    expect(() => loadReading(reading, OPTIONS))
      .to.throw(ConfigError)
      .with.property(
        'message',
        'b.yaml:1:1: cannot be read: ENOENT\n' +
          'a.yaml:1:1: unknown key `colour`\n' +
          'a.yaml:1:1: the domain is missing or empty: the file needs a `domain`',
      );
  });

  it('of the examples loads without a warning, and shows all four algorithms', async () => {
    const examples = fileURLToPath(new URL('../../examples/config', import.meta.url));
    const { snapshot, warnings } = loadReading(await readConfigDir(examples), OPTIONS);
    expect(warnings).to.deep.equal([]);
    expect([...snapshot.domains]).to.deep.equal(['default', 'edge']);
    const used = snapshot.rules.flatMap((rule) => rule.limits.map((limit) => limit.algorithm));
    expect([...new Set(used)].sort()).to.deep.equal([
      'fixed_window',
      'sliding_window',
      'sliding_window_counter',
      'token_bucket',
    ]);
  });
});
