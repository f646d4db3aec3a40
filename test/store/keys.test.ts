import { expect } from 'chai';
import fc from 'fast-check';
import type { Entry, Limit, Rule } from '../../src/model.js';
import { compileRules, type RuleDefinition } from '../../src/rules/rules.js';
import { CounterKeys, digest, isSecretKey, keyHead } from '../../src/store/keys.js';

const MINUTE: Limit = {
  name: '',
  algorithm: 'fixed_window',
  requests: 1,
  unit: 'minute',
  unitMultiplier: 1,
  windowUs: 60_000_000,
  burst: 1,
  precisionUs: 0,
  onStoreError: 'allow',
  countRejected: undefined,
  disclose: 'full',
  keyHead: 'f60',
};

interface RuleSketch {
  readonly key: string;
  readonly value?: string;
  readonly share?: boolean;
  readonly hash?: boolean;
}

/** The innermost of rules that stand in each other. */
const ruleOf = (...levels: readonly RuleSketch[]): Rule => {
  const define = ([level, ...below]: readonly RuleSketch[]): RuleDefinition[] =>
    level === undefined
      ? []
      : [
          {
            key: level.key,
            value: level.value,
            limits: [MINUTE],
            unlimited: false,
            shadow: false,
            quota: false,
            replaces: [],
            shareThreshold: level.share ?? false,
            hashValue: level.hash ?? false,
            detailedMetric: false,
            valueToMetric: false,
            metadata: undefined,
            position: { file: 'a.yaml', line: 1, column: 1 },
            children: define(below),
          },
        ];
  const rule = compileRules([{ name: 'shop', rules: define(levels) }]).rules.at(-1);
  if (rule === undefined) throw new Error('no rule');
  return rule;
};

const keys = new CounterKeys('');
const keyOf = (entries: readonly (readonly [string, string])[], rule?: Rule, own = false): string =>
  keys.build(
    MINUTE,
    'shop',
    entries.map(([key, value]) => ({ key, value })),
    rule,
    own,
  );

