import { expect } from 'chai';
import fc from 'fast-check';
import { compilePattern, matchesPattern } from '../../src/rules/wildcard.js';

const covers = (pattern: string, text: string): boolean =>
  matchesPattern(compilePattern(pattern), text);

describe('a wildcard', () => {
  for (const [pattern, text, expected] of [
    ['img-*', 'img-', true],
    ['img-*', 'img-1', true],
    ['img-*', 'im', false],
    ['*.cdn.test', 'eu.cdn.test', true],
    ['*.cdn.test', '.cdn.test', true],
    ['*.cdn.test', 'cdn.test', false],
    ['/clips/*/play', '/clips/a/b/play', true],
    ['/clips/*/play', '/clips//play', true],
    ['/clips/*/play', '/clips/play', false],
    ['/clips/*/play', 'x/clips/1/play', false],
    ['abc*cde', 'abcde', false],
    ['abc*cde', 'abccde', true],
    ['/v*/items/*/raw', '/v1/items/7/raw', true],
    ['/v*/items/*/raw', '/v1/items/raw', false],
    ['a*bc*cd', 'abcd', false],
    ['a*bc*cd', 'abccd', true],
    ['*', '', true],
    ['**', 'x', true],
    ['a.?[b]+*', 'a.?[b]+zip', true],
    ['a.?[b]+*', 'axb', false],
    ['a*', '*', false],
  ] as const) {
    it(`${pattern} ${expected ? 'covers' : 'does not cover'} \`${text}\``, () => {
      expect(covers(pattern, text)).to.equal(expected);
    });
  }

  it('covers what the regular expression with `.*` for each star does', () => {
    const pattern = fc.stringMatching(/^[ab*]{0,3}\*[ab*]{0,4}$/);
    fc.assert(
      fc.property(pattern, fc.stringMatching(/^[ab]{0,8}$/), (wildcard, text) => {
        const expected = new RegExp(`^${wildcard.replaceAll('*', '.*')}$`).test(text);
        expect(covers(wildcard, text)).to.equal(expected);
      }),
      { numRuns: 5000 },
    );
  });

  it('takes no longer than pattern times text, whatever a client sends', () => {
    const startMs = performance.now();
    expect(covers(`${'a*'.repeat(50)}b`, 'a'.repeat(60_000))).to.equal(false);
    expect(performance.now() - startMs).to.be.lessThan(1000);
  });
});
