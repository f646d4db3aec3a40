import { readdirSync, readFileSync } from 'node:fs';
import { expect } from 'chai';
import { loadConfig, type ConfigFile, type Loaded } from '../../src/config/load.js';
import { ConfigError, formatProblem } from '../../src/config/problems.js';
import type { Limit, Rule } from '../../src/model.js';

const FIXTURES = new URL('fixtures/', import.meta.url);

const load = (files: readonly ConfigFile[], mergeDomains = false): Loaded =>
  loadConfig(files, {
    mergeDomains,
    defaultOnStoreError: 'allow',
    generation: 7,
    nowMs: 1_700_000_000_000,
  });

const loadText = (text: string): Loaded => load([{ name: 'limits.yaml', text }]);

/** Rules for the descriptors, of the domain `shop`. */
const rulesOf = (descriptors: string): readonly Rule[] =>
  loadText(`domain: shop\ndescriptors:\n${descriptors}`).snapshot.rules;

const limitOf = (fields: string): Limit | undefined =>
  rulesOf(`  - {key: user, rate_limit: {${fields}}}\n`)[0]?.limits[0];

const problemsOf = (files: readonly ConfigFile[], mergeDomains = false): readonly string[] => {
  try {
    load(files, mergeDomains);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map(formatProblem);
    throw error;
  }
  return [];
};

describe('mistakes in a configuration file', () => {
  it('are printed without the control characters of the names in it', () => {
    const esc = String.fromCharCode(27);
    const problem = {
      file: `a${esc}[2J.yaml`,
      line: 1,
      column: 2,
      path: 'shop',
      message: 'b\u202ec',
    };
    expect(formatProblem(problem)).to.equal('a\\u{1b}[2J.yaml:1:2 shop: b\\u{202e}c');
  });

  for (const name of readdirSync(FIXTURES)) {
    it(`are reported: ${name}`, () => {
      const text = readFileSync(new URL(name, FIXTURES), 'utf8');
      const head = (kind: string): string[] =>
        [...text.matchAll(new RegExp(`^# ${kind}: (.*)$`, 'gm'))].map((match) => match[1] ?? '');
      const expected = head('expect').map((line) => `f:${line}`);
      expect(expected.length + head('warn').length).to.be.greaterThan(0);
      expect(problemsOf([{ name: 'f', text }])).to.deep.equal(expected);
      if (expected.length > 0) return;
      const warnings = load([{ name: 'f', text }]).warnings.map(formatProblem);
      expect(warnings).to.deep.equal(head('warn').map((line) => `f:${line}`));
    });
  }

  it('of a file with a sibling of the same key name the path and hint at the list', () => {
    const text =
      'domain: shop\ndescriptors:\n' +
      '  - {key: user, rate_limit: {unit: second, requests_per_unit: 10}}\n' +
      '  - {key: user, rate_limit: {unit: day, requests_per_unit: 100}}\n';
    expect(problemsOf([{ name: 'a.yaml', text }])).to.deep.equal([
      'a.yaml:4:5 shop.user: `shop.user` is declared twice, first at a.yaml:3; for several limits on one key use the list `rate_limits`',
    ]);
  });

  it('of all files are reported at once, by file and line', () => {
    const bad = 'domain: shop\nbogus: 1\nworse: 2\n';
    expect(
      problemsOf([
        { name: 'b.yaml', text: 'descriptors: 3\n' },
        { name: 'a.yaml', text: bad },
      ]),
    ).to.deep.equal([
      'a.yaml:2:1: unknown key `bogus`',
      'a.yaml:3:1: unknown key `worse`',
      'b.yaml:1:1: the domain is missing or empty: the file needs a `domain`',
      'b.yaml:1:14 descriptors: is a number where a list of maps belongs',
    ]);
  });

  it('carry a code for programs', () => {
    expect(() => loadText(''))
      .to.throw(ConfigError)
      .with.property('code', 'invalid_config');
  });

  it('never show a secret value', () => {
    for (const entry of [
      '{key: api_key, value: hunter2, colour: x}',
      '{key: token, value: hunter2, hash_value: true, share_threshold: true}',
      '{key: api_key, value: "hunter2"}\n  - {key: api_key, value: hunter2}',
      '{key: api_key, value: hunter2: x}',
      '{key: api_key, value: 12e4}',
    ]) {
      const text = `domain: shop\ndescriptors:\n  - ${entry}\n`;
      const problems = problemsOf([{ name: 'a', text }]).join('\n');
      expect(problems).to.not.equal('');
      expect(problems).to.not.contain('hunter2').and.not.contain('12e4');
    }
  });

  it('are listed up to a thousand', () => {
    const text = `domain: shop\ndescriptors:\n${'  - {key: a, nope: 1}\n'.repeat(2000)}`;
    expect(problemsOf([{ name: 'a', text }])).to.have.length(1000);
  });

  it('of a file that is nested without end are a problem, not a crash', () => {
    for (const text of [
      `domain: shop\ndescriptors: ${'[{key: a, descriptors: '.repeat(300)}${'}]'.repeat(300)}\n`,
      '['.repeat(100_000),
      '{a: '.repeat(50_000),
      '- '.repeat(50_000),
      '? '.repeat(50_000),
    ]) {
      expect(problemsOf([{ name: 'a', text }]).join()).to.match(/^a:\d+:\d+: nested too deeply$/);
    }
  });

  it('do not include levels as deep as a descriptor can have entries', () => {
    const text = `domain: shop\ndescriptors: ${'[{key: a, descriptors: '.repeat(32)}[]${'}]'.repeat(32)}\n`;
    expect(problemsOf([{ name: 'a', text }])).to.deep.equal([]);
  });
});