describe('counter keys', () => {
  it('read like the descriptor', () => {
    expect(keyOf([['user', '42']], ruleOf({ key: 'user' }))).to.equal('f60|shop|user=42');
    expect(
      keyOf(
        [
          ['endpoint', '/pay'],
          ['user', 'kim'],
        ],
        ruleOf({ key: 'endpoint', value: '/pay' }, { key: 'user' }),
      ),
    ).to.equal('f60|shop|endpoint=/pay|user=kim');
  });

  it('begin with the prefix as it is', () => {
    const entries = [{ key: 'user', value: '42' }];
    expect(
      new CounterKeys('app:').build(MINUTE, 'shop', entries, ruleOf({ key: 'user' }), false),
    ).to.equal('app:f60|shop|user=42');
  });

  it('are the same whatever was asked before', () => {
    const user = ruleOf({ key: 'user' });
    const secret = ruleOf({ key: 'user', hash: true });
    const nested = ruleOf({ key: 'user' }, { key: 'user' });
    const any = ruleOf({ key: 'n*' });
    const shared = ruleOf({ key: 'user', value: 'a*', share: true });
    const asked: [string, [string, string][], Rule, boolean][] = [
      ['shop', [['user', '1']], user, false],
      ['shop', [['user', '2']], user, false],
      ['shop', [['name', '2']], any, false],
      ['shop', [['nick', '2']], any, false],
      ['mall', [['user', '2']], user, false],
      ['mall', [['user', '2']], secret, false],
      [
        'shop',
        [
          ['user', '1'],
          ['user', '2'],
        ],
        nested,
        false,
      ],
      [
        'shop',
        [
          ['user', '3'],
          ['user', '2'],
        ],
        nested,
        false,
      ],
      ['shop', [['user', 'ab']], shared, true],
      ['shop', [['user', 'ab']], shared, false],
    ];
    const build = (by: CounterKeys, [domain, pairs, rule, own]: (typeof asked)[number]): string =>
      by.build(
        MINUTE,
        domain,
        pairs.map(([key, value]) => ({ key, value })),
        rule,
        own,
      );
    const fresh = asked.map((each) => build(new CounterKeys(''), each));
    expect(new Set(fresh)).to.have.lengthOf(10);
    for (const [i, first] of asked.entries()) {
      for (const [k, second] of asked.entries()) {
        build(keys, first);
        expect(build(keys, second)).to.equal(fresh[k]);
        expect(build(keys, first)).to.equal(fresh[i]);
      }
    }
  });

  it('have a letter for each algorithm and the window in seconds', () => {
    expect(keyHead('fixed_window', 60_000_000)).to.equal('f60');
    expect(keyHead('sliding_window', 1_000_000)).to.equal('s1');
    expect(keyHead('sliding_window_counter', 604_800_000_000)).to.equal('c604800');
    expect(keyHead('token_bucket', 30_000_000)).to.equal('t30');
  });

  it('stay when a rule for the value becomes one for any value, so that the count does', () => {
    const entries = [['buyer', 'vip']] as const;
    const any = keyOf(entries, ruleOf({ key: 'buyer' }));
    expect(keyOf(entries, ruleOf({ key: 'buyer', value: 'vip' }))).to.equal(any);
    expect(keyOf(entries, ruleOf({ key: 'buyer', value: 'v*' }))).to.equal(any);
    expect(keyOf(entries, ruleOf({ key: 'buy*' }))).to.equal(any);
  });

  it('escape what has a meaning, and braces, so that a client chooses no slot', () => {
    expect(keyOf([['a|b={c}', 'x|y={z}%\u0000\r\n#@~']], ruleOf({ key: 'a|b={c}' }))).to.equal(
      'f60|shop|a%7Cb%3D%7Bc%7D=x%7Cy=%7Bz%7D%25%00%0D%0A#@~',
    );
  });

  it('keep values of other scripts and 4-byte characters apart', () => {
    expect(keyOf([['a', '😀']], ruleOf({ key: 'a' }))).to.equal('f60|shop|a=😀');
    expect(keyOf([['a', '']], ruleOf({ key: 'a' }))).to.equal('f60|shop|a=');
  });

  it('are bounded for a value of 64 KiB, and still tell such values apart', () => {
    const long = 'x'.repeat(65_536);
    const rule = ruleOf({ key: 'a' });
    expect(keyOf([['a', long]], rule)).to.have.length(33);
    expect(keyOf([['a', long]], rule)).to.not.equal(keyOf([['a', `${long}y`]], rule));
    expect(keyOf([['a', 'x'.repeat(96)]], rule)).to.equal(`f60|shop|a=${'x'.repeat(96)}`);
    expect(keyOf([['a', 'x'.repeat(97)]], rule)).to.match(/^f60\|shop\|a@[\w-]{22}$/);
  });

  it('are bounded for many entries, a long domain and long keys', () => {
    const entries = Array.from({ length: 32 }, (_, index) => ({
      key: 'k'.repeat(90),
      value: `${'v'.repeat(90)}${String(index)}`,
    }));
    const long = keys.build(MINUTE, 'd'.repeat(10_000), entries, undefined, false);
    expect(long).to.match(/^f60@[\w-]{22}$/);
    expect(keys.build(MINUTE, 'd'.repeat(10_001), entries, undefined, false)).to.not.equal(long);
  });

  describe('of a shared wildcard', () => {
    const rule = ruleOf({ key: 'file', value: 'docs/*', share: true });

    it('are one for all its values', () => {
      expect(keyOf([['file', 'docs/a']], rule)).to.equal('f60|shop|file~docs/*');
      expect(keyOf([['file', 'docs/b']], rule)).to.equal('f60|shop|file~docs/*');
    });

    it('are no client value of an unshared rule', () => {
      expect(keyOf([['file', 'docs/*']], ruleOf({ key: 'file' }))).to.equal('f60|shop|file=docs/*');
    });

    it('are of the real value when the request brings its own limit', () => {
      expect(keyOf([['file', 'docs/a']], rule, true)).to.equal('f60|shop|file=docs/a');
    });

    it('are one also when the values are secret, and do not show the pattern', () => {
      const secret = ruleOf({ key: 'api_key', value: 'free-*', share: true });
      const key = keyOf([['api_key', 'free-1']], secret);
      expect(key).to.match(/^f60\|shop\|api_key~@[\w-]{22}$/);
      expect(keyOf([['api_key', 'free-2']], secret)).to.equal(key);
      expect(keyOf([['api_key', 'free-2']], secret, true)).to.match(/\|api_key#[\w-]{22}$/);
    });

    it('tell the values of an unshared level apart', () => {
      const below = ruleOf({ key: 'bucket', value: 't*', share: true }, { key: 'verb' });
      expect(
        keyOf(
          [
            ['bucket', 't1'],
            ['verb', 'put'],
          ],
          below,
        ),
      ).to.equal('f60|shop|bucket~t*|verb=put');
    });
  });

  it('show no value where no rule says that it is none to hide', () => {
    expect(keyOf([['token', 'hunter2']])).to.match(/^f60\|shop\|token#[\w-]{22}$/);
    expect(keyOf([['token', 'hunter2']])).to.not.equal(keyOf([['token', 'hunter3']]));
  });

  describe('of a secret', () => {
    it('hold a digest in place of the value, whatever the rule looks like', () => {
      for (const rule of [
        undefined,
        ruleOf({ key: 'api_key' }),
        ruleOf({ key: 'api_key', value: 'hunter2' }),
        ruleOf({ key: 'api_key', value: 'hunt*' }),
        ruleOf({ key: 'api*' }),
      ]) {
        expect(keyOf([['api_key', 'hunter2']], rule)).to.equal(
          `f60|shop|api_key#${digest('hunter2')}`,
        );
      }
      expect(isSecretKey('api_key')).to.equal(true);
      expect(isSecretKey('user')).to.equal(false);
    });

    it('do so for any key with hash_value, also a long or a pattern one', () => {
      const long = 'x'.repeat(1000);
      expect(keyOf([['token', long]], ruleOf({ key: 'token', hash: true }))).to.equal(
        `f60|shop|token#${digest(long)}`,
      );
      expect(keyOf([['token', 'hunter2']], ruleOf({ key: 'tok*', hash: true }))).to.equal(
        `f60|shop|token#${digest('hunter2')}`,
      );
    });
  });
});

describe('counter keys of any two charges', () => {
  const part = fc.oneof(
    fc.stringMatching(/^[ab|=~#@%{}*_]{0,4}$/),
    fc.string({ unit: 'grapheme', maxLength: 4 }),
    fc.constantFrom(
      'x'.repeat(96),
      'x'.repeat(97),
      digest('x'.repeat(97)),
      '%7C',
      '\u0000',
      '|a=b',
    ),
  );
  const head = fc.constantFrom('f1', 'f10', 's1', 't1');
  const charge = fc.tuple(
    head,
    part,
    fc.array(fc.tuple(part, part), { minLength: 1, maxLength: 3 }),
  );

  it('are equal only when limit, domain, keys and values are', () => {
    fc.assert(
      fc.property(charge, charge, ([headA, domainA, a], [headB, domainB, b]) => {
        const build = (limitHead: string, domain: string, pairs: [string, string][]): string =>
          keys.build(
            { ...MINUTE, keyHead: limitHead },
            domain,
            pairs.map(([key, value]): Entry => ({ key, value })),
            undefined,
            false,
          );
        const same = JSON.stringify([headA, domainA, a]) === JSON.stringify([headB, domainB, b]);
        expect(build(headA, domainA, a) === build(headB, domainB, b)).to.equal(same);
      }),
      { numRuns: 5000 },
    );
  });

  it('never hold a brace, a line end or a NUL, and are at most 512 characters long', () => {
    fc.assert(
      fc.property(charge, ([limitHead, domain, pairs]) => {
        const key = keys.build(
          { ...MINUTE, keyHead: limitHead },
          domain,
          pairs.map(([entryKey, value]): Entry => ({ key: entryKey, value })),
          undefined,
          false,
        );
        // eslint-disable-next-line no-control-regex -- they are what is looked for
        expect(key).to.not.match(/[{}\u0000-\u001f]/);
        expect(key.length).to.be.lessThan(520);
      }),
    );
  });

  it('of neighbouring texts that join to the same are different', () => {
    const seen = new Set([
      keyOf([['a', 'x_c_y']]),
      keyOf([
        ['a', 'x'],
        ['c', 'y'],
      ]),
      keyOf([['a', 'x|c=y']]),
      keyOf([['a=x|c', 'y']]),
      keys.build(MINUTE, 'shop|a=x', [{ key: 'c', value: 'y' }], undefined, false),
    ]);
    expect(seen.size).to.equal(5);
  });
});
