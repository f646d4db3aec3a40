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

  it('keeps limiting who keeps asking, and every new key, through a flood of keys', async () => {
    const store = create(1000);
    const admitted = async (key: string): Promise<boolean> =>
      (await decideOne(store, [chargeOf(limit, key, 1)]))[0]?.taken === true;
    let abuser = 0;
    let twice = 0;
    for (let i = 0; i < 20_000; i++) {
      if (i % 10 === 0 && (await admitted('abuser'))) abuser++;
      await admitted(`flood${String(i)}`);
      if (await admitted(`flood${String(i)}`)) twice++;
    }
    expect({ abuser, twice, size: store.size }).to.deep.equal({ abuser: 1, twice: 0, size: 1000 });
    expect(overflows).to.equal(20_001 - 1000);
  });

  it('decides a counter that it has no place for as untouched, and says so', async () => {
    const store = create(1);
    const both = [chargeOf(limit, 'a', 1), chargeOf(limit, 'b', 1)];
    for (const outcome of await decideOne(store, both)) expect(outcome).to.include({ taken: true });
    expect(overflows).to.equal(1);
    expect(store.size).to.equal(1);
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