describe('a loaded configuration', () => {
  it('says when, from what and as which generation it was loaded', () => {
    const { snapshot } = load([
      { name: 'b.yaml', text: 'domain: two\n' },
      { name: 'a.yaml', text: 'domain: one\n' },
    ]);
    expect(snapshot.generation).to.equal(7);
    expect(snapshot.loadedAtMs).to.equal(1_700_000_000_000);
    expect(snapshot.files).to.deep.equal(['a.yaml', 'b.yaml']);
    expect([...snapshot.domains]).to.deep.equal(['one', 'two']);
  });

  it('is frozen throughout', () => {
    const { snapshot } = loadText(
      'domain: shop\ndescriptors:\n  - {key: user, metadata: {a: [1]}, rate_limit: {unit: day, requests_per_unit: 1}}\n',
    );
    const [rule] = snapshot.rules;
    for (const part of [snapshot, snapshot.rules, rule, rule?.limits, rule?.limits[0]]) {
      expect(part).to.satisfy(Object.isFrozen);
    }
    expect(rule?.metadata).to.satisfy(Object.isFrozen);
    expect(rule?.metadata?.['a']).to.satisfy(Object.isFrozen);
    expect(rule?.chain).to.satisfy(Object.isFrozen);
  });

  it('has no domain when there is no file', () => {
    expect(load([]).snapshot.domains.size).to.equal(0);
  });

  it('may come with a byte order mark, CRLF, comments, `---`, or as JSON', () => {
    for (const text of [
      '\ufeffdomain: shop\ndescriptors:\n  - {key: user}\n',
      'domain: shop\r\ndescriptors:\r\n  - key: user\r\n',
      '# a\n---\n# b\ndomain: shop # c\ndescriptors:\n  - key: user # d\n---\n',
      '{"domain":"shop","descriptors":[{"key":"user"}]}',
    ]) {
      expect(loadText(text).snapshot.match('shop', [{ key: 'user', value: 'x' }])).to.not.equal(
        undefined,
      );
    }
  });

  it('has anchors, aliases and merge keys resolved; own keys go first', () => {
    const rules = rulesOf(
      '  - {key: a, rate_limit: &hourly {unit: hour, requests_per_unit: 3}}\n' +
        '  - {key: b, rate_limit: *hourly}\n' +
        '  - {key: c, rate_limit: {requests_per_unit: 4, <<: *hourly}}\n' +
        '  - {key: d, rate_limit: {<<: [{unit: day}, *hourly]}}\n',
    );
    expect(rules.map(({ limits: [limit] }) => [limit?.unit, limit?.requests])).to.deep.equal([
      ['hour', 3],
      ['hour', 3],
      ['hour', 4],
      ['day', 3],
    ]);
  });

  it('keeps bare words, numbers and dates as the text they are, where text belongs', () => {
    const values = ['true', 'yes', 'off', '012', '08', '1_000', '+7', '0o17', '0b11', '0x1F'];
    values.push('2023-05-01', '12:30:45', '198.51.100.7', '::1', '9223372036854775807', '=', 'n');
    const rules = rulesOf(values.map((value) => `  - {key: y, value: ${value}}\n`).join(''));
    expect(rules.map((rule) => rule.value)).to.deep.equal(values);
    expect(rules[0]?.key).to.equal('y');
  });

  it('takes the booleans of YAML 1.1 where a boolean belongs', () => {
    for (const yes of ['true', 'True', 'TRUE', 'yes', 'on', 'y', '!!bool true']) {
      expect(rulesOf(`  - {key: a, shadow_mode: ${yes}}\n`)[0]?.shadow, yes).to.equal(true);
    }
    for (const no of ['false', 'no', 'Off', 'n', '~', '']) {
      expect(rulesOf(`  - {key: a, shadow_mode: ${no}}\n`)[0]?.shadow, no).to.equal(false);
    }
  });

  it('takes null for left out', () => {
    const [rule] = rulesOf('  - {key: a, value: ~, rate_limit: ~, descriptors:, metadata: null}\n');
    expect(rule?.value).to.equal(undefined);
    expect(rule?.limits).to.deep.equal([]);
    expect(rule?.metadata).to.equal(undefined);
  });

  it('keeps the types of metadata, and its keys as text', () => {
    const [rule] = rulesOf(
      '  - {key: a, metadata: {i: 7, f: 2.5, b: true, n: ~, l: [1, x, {why: z}], y: {5: five, no: b}, __proto__: 1}}\n',
    );
    expect(JSON.stringify(rule?.metadata)).to.equal(
      '{"i":7,"f":2.5,"b":true,"n":null,"l":[1,"x",{"why":"z"}],"y":{"5":"five","no":"b"},"__proto__":1}',
    );
  });

  it('has the rule of each place, with its position and flags', () => {
    const [outer, inner] = rulesOf(
      '  - key: plan\n    value: gold\n    descriptors:\n' +
        '      - key: user\n        quota_mode: true\n        detailed_metric: true\n        value_to_metric: yes\n' +
        '        rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: a}, {name: b}, {name: a}]}\n',
    );
    expect(outer?.path).to.equal('plan=gold');
    expect(inner?.path).to.equal('plan=gold.user');
    expect(inner?.position).to.deep.equal({ file: 'limits.yaml', line: 6, column: 9 });
    expect(inner?.quota).to.equal(true);
    expect(inner?.shadow).to.equal(false);
    expect(inner?.detailedMetric).to.equal(true);
    expect(inner?.valueToMetric).to.equal(true);
    expect(inner?.replaces).to.deep.equal(['a', 'b']);
  });

  it('has `unlimited` instead of a limit', () => {
    const [rule] = rulesOf('  - {key: ip, rate_limit: {unlimited: true}}\n');
    expect(rule?.unlimited).to.equal(true);
    expect(rule?.limits).to.deep.equal([]);
  });

  it('has every limit of a list', () => {
    const [rule] = rulesOf(
      '  - key: user\n    rate_limits:\n      - {unit: second, requests_per_unit: 10, name: burst}\n' +
        '      - {unit: day, requests_per_unit: 100}\n      - {unit: day, requests_per_unit: 100, algorithm: token_bucket}\n',
    );
    expect(rule?.limits.map((limit) => limit.keyHead)).to.deep.equal(['f1', 'f86400', 't86400']);
    expect(rule?.limits.map((limit) => limit.name)).to.deep.equal(['burst', '', '']);
  });

  it('lets `rate_limits` name limits of other rules in `replaces`, each entry its own', () => {
    const rules = rulesOf(
      '  - {key: a, rate_limits: [{unit: day, requests_per_unit: 1, replaces: [{name: x}]}, {unit: hour, requests_per_unit: 1, replaces: [{name: y}]}]}\n' +
        '  - {key: b, rate_limits: [{unit: day, requests_per_unit: 1, name: x}, {unit: hour, requests_per_unit: 1, name: y}]}\n',
    );
    expect(rules[0]?.replaces).to.deep.equal(['x', 'y']);
  });
});

