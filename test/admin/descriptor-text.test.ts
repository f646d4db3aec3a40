import { expect } from 'chai';
import fc from 'fast-check';
import {
  DescriptorTextError,
  formatDescriptor,
  parseDescriptor,
} from '../../src/admin/descriptor-text.js';

describe('a descriptor as text', () => {
  const cases: readonly [text: string, entries: readonly [string, string][]][] = [
    ['user=42', [['user', '42']]],
    [
      'endpoint=/pay?a=b, user=42',
      [
        ['endpoint', '/pay?a=b'],
        ['user', '42'],
      ],
    ],
    ['user=', [['user', '']]],
    ['user', [['user', '']]],
    [
      'note="a, \\"b\\" c",user=1',
      [
        ['note', 'a, "b" c'],
        ['user', '1'],
      ],
    ],
    [
      'path=C:\\dir\\,x,user=1',
      [
        ['path', 'C:\\dir,x'],
        ['user', '1'],
      ],
    ],
    ['  user = 42  ', [['user', '42']]],
  ];
  it('takes no longer for many spaces than for few', () => {
    const text = `a${' '.repeat(200_000)}"`;
    const began = performance.now();
    expect(() => parseDescriptor(text)).to.throw(DescriptorTextError);
    expect(performance.now() - began).to.be.below(500);
  });

  for (const [text, entries] of cases) {
    it(`is read from ${JSON.stringify(text)}`, () => {
      expect(parseDescriptor(text)).to.deep.equal(entries.map(([key, value]) => ({ key, value })));
    });
  }

  for (const text of ['', '=42', ',user=1', '   ']) {
    it(`is not ${JSON.stringify(text)}`, () => {
      expect(() => parseDescriptor(text)).to.throw(DescriptorTextError, /expected `key=value`/);
    });
  }

  it('comes back as it was written', () => {
    const key = fc.stringMatching(/^[a-z_]{1,8}$/);
    const entries = fc.array(fc.record({ key, value: fc.string({ unit: 'grapheme' }) }), {
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(entries, (written) => {
        expect(parseDescriptor(formatDescriptor(written))).to.deep.equal(written);
      }),
    );
  });
});
