import { expect } from 'chai';
import { parseDurationUs } from '../../src/config/duration.js';

describe('a duration', () => {
  for (const [text, us] of [
    ['500ms', 500_000],
    ['10s', 10_000_000],
    ['1m30s', 90_000_000],
    ['1.5s', 1_500_000],
    ['250us', 250],
    ['2h', 7_200_000_000],
    ['0.4us', 0],
  ] as const) {
    it(`${text} is ${String(us)} µs`, () => {
      expect(parseDurationUs(text)).to.equal(us);
    });
  }

  for (const text of ['', '10', 's', '-1s', '1 s', '1d', '1s2', '1e3s', 'ten']) {
    it(`\`${text}\` is none`, () => {
      expect(parseDurationUs(text)).to.equal(undefined);
    });
  }
});
