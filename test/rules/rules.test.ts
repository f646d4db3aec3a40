import { expect } from 'chai';
import fc from 'fast-check';
import type { Entry } from '../../src/model.js';
import { explain } from '../../src/rules/explain.js';
import {
  compileRules,
  type CompiledRules,
  type DomainDefinition,
  type RuleDefinition,
} from '../../src/rules/rules.js';

type Sketch = readonly [key: string, value?: string | undefined, children?: readonly Sketch[]];

const define = ([key, value, children = []]: Sketch): RuleDefinition => ({
  key,
  value,
  limits: [],
  unlimited: false,
  shadow: false,
  quota: false,
  replaces: [],
  shareThreshold: false,
  hashValue: key === 'secret',
  detailedMetric: false,
  valueToMetric: false,
  metadata: undefined,
  position: { file: 'a.yaml', line: 1, column: 1 },
  children: children.map(define),
});

const domainOf = (...sketches: Sketch[]): DomainDefinition => ({
  name: 'shop',
  rules: sketches.map(define),
});
const compile = (...sketches: Sketch[]): CompiledRules => compileRules([domainOf(...sketches)]);

/** `user=42,verb=get` as entries. */
const entriesOf = (text: string): Entry[] =>
  text.split(',').map((part) => {
    const [key = '', value = ''] = part.split('=', 2);
    return { key, value };
  });

const matched = (rules: CompiledRules, text: string): string | undefined =>
  rules.match('shop', entriesOf(text))?.path;

describe('match', () => {
  it('takes the exact value first, then a wildcard, then the rule without value', () => {
    const rules = compile(['plan'], ['plan', 'g*'], ['plan', 'gold']);
    expect(matched(rules, 'plan=gold')).to.equal('plan=gold');
    expect(matched(rules, 'plan=green')).to.equal('plan=g*');
    expect(matched(rules, 'plan=tin')).to.equal('plan');
  });

  it('takes the wildcard that was declared first, not the longest', () => {
    const rules = compile(['a', 'im*'], ['a', 'img-*']);
    expect(matched(rules, 'a=img-1')).to.equal('a=im*');
  });

  it('needs as many entries as the rule has levels', () => {
    const rules = compile(['a', undefined, [['b']]], ['c']);
    expect(matched(rules, 'a=1')).to.equal('a');
    expect(matched(rules, 'a=1,b=2')).to.equal('a.b');
    expect(matched(rules, 'a=1,b=2,c=3')).to.equal(undefined);
    expect(matched(rules, 'c=1,b=2')).to.equal(undefined);
    expect(matched(rules, 'b=2,a=1')).to.equal(undefined);
  });

  it('does not go back to another rule of a level', () => {
    const rules = compile(
      ['s', 'eu-*', [['a', 'logo']]],
      ['s', '*-de', [['a', 'x']]],
      ['s', undefined, [['a']]],
    );
    expect(matched(rules, 's=eu-de,a=x')).to.equal(undefined);
    expect(matched(rules, 's=ch-de,a=x')).to.equal('s=*-de.a=x');
    expect(matched(rules, 's=us,a=x')).to.equal('s.a');
  });

  it('applies a wildcard to the values of its own key only', () => {
    const rules = compile(['app', '*'], ['tier_gold']);
    expect(matched(rules, 'app=x')).to.equal('app=*');
    expect(matched(rules, 'app_build=77')).to.equal(undefined);
    expect(matched(rules, 'tier=gold')).to.equal(undefined);
  });

  it('takes a key with a star for a pattern over keys, after the exact keys', () => {
    const rules = compile(['svc*'], ['s*', 'x'], ['svc-a', '1']);
    expect(matched(rules, 'svc-a=1')).to.equal('svc-a=1');
    expect(matched(rules, 'svc-a=2')).to.equal('svc*');
    expect(matched(rules, 'svc=y')).to.equal('svc*');
    expect(matched(rules, 'sv=x')).to.equal('s*=x');
    expect(matched(rules, 'sv=y')).to.equal(undefined);
  });

  it('matches nothing with an empty key, without entries, or in an unknown domain', () => {
    const rules = compile(['*'], ['user']);
    expect(rules.match('shop', [{ key: '', value: 'x' }])).to.equal(undefined);
    expect(rules.match('shop', [])).to.equal(undefined);
    expect(rules.match('Shop', entriesOf('user=1'))).to.equal(undefined);
  });

  it('compares keys and values byte for byte', () => {
    const rules = compile(['user', 'Kim']);
    expect(matched(rules, 'user=kim')).to.equal(undefined);
    expect(matched(rules, 'User=Kim')).to.equal(undefined);
  });

  it('is not misled by names that every object has', () => {
    const rules = compile(['user', 'constructor']);
    expect(matched(rules, '__proto__=x')).to.equal(undefined);
    expect(matched(rules, 'user=toString')).to.equal(undefined);
    expect(matched(rules, 'user=constructor')).to.equal('user=constructor');
  });
});

