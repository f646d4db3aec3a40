/** The watcher against a real file system and a real clock, as that is what it is about. */
import {
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'chai';
import { ConfigWatcher, type ConfigWatcherOptions } from '../../src/config/watch.js';
import type { ConfigError } from '../../src/config/problems.js';
import type { Logger, Snapshot } from '../../src/model.js';

const limitOf = (requests: number, domain = 'shop'): string =>
  `domain: ${domain}\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: ${String(requests)}}}\n`;
const BAD = 'domain: shop\nbogus: 1\n';

describe('config watcher', function () {
  this.timeout(10_000);
  let root: string;
  let directory: string;
  let watcher: ConfigWatcher;
  let loaded: Snapshot[];
  let rejected: ConfigError[];
  let errorsLogged: string[];

  const logger: Logger = {
    debug: () => undefined,
    info: () => undefined,
    warn: () => undefined,
    error: (_fields, message) => errorsLogged.push(message),
  };

  const start = async (options: Partial<ConfigWatcherOptions> = {}): Promise<void> => {
    watcher = new ConfigWatcher({
      directory,
      root,
      watchRoot: true,
      pollIntervalMs: 60_000,
      load: { mergeDomains: false, defaultOnStoreError: 'allow' },
      now: () => 1_700_000_000_000,
      onLoaded: (snapshot) => loaded.push(snapshot),
      onRejected: (error) => rejected.push(error),
      logger,
      ...options,
    });
    await watcher.start();
  };

  const requests = (): number | undefined =>
    watcher.current()?.match('shop', [{ key: 'user', value: 'a' }])?.limits[0]?.requests;

  const within2s = async (claim: () => boolean): Promise<void> => {
    const endMs = performance.now() + 2000;
    while (!claim()) {
      if (performance.now() > endMs) throw new Error('not within 2 s');
      await pause(10);
    }
  };

  const write = (name: string, text: string): void => {
    writeFileSync(join(directory, name), text);
  };

  beforeEach(() => {
    const base = mkdtempSync(join(tmpdir(), 'weir-watch-'));
    root = join(base, 'current');
    directory = join(root, 'config');
    mkdirSync(directory, { recursive: true });
    loaded = [];
    rejected = [];
    errorsLogged = [];
  });

  afterEach(async () => {
    await watcher.stop();
    rmSync(join(root, '..'), { recursive: true, force: true });
  });

  describe('at start', () => {
    it('loads what is there', async () => {
      write('a.yaml', limitOf(2));
      await start();
      expect(requests()).to.equal(2);
      expect(watcher.current()?.generation).to.equal(1);
      expect(watcher.current()?.loadedAtMs).to.equal(1_700_000_000_000);
    });

    it('takes an empty directory for a configuration without domains', async () => {
      await start();
      expect(watcher.current()?.domains.size).to.equal(0);
      expect(rejected).to.have.length(0);
    });

    it('has no snapshot from a bad configuration, and is healed by a good one', async () => {
      write('a.yaml', BAD);
      await start();
      expect(watcher.current()).to.equal(undefined);
      expect(rejected).to.have.length(1);
      expect(watcher.lastProblems[0]?.message).to.equal('unknown key `bogus`');
      write('a.yaml', limitOf(3));
      await within2s(() => requests() === 3);
      expect(watcher.lastProblems).to.have.length(0);
    });

    it('has no snapshot without the directory, and is healed when it comes', async () => {
      rmSync(root, { recursive: true });
      await start();
      expect(watcher.current()).to.equal(undefined);
      expect(rejected[0]?.message).to.contain('there is no such directory');
      mkdirSync(directory, { recursive: true });
      write('a.yaml', limitOf(3));
      await within2s(() => requests() === 3);
    });

    it('loads a Kubernetes ConfigMap once, not once a link', async () => {
      mkdirSync(join(directory, '..2026_01_01'));
      write('..2026_01_01/rl.yaml', limitOf(2));
      symlinkSync('..2026_01_01', join(directory, '..data'));
      symlinkSync('..data/rl.yaml', join(directory, 'rl.yaml'));
      await start();
      expect(requests()).to.equal(2);
      expect(watcher.current()?.files).to.deep.equal(['rl.yaml']);
    });
  });

  describe('takes a change', () => {
    it('that is written in place', async () => {
      write('a.yaml', limitOf(2));
      await start();
      write('a.yaml', limitOf(5));
      await within2s(() => requests() === 5);
      expect(watcher.current()?.generation).to.equal(2);
    });

    it('that is renamed over the file, and the next one too', async () => {
      write('a.yaml', limitOf(2));
      await start();
      for (const number of [5, 6, 7]) {
        write('.new', limitOf(number));
        renameSync(join(directory, '.new'), join(directory, 'a.yaml'));
        await within2s(() => requests() === number);
      }
    });

    it('that an editor makes: unlink, then create', async () => {
      write('a.yaml', limitOf(2));
      write('b.yaml', limitOf(9, 'other'));
      await start();
      unlinkSync(join(directory, 'a.yaml'));
      write('a.yaml', limitOf(5));
      await within2s(() => requests() === 5);
    });

    it('that Kubernetes makes: a swap of ..data', async () => {
      mkdirSync(join(directory, '..1'));
      write('..1/rl.yaml', limitOf(2));
      symlinkSync('..1', join(directory, '..data'));
      symlinkSync('..data/rl.yaml', join(directory, 'rl.yaml'));
      await start();
      for (const number of [5, 6]) {
        mkdirSync(join(directory, `..${String(number)}`));
        write(`..${String(number)}/rl.yaml`, limitOf(number));
        symlinkSync(`..${String(number)}`, join(directory, '..data_tmp'));
        renameSync(join(directory, '..data_tmp'), join(directory, '..data'));
        await within2s(() => requests() === number);
      }
      expect(rejected).to.have.length(0);
    });

    it('that is a swap of the root symlink, and changes below the new root', async () => {
      const base = join(root, '..');
      renameSync(root, join(base, 'v1'));
      symlinkSync('v1', root);
      write('a.yaml', limitOf(2));
      await start();
      mkdirSync(join(base, 'v2', 'config'), { recursive: true });
      writeFileSync(join(base, 'v2', 'config', 'a.yaml'), limitOf(5));
      symlinkSync('v2', join(base, 'tmp'));
      renameSync(join(base, 'tmp'), root);
      await within2s(() => requests() === 5);
      writeFileSync(join(base, 'v2', 'config', 'a.yaml'), limitOf(6));
      await within2s(() => requests() === 6);
    });

    it('of a file elsewhere that a link leads to, as a file mounted alone is', async () => {
      const elsewhere = join(root, 'elsewhere.yaml');
      writeFileSync(elsewhere, limitOf(2));
      symlinkSync(elsewhere, join(directory, 'a.yaml'));
      await start();
      writeFileSync(elsewhere, limitOf(5));
      await within2s(() => requests() === 5);
    });

    it('that adds a file, and one that removes it', async () => {
      write('a.yaml', limitOf(2));
      await start();
      write('b.yaml', limitOf(9, 'late'));
      await within2s(() => watcher.current()?.domains.has('late') === true);
      unlinkSync(join(directory, 'b.yaml'));
      await within2s(() => watcher.current()?.domains.has('late') === false);
      expect(requests()).to.equal(2);
    });

    it('that vanishes with the directory and comes back', async () => {
      write('a.yaml', limitOf(2));
      await start();
      rmSync(directory, { recursive: true });
      await within2s(() => rejected.length === 1);
      expect(requests()).to.equal(2);
      mkdirSync(directory);
      write('a.yaml', limitOf(5));
      await within2s(() => requests() === 5);
      write('a.yaml', limitOf(6));
      await within2s(() => requests() === 6);
    });

    it('of which the poll alone hears', async () => {
      write('a.yaml', limitOf(2));
      symlinkSync('config', join(root, 'link'));
      mkdirSync(join(root, 'other'));
      writeFileSync(join(root, 'other', 'a.yaml'), limitOf(5));
      directory = join(root, 'link');
      await start({ watchRoot: false, root: directory, pollIntervalMs: 100 });
      unlinkSync(join(root, 'link'));
      symlinkSync('other', join(root, 'link'));
      await within2s(() => requests() === 5);
    });
  });

  it('ends in the last of 50 changes in a second, with few swaps', async () => {
    write('a.yaml', limitOf(1));
    await start();
    for (let number = 2; number <= 51; number++) {
      write('a.yaml', limitOf(number));
      await pause(15);
    }
    await within2s(() => requests() === 51);
    expect(loaded.length).to.be.lessThan(6);
    expect(rejected).to.have.length(0);
  });

  it('swaps nothing when the same text is written 20 times', async () => {
    write('a.yaml', limitOf(2));
    await start();
    for (let count = 0; count < 20; count++) {
      write('.new', limitOf(2));
      renameSync(join(directory, '.new'), join(directory, 'a.yaml'));
      await pause(10);
    }
    await pause(300);
    expect(loaded).to.have.length(1);
  });

  it('keeps the last good snapshot when a change is bad, and says so once', async () => {
    write('a.yaml', limitOf(2));
    await start({ pollIntervalMs: 50 });
    write('a.yaml', BAD);
    await within2s(() => rejected.length === 1);
    await pause(300);
    expect(requests()).to.equal(2);
    expect(rejected).to.have.length(1);
    expect(errorsLogged).to.deep.equal([
      'the configuration is rejected, the last good one stays: a.yaml:2:1: unknown key `bogus`',
    ]);
  });

  it('hands over the same snapshot again when a bad change is taken back', async () => {
    write('a.yaml', limitOf(2));
    await start();
    write('a.yaml', BAD);
    await within2s(() => rejected.length === 1);
    write('a.yaml', limitOf(2));
    await within2s(() => loaded.length === 2);
    expect(loaded[1]).to.equal(loaded[0]);
    expect(watcher.lastProblems).to.have.length(0);
  });

  it('keeps the last good snapshot when all files are gone', async () => {
    write('a.yaml', limitOf(2));
    await start();
    unlinkSync(join(directory, 'a.yaml'));
    await within2s(() => rejected.length === 1);
    expect(requests()).to.equal(2);
    expect(watcher.lastProblems[0]?.message).to.equal('all configuration files are gone');
  });

  it('goes on when a callback throws', async () => {
    write('a.yaml', limitOf(2));
    await start({
      onLoaded: () => {
        throw new Error('no');
      },
    });
    write('a.yaml', limitOf(5));
    await within2s(() => requests() === 5);
    expect(errorsLogged).to.deep.equal([
      'what uses the configuration failed to take it',
      'what uses the configuration failed to take it',
    ]);
  });

  describe('with a large configuration', () => {
    const large = (requests: number, length = 300): string => {
      const rules = Array.from(
        { length },
        (_, index) =>
          `  - {key: path, value: /${String(index)}, rate_limit: {unit: day, requests_per_unit: 1}}\n`,
      );
      return limitOf(requests) + rules.join('');
    };
    let begun: number;
    const aside: Partial<ConfigWatcherOptions> = {
      thread: new URL('../support/reading-thread.mjs', import.meta.url),
      now: () => {
        begun++;
        return 0;
      },
    };

    beforeEach(async () => {
      begun = 0;
      write('a.yaml', large(2));
      await start(aside);
    });

    it('uses the one before while it reads', async () => {
      write('a.yaml', large(3));
      await within2s(() => begun === 2);
      expect(requests()).to.equal(2);
      await within2s(() => requests() === 3);
      expect(watcher.current()?.generation).to.equal(2);
    });

    it('ends in what was written while it read', async () => {
      write('a.yaml', large(3));
      await within2s(() => begun === 2);
      write('a.yaml', large(4));
      await within2s(() => requests() === 4);
      expect(loaded.map(({ generation }) => generation)).to.deep.equal([1, 2, 3]);
    });

    it('drops what it reads when it is stopped', async () => {
      write('a.yaml', large(3, 10_000));
      await within2s(() => begun === 2);
      const beganMs = performance.now();
      await watcher.stop();
      // Far less than reading takes.
      expect(performance.now() - beganMs).to.be.lessThan(400);
      expect(requests()).to.equal(2);
      expect(loaded).to.have.length(1);
      expect([rejected, errorsLogged]).to.deep.equal([[], []]);
    });
  });

  it('looks at nothing after it has been stopped', async () => {
    write('a.yaml', limitOf(2));
    await start({ pollIntervalMs: 20 });
    await watcher.stop();
    write('a.yaml', limitOf(5));
    await pause(200);
    expect(requests()).to.equal(2);
  });
});