describe('a loaded limit', () => {
  it('has defaults for what is left out', () => {
    expect(limitOf('unit: MINUTE, requests_per_unit: 5')).to.deep.equal({
      name: '',
      algorithm: 'fixed_window',
      requests: 5,
      unit: 'minute',
      unitMultiplier: 1,
      windowUs: 60_000_000,
      burst: 5,
      precisionUs: 0,
      onStoreError: 'allow',
      countRejected: undefined,
      disclose: 'full',
      keyHead: 'f60',
    });
  });

  it('has what is written', () => {
    expect(
      limitOf(
        'name: x, unit: second, unit_multiplier: 30, requests_per_unit: 3, algorithm: sliding_window_counter, precision: 250ms, on_store_error: local, count_rejected: no, disclose: none',
      ),
    ).to.deep.equal({
      name: 'x',
      algorithm: 'sliding_window_counter',
      requests: 3,
      unit: 'second',
      unitMultiplier: 30,
      windowUs: 30_000_000,
      burst: 3,
      precisionUs: 250_000,
      onStoreError: 'local',
      countRejected: false,
      disclose: 'none',
      keyHead: 'c30',
    });
  });

  it('lumps a sixtieth of the window together when no precision is given', () => {
    const of = (unit: string): number | undefined =>
      limitOf(`unit: ${unit}, requests_per_unit: 1, algorithm: sliding_window_counter`)
        ?.precisionUs;
    expect(of('second')).to.equal(16_666);
    expect(of('minute')).to.equal(1_000_000);
    expect(of('week')).to.equal(10_080_000_000);
  });

  it('has a burst of its own for a token bucket', () => {
    const limit = limitOf('unit: second, requests_per_unit: 2, algorithm: token_bucket, burst: 50');
    expect(limit?.burst).to.equal(50);
    expect(limit?.keyHead).to.equal('t1');
  });

  it('takes the bounds themselves', () => {
    expect(
      limitOf(
        'unit: year, unit_multiplier: 10, requests_per_unit: 4294967295, algorithm: token_bucket, burst: 4294967295',
      )?.windowUs,
    ).to.equal(315_360_000_000_000);
    expect(
      limitOf('unit: day, requests_per_unit: 10000, algorithm: sliding_window')?.requests,
    ).to.equal(10_000);
    for (const precision of ['60ms', '15s']) {
      limitOf(
        `unit: minute, requests_per_unit: 1, algorithm: sliding_window_counter, precision: ${precision}`,
      );
    }
  });

  it('is read as YAML 1.1 reads whole numbers', () => {
    for (const [text, requests] of [
      ['1_000', 1000],
      ['+7', 7],
      ['0x10', 16],
      ['0b11', 3],
      ['0o17', 15],
      ['017', 15],
      ['0', 0],
    ] as const) {
      expect(limitOf(`unit: day, requests_per_unit: ${text}`)?.requests, text).to.equal(requests);
    }
  });
});

