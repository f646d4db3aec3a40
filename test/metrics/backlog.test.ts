import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect } from 'chai';
import { Backlog } from '../../src/metrics/backlog.js';

/** Works for 0.1 ms. */
function toil(): void {
  const endMs = performance.now() + 0.1;
  while (performance.now() < endMs);
}

const LIST = Array.from({ length: 300 }, (_, index) => index);

describe('backlog', () => {
  let worked: number[];
  let done: number;
  let backlog: Backlog<number>;

  beforeEach(() => {
    worked = [];
    done = 0;
    backlog = new Backlog<number>(
      (item) => {
        toil();
        worked.push(item);
      },
      () => {
        done++;
      },
    );
  });

  it('is done at once with a short list, or with none', () => {
    backlog.start([1, 2]);
    expect([worked, done]).to.deep.equal([[1, 2], 1]);
    backlog.start([]);
    expect(done).to.equal(2);
  });

  it('does a long list a little at a time, all of it once and in order', async () => {
    backlog.start(LIST);
    const atOnce = worked.length;
    expect(atOnce).to.be.within(1, 100);
    expect(done).to.equal(0);
    await nextTurn();
    expect(worked.length).to.be.greaterThan(atOnce);
    while (done === 0) await nextTurn();
    await nextTurn();
    expect(worked).to.deep.equal(LIST);
    expect(done).to.equal(1);
  });

  it('does what is left when it has to, and then no more', async () => {
    backlog.start(LIST);
    backlog.finish();
    backlog.finish();
    await nextTurn();
    expect(worked).to.deep.equal(LIST);
    expect(done).to.equal(1);
  });

  it('does what is left of a list before it takes the next', () => {
    backlog.start(LIST);
    backlog.start([1000]);
    expect(worked).to.deep.equal([...LIST, 1000]);
    expect(done).to.equal(2);
  });
});