describe('compiled rules', () => {
  it('number all rules densely, in the order of the configuration', () => {
    const rules = compileRules([
      domainOf(['a', undefined, [['b'], ['c']]], ['d']),
      { ...domainOf(['a']), name: 'other' },
    ]);
    expect(
      rules.rules.map(({ index, domain, path }) => `${String(index)} ${domain} ${path}`),
    ).to.deep.equal(['0 shop a', '1 shop a.b', '2 shop a.c', '3 shop d', '4 other a']);
    expect([...rules.domains]).to.deep.equal(['shop', 'other']);
  });

  it('lead from the first level to themselves', () => {
    const { rules } = compile(['a', undefined, [['b', undefined, [['c']]]]]);
    expect(rules[2]?.chain).to.deep.equal([rules[0], rules[1], rules[2]]);
    expect(rules[0]?.chain).to.deep.equal([rules[0]]);
  });

  it('have paths of their own even where the texts are equal', () => {
    const { rules } = compile(['a', 'b.c'], ['a', 'b', [['c']]], ['a=b.c'], ['a', 'b.c#2']);
    expect(rules.map((rule) => rule.path)).to.deep.equal([
      'a=b.c',
      'a=b',
      'a=b.c#2',
      'a=b.c#3',
      'a=b.c#2#2',
    ]);
  });

  it('show a digest in place of a value that must not be seen', () => {
    const { rules } = compile(['api_key', 'sk-1'], ['secret', 'hunter2']);
    expect(rules.map((rule) => rule.path)).to.deep.equal(['api_key#DywQvz0S', 'secret#9S-9MrKz']);
    expect(rules.map((rule) => rule.hashValue)).to.deep.equal([true, true]);
  });

  it('are frozen', () => {
    const { rules } = compile(['a']);
    expect(rules).to.satisfy(Object.isFrozen);
    expect(rules[0]).to.satisfy(Object.isFrozen);
    expect(rules[0]?.keyPart).to.satisfy(Object.isFrozen);
  });
});

