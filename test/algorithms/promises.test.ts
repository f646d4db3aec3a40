import { expect } from 'chai';
import * as fc from 'fast-check';
import type { AlgorithmName, Limit } from '../../src/model.js';
import { MemoryStore } from '../../src/store/memory.js';
import { runsOf } from '../support/histories.js';
import { chargeOf, decideOne, limitOf } from '../support/limits.js';

interface Asked {
  readonly atUs: number;
  readonly hits: number;
  readonly admitted: boolean;
}

/** What becomes of takes at random times on one counter. */
async function ask(limit: Limit, steps: readonly { us: number; hits: number }[]): Promise<Asked[]> {
  let nowUs = 1_700_000_000_000_000;
  const observer = { memoryOverflow: () => undefined };
  const store = new MemoryStore({ nowUs: () => nowUs, observer });
  const asked: Asked[] = [];
  for (const { us, hits } of steps) {
    nowUs += us;
    const [outcome] = await decideOne(store, [chargeOf(limit, 'k', hits)]);
    asked.push({ atUs: nowUs, hits, admitted: outcome?.taken === true });
  }
  return asked;
}

/** Hits admitted after `fromUs`, up to and including `toUs`. */
function admitted(asked: readonly Asked[], fromUs: number, toUs: number): number {
  return asked
    .filter((one) => one.admitted && one.atUs > fromUs && one.atUs <= toUs)
    .reduce((sum, one) => sum + one.hits, 0);
}

function steps(windowUs: number): fc.Arbitrary<{ us: number; hits: number }[]> {
  const pause = fc.oneof(
    { weight: 3, arbitrary: fc.integer({ min: 0, max: Math.floor(windowUs / 20) }) },
    { weight: 1, arbitrary: fc.integer({ min: 0, max: windowUs }) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(0, 1, Math.floor(windowUs / 60), windowUs - 1, windowUs),
    },
  );
  const step = fc.record({ us: pause, hits: fc.constantFrom(1, 1, 1, 2, 3, 7) });
  return fc.array(step, { minLength: 1, maxLength: 60 });
}

function limits(algorithm: AlgorithmName): fc.Arbitrary<Limit> {
  return fc
    .record({
      requests: fc.constantFrom(1, 2, 3, 7, 10, 20),
      unitMultiplier: fc.constantFrom(1, 7, 30),
      burst: fc.constantFrom(1, 3, 10),
    })
    .map(({ requests, unitMultiplier, burst }) =>
      limitOf(algorithm, requests, { unit: 'second', unitMultiplier, burst }),
    );
}

/** Holds `check` against random histories of limits of one algorithm. */
async function promise(
  algorithm: AlgorithmName,
  parameters: { seed: number; numRuns: number },
  check: (limit: Limit, asked: readonly Asked[]) => void,
): Promise<void> {
  const cases = limits(algorithm).chain((limit) =>
    steps(limit.windowUs).map((taken) => ({ limit, taken })),
  );
  await fc.assert(
    fc.asyncProperty(cases, async ({ limit, taken }) => {
      check(limit, await ask(limit, taken));
    }),
    parameters,
  );
}

describe('what each algorithm promises', () => {
  const parameters = runsOf(1000);
  const seed = `FAST_CHECK_SEED=${String(parameters.seed)}`;

  it(`fixed window: at most N in each aligned window, refused only above that (${seed})`, async () => {
    await promise('fixed_window', parameters, (limit, asked) => {
      for (const [i, { atUs, hits, admitted: in_ }] of asked.entries()) {
        const startUs = atUs - (atUs % limit.windowUs);
        const before = admitted(asked.slice(0, i), startUs - 1, atUs);
        expect(in_).to.equal(before + hits <= limit.requests);
      }
    });
  });

  it(`sliding window: at most N in any trailing window, refused only above that (${seed})`, async () => {
    await promise('sliding_window', parameters, (limit, asked) => {
      for (const [i, { atUs, hits, admitted: in_ }] of asked.entries()) {
        const before = admitted(asked.slice(0, i), atUs - limit.windowUs, atUs);
        expect(in_).to.equal(before + hits <= limit.requests);
      }
    });
  });

  it(`sliding window counter: at most N, refused at most one precision early (${seed})`, async () => {
    await promise('sliding_window_counter', parameters, (limit, asked) => {
      for (const [i, { atUs, hits, admitted: in_ }] of asked.entries()) {
        const earlier = asked.slice(0, i);
        const before = admitted(earlier, atUs - limit.windowUs, atUs);
        if (in_) {
          expect(before + hits).to.be.at.most(limit.requests);
        } else {
          const longer = admitted(earlier, atUs - limit.windowUs - limit.precisionUs, atUs);
          expect(longer + hits).to.be.above(limit.requests);
        }
      }
    });
  });

  it(`token bucket: at most burst + rate × t in any span t (${seed})`, async () => {
    await promise('token_bucket', parameters, (limit, asked) => {
      for (const first of asked) {
        for (const last of asked) {
          if (last.atUs < first.atUs) continue;
          const spanUs = last.atUs - first.atUs;
          const most = limit.burst + (spanUs * limit.requests) / limit.windowUs;
          expect(admitted(asked, first.atUs - 1, last.atUs)).to.be.at.most(most);
        }
      }
    });
  });

  it(`token bucket: an untouched span refills what the rate says, to a millionth (${seed})`, async () => {
    await promise('token_bucket', parameters, (limit, asked) => {
      let level = 0;
      let atUs = 0;
      for (const one of asked) {
        level = Math.max(0, level - ((one.atUs - atUs) * limit.requests) / limit.windowUs);
        atUs = one.atUs;
        if (level + one.hits <= limit.burst - 1e-4) expect(one.admitted).to.equal(true);
        if (one.admitted) level += one.hits;
      }
    });
  });
});