describe('files of one domain', () => {
  const a = {
    name: 'a.yaml',
    text: 'domain: joint\ndescriptors:\n  - {key: k, value: "x*", rate_limit: {name: kk, unit: hour, requests_per_unit: 3}}\n',
  };
  const b = {
    name: 'b.yaml',
    text: 'domain: joint\ndescriptors:\n  - {key: k, value: "xy*", rate_limit: {replaces: [{name: kk}], unit: hour, requests_per_unit: 5}}\n',
  };

  it('are refused when merging is off', () => {
    expect(problemsOf([a, b])).to.deep.equal([
      'b.yaml:1:9 domain: `joint` is declared in a.yaml already; files of one domain are merged with MERGE_DOMAIN_CONFIG=true',
    ]);
  });

  it('are merged in the order of their names, so that the first file wins among wildcards', () => {
    for (const files of [
      [a, b],
      [b, a],
    ]) {
      const { snapshot, warnings } = load(files, true);
      expect(snapshot.match('joint', [{ key: 'k', value: 'xyz' }])?.limits[0]?.requests).to.equal(
        3,
      );
      expect(warnings).to.deep.equal([]);
    }
  });

  it('may not hold the same rule', () => {
    expect(problemsOf([a, { ...a, name: 'b.yaml' }], true)).to.deep.equal([
      'b.yaml:3:5 joint.k=x*: `joint.k=x*` is declared twice, first at a.yaml:3; for several limits on one key use the list `rate_limits`',
    ]);
  });

  it('add nothing when they hold the domain alone', () => {
    const { snapshot } = load([a, { name: 'b.yaml', text: 'domain: joint\n' }], true);
    expect(snapshot.rules).to.have.length(1);
  });
});
