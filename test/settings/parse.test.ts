import { expect } from 'chai';
import {
  ValueError,
  bool,
  duration,
  integer,
  logLevel,
  parseHostPort,
  type Kind,
} from '../../src/settings/parse.js';

function read<T>(kind: Kind<T>, text: string): T | string {
  try {
    return kind.parse(text);
  } catch (error) {
    if (error instanceof ValueError) return 'refused';
    throw error;
  }
}

describe('the kinds of settings', () => {
  for (const [text, ms] of [
    ['10s', 10_000],
    ['1h30m', 5_400_000],
    ['100ms', 100],
    ['1.5h', 5_400_000],
    ['.5s', 500],
    ['250us', 0.25],
    ['0', 0],
    ['+2m', 120_000],
    ['9999h', 2_147_483_647],
    ['10', 'refused'],
    ['-1s', 'refused'],
    ['1d', 'refused'],
    ['s', 'refused'],
    ['1s 2s', 'refused'],
  ] as const) {
    it(`read the duration ${text} as ${ms}`, () => {
      expect(read(duration(), text)).to.equal(ms);
    });
  }

  it('read booleans as Go does', () => {
    expect(['1', 't', 'T', 'TRUE', 'true', 'True'].map((text) => read(bool, text))).to.deep.equal([
      true,
      true,
      true,
      true,
      true,
      true,
    ]);
    expect(['yes', 'on', 'tRUE', 'no'].map((text) => read(bool, text))).to.deep.equal(
      new Array(4).fill('refused'),
    );
  });

  it('read whole numbers within their bounds', () => {
    expect(read(integer(1, 9), '9')).to.equal(9);
    expect(
      ['0', '10', '1.0', '1e0', '', '0x1'].map((text) => read(integer(1, 9), text)),
    ).to.deep.equal(new Array(6).fill('refused'));
  });

  it('read level names in any case', () => {
    const names = [
      'PANIC',
      'Fatal',
      'error',
      'WARN',
      'Warning',
      'info',
      'DEBUG',
      'trace',
      'verbose',
    ];
    expect(names.map((name) => read(logLevel, name))).to.deep.equal([
      'fatal',
      'fatal',
      'error',
      'warn',
      'warn',
      'info',
      'debug',
      'trace',
      'refused',
    ]);
  });

  it('read addresses, IPv6 in brackets', () => {
    expect(parseHostPort('a.b:1')).to.deep.equal({ host: 'a.b', port: 1 });
    expect(parseHostPort(':1')).to.deep.equal({ host: '', port: 1 });
    expect(parseHostPort('[::1]:1')).to.deep.equal({ host: '::1', port: 1 });
    expect(parseHostPort('a', 5)).to.deep.equal({ host: 'a', port: 5 });
    for (const wrong of ['a', '', '::1', 'a:b', 'a:70000', 'a/b:1']) {
      expect(() => parseHostPort(wrong), wrong).to.throw(ValueError);
    }
  });
});
