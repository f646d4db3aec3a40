import { expect } from 'chai';
import { MemoryStore } from '../../src/store/memory.js';
import { StoreRequest } from '../../src/store/store.js';
import { chargeOf, decideOne, limitOf } from '../support/limits.js';
import { storeContract } from './contract.js';

const QUIET = { memoryOverflow: () => undefined };

describe('MemoryStore', () => {
  storeContract(() =>
    Promise.resolve(new MemoryStore({ nowUs: () => Date.now() * 1000, observer: QUIET })),
  );

  const limit = limitOf('fixed_window', 1, { unit: 'minute' });
  let nowUs = 1_700_000_040_000_000;
  let overflows = 0;

  function create(maxCounters: number): MemoryStore {
    overflows = 0;
    return new MemoryStore({
      nowUs: () => nowUs,
      maxCounters,
      observer: { memoryOverflow: () => overflows++ },
    });
  }

  it('settles before decide returns', () => {
    let settled = false;
    const request = new StoreRequest([chargeOf(limit, 'a', 1)], Infinity, () => (settled = true));
    create(10).decide([request], () => undefined);
    expect(settled).to.equal(true);
  });

  it('lets a caller ask again while it is being answered', () => {
    const store = create(10);
    const taken: (boolean | undefined)[] = [];
    const ask = (left: number): void => {
      const request = new StoreRequest([chargeOf(limit, 'a', 1)], Infinity, (settled) => {
        taken.push(settled.outcomes[0]?.taken);
        if (left > 0) ask(left - 1);
      });
      store.decide([request], () => undefined);
    };
    ask(2);
    expect(taken).to.deep.equal([true, false, false]);
  });

  it('decides a counter too many as untouched, does not keep it, and says so', async () => {
    const store = create(2);
    await decideOne(store, [chargeOf(limit, 'a', 1)]);
    await decideOne(store, [chargeOf(limit, 'b', 1)]);
    for (let i = 0; i < 3; i++) {
      const [outcome] = await decideOne(store, [chargeOf(limit, 'c', 1)]);
      expect(outcome).to.include({ taken: true });
    }
    expect(overflows).to.equal(3);
    expect(store.size).to.equal(2);
    // Active ones are never dropped for it.
    expect((await decideOne(store, [chargeOf(limit, 'a', 1)]))[0]).to.include({ taken: false });
  });

  it('adds up charges of one request on a counter that is not kept', async () => {
    const store = create(0);
    const outcomes = await decideOne(store, [chargeOf(limit, 'a', 1), chargeOf(limit, 'a', 1)]);
    expect(outcomes.map((outcome) => outcome.fits)).to.deep.equal([true, false]);
    expect(overflows).to.equal(1);
  });

  it('forgets expired counters as new ones come', async () => {
    const store = create(1000);
    for (let i = 0; i < 1000; i++) {
      await decideOne(store, [chargeOf(limit, `old${String(i)}`, 1)]);
    }
    expect(store.size).to.equal(1000);
    nowUs += 60_000_000;
    for (let i = 0; i < 600; i++) {
      await decideOne(store, [chargeOf(limit, `new${String(i)}`, 1)]);
    }
    expect(overflows).to.equal(0);
    expect(store.size).to.be.at.most(610);
    const [again] = await decideOne(store, [chargeOf(limit, 'new0', 1)]);
    expect(again).to.include({ taken: false });
  });
});
