import { expect } from 'chai';
import { ConfigInForce } from '../../src/config/in-force.js';
import { loadConfig, type Loaded } from '../../src/config/load.js';
import { ConfigError } from '../../src/config/problems.js';

function loadedOf(domain: string, generation: number): Loaded {
  const options = { mergeDomains: false, defaultOnStoreError: 'allow', nowMs: 0 } as const;
  const rule = '{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}';
  const text = `domain: ${domain}\ndescriptors: [${rule}]\n`;
  return loadConfig([{ name: 'a.yaml', text }], { ...options, generation });
}

function errorOf(...messages: string[]): ConfigError {
  return new ConfigError(
    messages.map((message) => ({ file: 'a.yaml', line: 1, column: 2, path: 'shop', message })),
  );
}

describe('configuration in force', () => {
  let events: string[];
  let logged: string[];
  let fields: object[];
  let inForce: ConfigInForce;

  const start = (fail = false): void => {
    events = [];
    logged = [];
    fields = [];
    const log = (level: string) => (about: object, message: string) => {
      fields.push(about);
      logged.push(`${level}: ${message}`);
    };
    inForce = new ConfigInForce({
      onLoaded: ({ generation }, warnings) => {
        events.push(`loaded ${String(generation)}, ${String(warnings.length)} warnings`);
        if (fail) throw new Error('a user of the configuration');
      },
      onRejected: ({ problems }) => {
        events.push(`rejected: ${problems.map(({ message }) => message).join()}`);
        if (fail) throw new Error('a user of the configuration');
      },
      logger: { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') },
    });
  };

  beforeEach(() => {
    start();
  });

  it('is nothing at first, and its first snapshot has the number 1', () => {
    expect(inForce.snapshot).to.equal(undefined);
    expect(inForce.nextGeneration).to.equal(1);
    expect(inForce.isLoaded('a')).to.equal(false);
    expect(inForce.isRefused('a')).to.equal(false);
  });

  it('is the snapshot that was loaded last', () => {
    inForce.load('a', loadedOf('shop', 1));
    const next = loadedOf('store', 2);
    inForce.load('b', next, 'there are other rules');
    expect(inForce.snapshot).to.equal(next.snapshot);
    expect(inForce.nextGeneration).to.equal(3);
    expect([inForce.isLoaded('a'), inForce.isLoaded('b')]).to.deep.equal([false, true]);
    expect(events).to.deep.equal(['loaded 1, 0 warnings', 'loaded 2, 0 warnings']);
    expect(logged).to.deep.equal([
      'info: the configuration is loaded',
      'info: there are other rules',
    ]);
    expect(fields[1]).to.deep.equal({
      generation: 2,
      files: ['a.yaml'],
      rules: 1,
      domains: ['store'],
    });
  });

  it('logs what is doubtful about it, and hands it over', () => {
    const warnings = errorOf('one', 'two').problems;
    inForce.load('a', { ...loadedOf('shop', 1), warnings });
    expect(inForce.warnings).to.deep.equal(warnings);
    expect(events).to.deep.equal(['loaded 1, 2 warnings']);
    expect(logged[1]).to.equal('warn: the configuration is doubtful: a.yaml:1:2 shop: one');
    expect(fields[1]).to.deep.equal({
      warnings: ['a.yaml:1:2 shop: one', 'a.yaml:1:2 shop: two'],
      warningCount: 2,
    });
  });

  it('stays when a newer one is refused, which is told once for each bad state', () => {
    const loaded = loadedOf('shop', 1);
    inForce.load('a', loaded);
    inForce.refuse('b', errorOf('bad'));
    inForce.refuse('b', errorOf('bad'));
    inForce.refuse('c', errorOf('worse'));
    expect(inForce.snapshot).to.equal(loaded.snapshot);
    expect(inForce.problems.map(({ message }) => message)).to.deep.equal(['worse']);
    expect([inForce.isRefused('b'), inForce.isRefused('c')]).to.deep.equal([false, true]);
    expect(events).to.deep.equal(['loaded 1, 0 warnings', 'rejected: bad', 'rejected: worse']);
    expect(logged.slice(1)).to.deep.equal([
      'error: the configuration is rejected, the last good one stays: a.yaml:1:2 shop: bad',
      'error: the configuration is rejected, the last good one stays: a.yaml:1:2 shop: worse',
    ]);
  });

  it('is nothing when the first is refused, and the log says so', () => {
    inForce.refuse('a', errorOf('bad'));
    expect(inForce.snapshot).to.equal(undefined);
    expect(inForce.nextGeneration).to.equal(1);
    expect(logged).to.deep.equal([
      'error: the configuration is rejected, there is none to use: a.yaml:1:2 shop: bad',
    ]);
  });

  it('names 20 problems in the log and counts the rest', () => {
    inForce.refuse('a', errorOf(...Array.from({ length: 22 }, (_, index) => `no ${index}`)));
    const { problems, problemCount } = fields[0] as { problems: string[]; problemCount: number };
    expect(problemCount).to.equal(22);
    expect(problems).to.have.length(21);
    expect(problems.slice(19)).to.deep.equal(['a.yaml:1:2 shop: no 19', 'and 2 more']);
  });

  it('names 20 files and domains in the log and counts the rest', () => {
    const { snapshot, warnings } = loadedOf('shop', 1);
    const numbered = (kind: string) => Array.from({ length: 30 }, (_, index) => `${kind}${index}`);
    const many = { ...snapshot, files: numbered('f'), domains: new Set(numbered('d')) };
    inForce.load('a', { snapshot: many, warnings });
    const { files, domains } = fields[0] as { files: string[]; domains: string[] };
    expect(files.slice(19)).to.deep.equal(['f19', 'and 10 more']);
    expect(domains.slice(19)).to.deep.equal(['d19', 'and 10 more']);
  });

  it('is handed over again when what was refused is taken back', () => {
    inForce.load('a', loadedOf('shop', 1));
    inForce.refuse('b', errorOf('bad'));
    inForce.restore('it is back');
    expect(inForce.problems).to.deep.equal([]);
    expect(inForce.isRefused('b')).to.equal(false);
    expect(events).to.deep.equal(['loaded 1, 0 warnings', 'rejected: bad', 'loaded 1, 0 warnings']);
    expect(logged.at(-1)).to.equal('info: it is back');
  });

  it('is not handed over again when nothing was refused', () => {
    inForce.load('a', loadedOf('shop', 1));
    inForce.restore('it is back');
    expect(events).to.deep.equal(['loaded 1, 0 warnings']);
    expect(logged).to.deep.equal(['info: the configuration is loaded']);
  });

  it('is told the same bad state again once something good came in between', () => {
    inForce.refuse('b', errorOf('bad'));
    inForce.load('a', loadedOf('shop', 1));
    expect(inForce.problems).to.deep.equal([]);
    inForce.refuse('b', errorOf('bad'));
    expect(events).to.deep.equal(['rejected: bad', 'loaded 1, 0 warnings', 'rejected: bad']);
  });

  it('tells nobody of a fault of its own, but logs it', () => {
    inForce.load('a', loadedOf('shop', 1));
    const fault = new TypeError('undefined');
    inForce.refuse('b', fault);
    expect(inForce.isRefused('b')).to.equal(true);
    expect(inForce.problems).to.deep.equal([]);
    expect(events).to.deep.equal(['loaded 1, 0 warnings']);
    expect(logged[1]).to.equal('error: the configuration could not be loaded');
    expect(fields[1]).to.deep.equal({ err: fault });
  });

  it('outlives a user that throws', () => {
    start(true);
    inForce.load('a', loadedOf('shop', 1));
    inForce.refuse('b', errorOf('bad'));
    expect(inForce.isLoaded('a')).to.equal(true);
    expect(inForce.problems).to.have.length(1);
    const failed = 'error: what uses the configuration failed to take it';
    expect([logged[1], logged[3]]).to.deep.equal([failed, failed]);
  });
});