describe('explain', () => {
  const reasons = (rules: CompiledRules, text: string): readonly string[] =>
    explain(rules, 'shop', entriesOf(text)).rules.map((rule) => `${rule.path}: ${rule.reason}`);

  it('says of each rule why it matches or not', () => {
    const rules = compile(
      ['plan', 'gold'],
      ['plan', 'g*'],
      ['plan', '*d'],
      ['plan', undefined, [['user']]],
      ['p*'],
      ['ip', '1', [['x']]],
    );
    expect(reasons(rules, 'plan=gold')).to.deep.equal([
      'plan=gold: matches: key and value',
      'plan=g*: the exact value goes first: `plan=gold`',
      'plan=*d: the exact value goes first: `plan=gold`',
      'plan: the exact value goes first: `plan=gold`',
      'plan.user: the exact value goes first: `plan=gold`',
      'p*: the exact key goes first: `plan=gold`',
      "ip=1: the first entry's key is `plan`, not `ip`",
      "ip=1.x: the first entry's key is `plan`, not `ip`",
    ]);
    expect(reasons(rules, 'plan=grid').slice(0, 4)).to.deep.equal([
      "plan=gold: the first entry's value is not `gold`",
      'plan=g*: matches: the first wildcard that covers the value',
      'plan=*d: an earlier wildcard matched: `plan=g*`',
      'plan: a wildcard goes first: `plan=g*`',
    ]);
    expect(reasons(rules, 'plan=tin').slice(3, 5)).to.deep.equal([
      'plan: matches: the key, with any value',
      'plan.user: the descriptor has 1 entry, the rule needs 2',
    ]);
    expect(reasons(rules, 'plan=tin,user=7,x=1').slice(3, 5)).to.deep.equal([
      'plan: the descriptor has 3 entries, the rule needs 1',
      'plan.user: the descriptor has 3 entries, the rule needs 2',
    ]);
  });

  it('says of an empty key that it matches nothing', () => {
    expect(reasons(compile(['*']), '=x')).to.deep.equal([
      '*: the first entry has an empty key, which matches nothing',
    ]);
  });

  it('does not show a value that must not be seen', () => {
    expect(reasons(compile(['secret', 'hunter2']), 'secret=x')).to.deep.equal([
      "secret#9S-9MrKz: the first entry's value is not the hidden one",
    ]);
  });

  it('knows an unknown domain', () => {
    const explained = explain(compile(['a']), 'nope', entriesOf('a=1'));
    expect(explained).to.deep.equal({ domainKnown: false, rule: undefined, rules: [] });
  });
});

describe('match against a matcher that is too simple to be wrong', () => {
  const text = fc.stringMatching(/^[ab*]{0,3}$/);
  const pattern = fc.stringMatching(/^[ab*]{1,4}$/);
  const key = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom('a', 'b', 'ab') },
    { weight: 1, arbitrary: fc.constantFrom('a*', '*b', '*') },
  );
  const level = (depth: number): fc.Arbitrary<Sketch[]> =>
    fc.uniqueArray(
      fc.tuple(
        key,
        fc.option(pattern, { nil: undefined }),
        depth === 0 ? fc.constant<Sketch[]>([]) : level(depth - 1),
      ),
      { maxLength: 5, selector: ([ruleKey, value]) => JSON.stringify([ruleKey, value]) },
    );
  const entry = fc.record({ key: fc.constantFrom('', 'a', 'b', 'ab', 'ba'), value: text });

  /** By regular expression and sorting, level by level. */
  const simple = (
    rules: readonly RuleDefinition[],
    [first, ...rest]: readonly Entry[],
  ): RuleDefinition | undefined => {
    if (first === undefined || first.key === '') return undefined;
    const covers = (wanted: string | undefined, given: string): boolean =>
      wanted === undefined || new RegExp(`^${wanted.replaceAll('*', '.*')}$`).test(given);
    const rank = (rule: RuleDefinition): number[] => [
      rule.key.includes('*') ? rules.findIndex((other) => other.key === rule.key) : -1,
      rule.value === undefined ? 2 : rule.value === first.value ? 0 : 1,
      rules.indexOf(rule),
    ];
    const [best] = rules
      .filter((rule) => covers(rule.key, first.key) && covers(rule.value, first.value))
      .sort((a, b) => {
        const [left, right] = [rank(a), rank(b)];
        const at = left.findIndex((value, index) => value !== right[index]);
        return (left[at] ?? 0) - (right[at] ?? 0);
      });
    return best === undefined || rest.length === 0 ? best : simple(best.children, rest);
  };

  it('finds the same rule, and so does explain', () => {
    fc.assert(
      fc.property(level(2), fc.array(entry, { maxLength: 4 }), (sketches, entries) => {
        const domain = domainOf(...sketches);
        const rules = compileRules([domain]);
        const flat: RuleDefinition[] = [];
        const flatten = (rule: RuleDefinition): void => {
          flat.push(rule);
          rule.children.forEach(flatten);
        };
        domain.rules.forEach(flatten);
        const expected = simple(domain.rules, entries);
        const found = rules.match('shop', entries);
        expect(found?.index).to.equal(expected && flat.indexOf(expected));
        expect(explain(rules, 'shop', entries).rule).to.equal(found);
      }),
      { numRuns: 2000 },
    );
  });
});
