import { expect } from 'chai';
import { RollingRatio } from '../../src/metrics/rolling-ratio.js';

describe('RollingRatio', () => {
  it('is 0 when nothing was counted', () => {
    expect(new RollingRatio().ratio(5_000_000)).to.equal(0);
  });

  it('is the part of refusals in the last minute', () => {
    const ratio = new RollingRatio();
    for (let i = 0; i < 100; i++) ratio.count(false, 1_000_000 + i * 100);
    for (let i = 0; i < 50; i++) ratio.count(true, 1_020_000);
    expect(ratio.ratio(1_020_000)).to.equal(50 / 150);
  });

  it('forgets what is older than a minute, slot by slot', () => {
    const ratio = new RollingRatio();
    ratio.count(true, 1_000_000);
    ratio.count(false, 1_030_000);
    expect(ratio.ratio(1_059_999)).to.equal(0.5);
    expect(ratio.ratio(1_060_000)).to.equal(0);
    ratio.count(true, 1_060_000);
    expect(ratio.ratio(1_060_000)).to.equal(0.5);
    expect(ratio.ratio(9_000_000)).to.equal(0);
  });

  it('goes on counting when the clock steps back', () => {
    const ratio = new RollingRatio();
    ratio.count(true, 1_000_000);
    ratio.count(false, 400_000);
    expect(ratio.ratio(400_000)).to.equal(0.5);
  });
});
