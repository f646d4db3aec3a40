import { expect } from 'chai';
import * as fc from 'fast-check';
import { MemoryStore } from '../../src/store/memory.js';
import type { StoreCharge, StoreOutcome } from '../../src/store/store.js';
import { histories, runsOf } from '../support/histories.js';
import type { History, Step } from '../support/histories.js';
import { chargeOf, decideAll } from '../support/limits.js';
import { Model } from '../support/model.js';
import { RedisServer } from '../support/redis-server.js';
import { ScriptStore } from '../support/script-store.js';

const QUIET = { memoryOverflow: () => undefined };

interface Taken {
  readonly charge: StoreCharge;
  readonly mark: number;
}

/** What a step of a history asks; an undo names the latest take of its counter that was not undone. */
function toCharge(history: History, step: Step, prefix: string, taken: Taken[]): StoreCharge {
  const plain = history.limits[step.counter];
  if (plain === undefined) throw new Error('no such counter');
  const { burst } = plain;
  const { requests = plain.requests } = step;
  const limit =
    requests === plain.requests
      ? plain
      : {
          ...plain,
          requests,
          burst: plain.algorithm === 'token_bucket' ? burst : requests,
        };
  const key = `${prefix}${limit.keyHead}|${String(step.counter)}`;
  const { mode, role } = step;
  if (mode !== 'undo') return chargeOf(limit, key, step.hits, { mode, role });
  const index = taken.findLastIndex(({ charge }) => charge.key === key);
  const [undone] = index < 0 ? [] : taken.splice(index, 1);
  if (undone === undefined) return chargeOf(limit, key, 0, { mode: 'peek', role });
  const { charge, mark } = undone;
  return chargeOf(limit, key, charge.hits, { mode: 'give_back', role, mark });
}

interface Played {
  readonly nowUs: number;
  readonly requests: StoreCharge[][];
  readonly outcomes: (StoreOutcome | undefined)[][];
}

/** Plays a history through memory; the charges that came of it can then be played elsewhere. */
async function playInMemory(history: History, prefix: string): Promise<Played[]> {
  let nowUs = history.startUs;
  const store = new MemoryStore({ nowUs: () => nowUs, observer: QUIET });
  const taken: Taken[] = [];
  const played: Played[] = [];
  // Every counter is there from the start, so that none is swept while clocks step back.
  const all = [0, 1, 2, 3].map((counter) =>
    toCharge(
      history,
      { counter, hits: 0, mode: 'peek', role: 'shadow', requests: undefined },
      prefix,
      [],
    ),
  );
  await decideAll(store, [all]);
  for (const batch of history.batches) {
    const windowUs = history.limits[batch.of]?.windowUs ?? 0;
    nowUs += Math.floor(batch.windows * windowUs) + batch.afterUs;
    const requests = batch.requests.map((steps) =>
      steps.map((step) => toCharge(history, step, prefix, taken)),
    );
    const settled = await decideAll(store, requests);
    const outcomes = settled.map((request) => request.outcomes);
    requests.forEach((charges, r) => {
      charges.forEach((charge, c) => {
        const outcome = outcomes[r]?.[c];
        if (charge.mode === 'take' && outcome?.taken === true && charge.hits > 0) {
          taken.push({ charge, mark: outcome.mark ?? 0 });
        }
      });
    });
    played.push({ nowUs, requests, outcomes });
  }
  return played;
}

describe('the two halves of each algorithm', () => {
  const twins = runsOf(2000);
  const modelled = runsOf(2000);
  let server: RedisServer;
  let store: ScriptStore;
  let nowUs = 0;

  before(async () => {
    server = await RedisServer.start();
    store = new ScriptStore(server.port, () => nowUs);
    await store.load();
  });

  after(async () => {
    await store.stop();
    await server.stop();
  });

  it(`agree to the microsecond on any history (FAST_CHECK_SEED=${String(twins.seed)})`, async () => {
    let number = 0;
    await fc.assert(
      fc.asyncProperty(histories({ wild: true }), async (history) => {
        const played = await playInMemory(history, `h${String(number++)}|`);
        const replies = played.map((batch) => {
          nowUs = batch.nowUs;
          return decideAll(store, batch.requests);
        });
        for (const [i, reply] of (await Promise.all(replies)).entries()) {
          for (const request of reply) if (request.failure !== undefined) throw request.failure;
          const outcomes = reply.map((request) => request.outcomes);
          expect(outcomes, `batch ${String(i)}`).to.deep.equal(played[i]?.outcomes);
        }
      }),
      twins,
    );
  }).timeout(60_000);

  it(`agree with a model that keeps every hit (FAST_CHECK_SEED=${String(modelled.seed)})`, async () => {
    await fc.assert(
      fc.asyncProperty(histories({ wild: false }), async (history) => {
        const model = new Model();
        for (const [i, batch] of (await playInMemory(history, '')).entries()) {
          const expected = batch.requests.map((charges) => model.decide(charges, batch.nowUs));
          const outcomes = batch.outcomes.map((request) =>
            request.map((outcome) => ({ ...outcome, mark: undefined })),
          );
          expect(outcomes, `batch ${String(i)}`).to.deep.equal(
            expected.map((request) => request.map((outcome) => ({ ...outcome, mark: undefined }))),
          );
        }
      }),
      modelled,
    );
  }).timeout(60_000);
});
