import { expect } from 'chai';
import fc from 'fast-check';
import { HeavyHitters } from '../../src/admin/heavy-hitters.js';

describe('heavy hitters', () => {
  it('are exact while there are no more values than entries', () => {
    const sketch = new HeavyHitters(3);
    for (const key of ['a', 'b', 'a', 'c', 'a', 'b']) sketch.offer(key, 1, false);
    expect(sketch.top()).to.deep.equal([
      { key: 'a', count: 3, error: 0, rejected: 0 },
      { key: 'b', count: 2, error: 0, rejected: 0 },
      { key: 'c', count: 1, error: 0, rejected: 0 },
    ]);
  });

  it('keep refusals apart', () => {
    const sketch = new HeavyHitters(2);
    sketch.offer('a', 1, false);
    sketch.offer('a', 8, true);
    expect(sketch.top()).to.deep.equal([{ key: 'a', count: 9, error: 0, rejected: 8 }]);
  });

  it('give the entry of the lightest to a newcomer, with its count as the error', () => {
    const sketch = new HeavyHitters(2);
    sketch.offer('a', 5, true);
    sketch.offer('b', 2, true);
    sketch.offer('c', 1, false);
    expect(sketch.top()).to.deep.equal([
      { key: 'a', count: 5, error: 0, rejected: 5 },
      { key: 'c', count: 3, error: 2, rejected: 0 },
    ]);
  });

  it('hold every value above its share, and bound each count by its error', () => {
    const stream = fc.array(
      fc.tuple(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 1, max: 9 })),
    );
    fc.assert(
      fc.property(stream, fc.integer({ min: 1, max: 8 }), (offers, capacity) => {
        const sketch = new HeavyHitters(capacity);
        const truth = new Map<string, number>();
        let total = 0;
        for (const [value, weight] of offers) {
          const key = String(value);
          sketch.offer(key, weight, false);
          truth.set(key, (truth.get(key) ?? 0) + weight);
          total += weight;
        }
        const held = new Map(sketch.top().map((found) => [found.key, found]));
        expect(held.size).to.be.at.most(capacity);
        for (const [key, count] of truth) {
          const found = held.get(key);
          if (count > total / capacity) expect(found, `${key} of ${total}`).to.exist;
          if (found === undefined) continue;
          expect(found.count).to.be.at.least(count);
          expect(found.count - found.error).to.be.at.most(count);
        }
      }),
    );
  });

  it('find the heavy among a million light ones', () => {
    const sketch = new HeavyHitters(100);
    for (let i = 0; i < 1_000_000; i++) {
      sketch.offer(i % 20 === 0 ? 'heavy' : `light-${i}`, 1, false);
    }
    expect(sketch.top(1)[0]).to.include({ key: 'heavy' });
    expect(sketch.size).to.equal(100);
  });
});
