/** What every store does, whatever keeps its counters: the suite that a new store must pass. */
import { expect } from 'chai';
import { ALGORITHM_NAMES } from '../../src/model.js';
import type { AlgorithmName } from '../../src/model.js';
import type { Store, StoreCharge } from '../../src/store/store.js';
import { StoreRequest } from '../../src/store/store.js';
import { chargeOf, decideAll, decideOne, limitOf } from '../support/limits.js';

export type ResettableStore = Store & { reset(keys: readonly string[]): Promise<number> };

/** Years, so that no window ends while the suite runs, whatever clock the store has. */
const UNIT = { unit: 'year' } as const;

/** `create` starts a store that is ready; keys are new in each test, so it may be the same one. */
export function storeContract(create: () => Promise<ResettableStore>): void {
  let store: ResettableStore;
  let number = 0;
  let prefix = '';

  beforeEach(async () => {
    store = await create();
    prefix = `test${String(number++)}|`;
  });

  afterEach(async () => {
    await store.stop();
  });

  function limit(requests: number, algorithm: AlgorithmName = 'fixed_window') {
    return limitOf(algorithm, requests, UNIT);
  }

  function charge(
    name: string,
    requests: number,
    options: Parameters<typeof chargeOf>[3] & { hits?: number; algorithm?: AlgorithmName } = {},
  ): StoreCharge {
    const { hits = 1, algorithm, ...rest } = options;
    return chargeOf(limit(requests, algorithm), prefix + name, hits, rest);
  }

  async function left(name: string, requests: number, algorithm?: AlgorithmName): Promise<number> {
    const options = algorithm === undefined ? {} : { algorithm };
    const [outcome] = await decideOne(store, [
      charge(name, requests, { hits: 0, mode: 'peek', ...options }),
    ]);
    return outcome?.remaining ?? NaN;
  }

  for (const algorithm of ALGORITHM_NAMES) {
    describe(algorithm, () => {
      it('takes what fits and says what is left', async () => {
        const [first] = await decideOne(store, [charge('a', 10, { hits: 8, algorithm })]);
        expect(first).to.include({ fits: true, taken: true, remaining: 2, retryAfterUs: 0 });
        const [second] = await decideOne(store, [charge('a', 10, { hits: 5, algorithm })]);
        expect(second).to.include({ fits: false, taken: false, remaining: 2 });
        expect(second?.retryAfterUs).to.be.above(0);
        const [third] = await decideOne(store, [charge('a', 10, { hits: 2, algorithm })]);
        expect(third).to.include({ fits: true, taken: true, remaining: 0 });
        const [fourth] = await decideOne(store, [charge('a', 10, { algorithm })]);
        expect(fourth).to.include({ fits: false, taken: false, remaining: 0 });
      });

      it('says that hits above the capacity never fit', async () => {
        const [outcome] = await decideOne(store, [charge('a', 3, { hits: 4, algorithm })]);
        expect(outcome).to.include({ fits: false, remaining: 3, retryAfterUs: -1 });
      });

      it('only looks at a peek, and refuses it only in debt', async () => {
        const peek = charge('a', 2, { hits: 0, mode: 'peek', algorithm });
        expect((await decideOne(store, [peek]))[0]).to.include({ taken: false, remaining: 2 });
        await decideOne(store, [charge('a', 2, { hits: 2, algorithm })]);
        expect((await decideOne(store, [peek]))[0]).to.include({ fits: true, remaining: 0 });
        await decideOne(store, [charge('a', 2, { hits: 1, mode: 'record', algorithm })]);
        expect((await decideOne(store, [peek]))[0]).to.include({ fits: false, remaining: 0 });
      });

      it('takes a record that does not fit, and owes it', async () => {
        const record = charge('a', 4, { hits: 6, mode: 'record', algorithm });
        expect((await decideOne(store, [record]))[0]).to.include({ fits: false, taken: true });
        const giveBack = charge('a', 4, { hits: 3, mode: 'give_back', algorithm });
        expect((await decideOne(store, [giveBack]))[0]).to.include({
          fits: true,
          taken: true,
          remaining: 1,
        });
      });

      it('gives back, never beyond empty', async () => {
        await decideOne(store, [charge('a', 5, { hits: 5, algorithm })]);
        await decideOne(store, [charge('a', 5, { hits: 3, mode: 'give_back', algorithm })]);
        expect(await left('a', 5, algorithm)).to.equal(3);
        await decideOne(store, [charge('a', 5, { hits: 100, mode: 'give_back', algorithm })]);
        expect(await left('a', 5, algorithm)).to.equal(5);
      });

      it('undoes the take that a mark names', async () => {
        const [taken] = await decideOne(store, [charge('a', 5, { hits: 2, algorithm })]);
        await decideOne(store, [charge('a', 5, { hits: 1, algorithm })]);
        const mark = taken?.mark ?? NaN;
        await decideOne(store, [charge('a', 5, { hits: 2, mode: 'give_back', mark, algorithm })]);
        expect(await left('a', 5, algorithm)).to.equal(4);
      });

      if (algorithm !== 'token_bucket') {
        it('undoes nothing for a mark of long ago', async () => {
          await decideOne(store, [charge('a', 5, { hits: 2, algorithm })]);
          const undo = charge('a', 5, { hits: 2, mode: 'give_back', mark: 1, algorithm });
          await decideOne(store, [undo]);
          expect(await left('a', 5, algorithm)).to.equal(3);
        });
      }

      it('refuses every hit of a limit of 0, and answers a look', async () => {
        const [hit] = await decideOne(store, [charge('a', 0, { algorithm })]);
        expect(hit).to.include({ fits: false, taken: false, remaining: 0, retryAfterUs: -1 });
        const look = charge('a', 0, { hits: 0, mode: 'peek', algorithm });
        expect((await decideOne(store, [look]))[0]).to.include({ fits: true, remaining: 0 });
      });

      it('admits exactly the limit of 50 requests in one batch', async () => {
        const batch = Array.from({ length: 50 }, () => [charge('a', 7, { algorithm })]);
        const settled = await decideAll(store, batch);
        expect(settled.map((request) => request.outcomes[0]?.taken)).to.deep.equal(
          Array.from({ length: 50 }, (_, i) => i < 7),
        );
      });

      it('keeps the count when the number changes', async () => {
        await decideOne(store, [charge('a', 10, { hits: 4, algorithm })]);
        const [outcome] = await decideOne(store, [charge('a', 6, { hits: 2, algorithm })]);
        expect(outcome).to.include({ fits: true, remaining: 0 });
      });
    });
  }

  it('takes nothing of a request of which one limit refuses', async () => {
    await decideOne(store, [charge('full', 1)]);
    const outcomes = await decideOne(store, [charge('wide', 9), charge('full', 1)]);
    expect(outcomes[0]).to.include({ fits: true, taken: false, remaining: 9, mark: 0 });
    expect(outcomes[1]).to.include({ fits: false, taken: false, remaining: 0 });
    expect(await left('wide', 9)).to.equal(9);
  });

  it('takes records and give-backs of a refused request', async () => {
    await decideOne(store, [charge('full', 1), charge('back', 9, { hits: 5 })]);
    await decideOne(store, [
      charge('full', 1),
      charge('record', 9, { mode: 'record', hits: 2 }),
      charge('back', 9, { mode: 'give_back', hits: 3 }),
    ]);
    expect(await left('record', 9)).to.equal(7);
    expect(await left('back', 9)).to.equal(7);
  });

  it('refuses a request whose record does not fit', async () => {
    const outcomes = await decideOne(store, [
      charge('wide', 9),
      charge('owing', 1, { mode: 'record', hits: 2 }),
    ]);
    expect(outcomes[0]).to.include({ fits: true, taken: false });
    expect(outcomes[1]).to.include({ fits: false, taken: true });
  });

  it('refuses a request whose peek does not fit', async () => {
    await decideOne(store, [charge('owing', 1, { mode: 'record', hits: 2 })]);
    const peek = charge('owing', 1, { mode: 'peek', hits: 0 });
    const outcomes = await decideOne(store, [charge('wide', 9), peek]);
    expect(outcomes[0]).to.include({ fits: true, taken: false });
  });

  it('takes a shadow charge that fits, and lets none veto', async () => {
    const shadow = charge('shadow', 1, { role: 'shadow' });
    const first = await decideOne(store, [shadow, charge('wide', 9)]);
    expect(first.map((outcome) => outcome.taken)).to.deep.equal([true, true]);
    const second = await decideOne(store, [shadow, charge('wide', 9)]);
    expect(second.map((outcome) => outcome.taken)).to.deep.equal([false, true]);
    expect(second[0]).to.include({ fits: false });
  });

  it('takes no shadow charge of a refused request', async () => {
    await decideOne(store, [charge('full', 1)]);
    await decideOne(store, [charge('shadow', 9, { role: 'shadow' }), charge('full', 1)]);
    expect(await left('shadow', 9)).to.equal(9);
  });

  it('refuses a request only when all its quotas are used up', async () => {
    const request = [
      charge('one', 1, { role: 'quota' }),
      charge('three', 3, { role: 'quota' }),
      charge('wide', 9),
    ];
    const admitted: (boolean | undefined)[] = [];
    for (let i = 0; i < 4; i++) admitted.push((await decideOne(store, request))[2]?.taken);
    expect(admitted).to.deep.equal([true, true, true, false]);
    expect(await left('wide', 9)).to.equal(6);
  });

  it('adds up charges of one request on one counter', async () => {
    const both = [charge('a', 5, { hits: 3 }), charge('a', 5, { hits: 3 })];
    const refused = await decideOne(store, both);
    expect(refused.map((outcome) => outcome.fits)).to.deep.equal([true, false]);
    expect(refused.map((outcome) => outcome.retryAfterUs)).to.deep.equal([0, -1]);
    expect(await left('a', 5)).to.equal(5);
    const fitting = await decideOne(store, [charge('a', 5, { hits: 3 }), charge('a', 5)]);
    // What is reported is so after the whole request.
    expect(fitting.map((outcome) => outcome.remaining)).to.deep.equal([1, 1]);
  });

  it('shows later requests of a batch what earlier ones took', async () => {
    const settled = await decideAll(store, [
      [charge('a', 3, { hits: 2 })],
      [charge('a', 3, { hits: 2 })],
      [charge('a', 3), charge('b', 1)],
      [charge('b', 1)],
      [charge('a', 3, { hits: 3, mode: 'give_back' })],
      [charge('a', 3, { hits: 3 })],
    ]);
    expect(
      settled.map((request) => request.outcomes.map((outcome) => outcome?.taken)),
    ).to.deep.equal([[true], [false], [true, true], [false], [true], [true]]);
  });

  it('mixes algorithms in one request, and in one batch', async () => {
    const request = ALGORITHM_NAMES.map((algorithm) => charge(algorithm, 2, { algorithm }));
    const settled = await decideAll(store, [request, request, request]);
    expect(settled.map((one) => one.outcomes.map((outcome) => outcome?.taken))).to.deep.equal([
      [true, true, true, true],
      [true, true, true, true],
      [false, false, false, false],
    ]);
  });

  it('decides exactly when a batch is larger than one call carries', async () => {
    const batch = Array.from({ length: 600 }, (_, i) => [
      charge('a', 450),
      ...Array.from({ length: 5 }, (__, j) => charge(`own${String(i)}.${String(j)}`, 1)),
    ]);
    const settled = await decideAll(store, batch);
    expect(settled.filter((request) => request.outcomes[0]?.taken === true)).to.have.length(450);
  });

  it('tells its time', async () => {
    const [request] = await decideAll(store, [[charge('a', 1)]]);
    expect(request?.nowUs).to.be.within(1_600_000_000_000_000, 4_000_000_000_000_000);
  });

  it('leaves out what was settled before', async () => {
    const settled = new StoreRequest([charge('a', 1)], Infinity, () => undefined);
    settled.settle();
    await new Promise<void>((resolve) => {
      store.decide([settled], resolve);
    });
    expect(settled.outcomes[0]).to.equal(undefined);
    expect(await left('a', 1)).to.equal(1);
  });

  it('says that an empty batch is done', async () => {
    await new Promise<void>((resolve) => {
      store.decide([], resolve);
    });
  });

  it('forgets counters that are reset, and says how many there were', async () => {
    await decideOne(store, [charge('a', 1), charge('b', 1, { algorithm: 'sliding_window' })]);
    expect(await store.reset([`${prefix}a`, `${prefix}b`, `${prefix}none`])).to.equal(2);
    expect(await left('a', 1)).to.equal(1);
    expect(await left('b', 1, 'sliding_window')).to.equal(1);
    expect(await store.reset([])).to.equal(0);
  });

  it('drops a connection without losing its counters', async () => {
    await decideOne(store, [charge('a', 2)]);
    store.reconnect();
    let request: StoreRequest | undefined;
    for (let i = 0; i < 200; i++) {
      [request] = await decideAll(store, [[charge('a', 2, { hits: 0, mode: 'peek' })]]);
      if (request?.failure === undefined) break;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    expect(request?.outcomes[0]).to.include({ remaining: 1 });
  });
}
