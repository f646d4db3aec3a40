import { expect } from 'chai';
import type { Limit, Mode } from '../../src/model.js';
import { MemoryStore } from '../../src/store/memory.js';
import type { Store } from '../../src/store/store.js';
import { chargeOf, decideOne, limitOf } from '../support/limits.js';
import { RedisServer } from '../support/redis-server.js';
import { ScriptStore } from '../support/script-store.js';

/** 14 November 2023 22:14:00 UTC: a minute begins. */
const START_US = 1_700_000_040_000_000;

/** At so many seconds, hits → fits, remaining, reset and retry-after in ms (-1: never). */
type Row = [at: number, hits: number, fits: boolean, left: number, reset: number, retry: number];
type Line = Row | [...Row, Mode];

const TIMELINES: Readonly<Record<string, { limit: Limit; lines: readonly Line[] }>> = {
  'fixed window, 3 a minute': {
    limit: limitOf('fixed_window', 3),
    lines: [
      [0, 0, true, 3, 60_000, 0, 'peek'],
      [0, 1, true, 2, 60_000, 0],
      [10, 2, true, 0, 50_000, 0],
      [20, 1, false, 0, 40_000, 40_000],
      [20, 0, true, 0, 40_000, 0, 'peek'],
      // 2N around an edge.
      [60, 3, true, 0, 60_000, 0],
      [61, 4, false, 0, 59_000, -1],
      // Charging afterwards: owed until the window's end.
      [62, 5, false, 0, 58_000, -1, 'record'],
      [63, 0, false, 0, 57_000, 57_000, 'peek'],
      [64, 6, true, 1, 56_000, 0, 'give_back'],
      [65, 1, true, 0, 55_000, 0],
      [66, 100, true, 3, 54_000, 0, 'give_back'],
      [120, 2, true, 1, 60_000, 0],
      // The clock steps back into the window before: the later one goes on.
      [119, 2, false, 1, 61_000, 61_000],
      [118, 1, true, 0, 62_000, 0],
      // Further back is not believed.
      [30, 1, true, 2, 30_000, 0],
    ],
  },
  'sliding window, 2 in 10 s': {
    limit: limitOf('sliding_window', 2, { unit: 'second', unitMultiplier: 10 }),
    lines: [
      [0, 1, true, 1, 10_000, 0],
      [8, 1, true, 0, 10_000, 0],
      [9, 1, false, 0, 9_000, 1_000],
      [9, 0, true, 0, 9_000, 0, 'peek'],
      [9.999, 1, false, 0, 8_001, 1],
      [10, 1, true, 0, 10_000, 0],
      [10.1, 1, false, 0, 9_900, 7_900],
      [10.1, 2, false, 0, 9_900, 9_900],
      [10.1, 3, false, 0, 9_900, -1],
      // One further window's worth is kept of a debt.
      [11, 9, false, 0, 10_000, -1, 'record'],
      [12, 0, false, 0, 9_000, 8_000, 'peek'],
      [18, 0, false, 0, 3_000, 2_000, 'peek'],
      [20, 1, false, 0, 1_000, 1_000],
      [21, 2, true, 0, 10_000, 0],
      // The oldest first: what is left still leaves at 31 s.
      [22, 1, true, 1, 9_000, 0, 'give_back'],
      [23, 1, true, 0, 10_000, 0],
      [31, 1, true, 0, 10_000, 0],
      [32, 9, true, 2, 0, 0, 'give_back'],
    ],
  },
  'sliding window counter, 4 a minute, precision 1 s': {
    limit: limitOf('sliding_window_counter', 4),
    lines: [
      [0, 2, true, 2, 60_000, 0],
      // Joins the run that began at 0; all three leave at 60.5 s.
      [0.5, 1, true, 1, 60_000, 0],
      [2, 1, true, 0, 60_000, 0],
      [60, 1, false, 0, 2_000, 500],
      [60, 4, false, 0, 2_000, 2_000],
      [60, 5, false, 0, 2_000, -1],
      [60.5, 3, true, 0, 60_000, 0],
      [62, 1, true, 0, 60_000, 0],
      [63, 0, true, 0, 59_000, 0, 'peek'],
      [63, 9, false, 0, 60_000, -1, 'record'],
      [64, 0, false, 0, 59_000, 59_000, 'peek'],
      [65, 4, true, 0, 58_000, 0, 'give_back'],
      [66, 1, false, 0, 57_000, 57_000],
      [123, 1, true, 3, 60_000, 0],
    ],
  },
  'token bucket, 6 a minute, burst 3': {
    limit: limitOf('token_bucket', 6, { burst: 3 }),
    lines: [
      [0, 0, true, 3, 0, 0, 'peek'],
      [0, 3, true, 0, 30_000, 0],
      [0, 1, false, 0, 30_000, 10_000],
      [10, 1, true, 0, 30_000, 0],
      [15, 1, false, 0, 25_000, 5_000],
      [15, 4, false, 0, 25_000, -1],
      [40, 0, true, 3, 0, 0, 'peek'],
      [41, 3, true, 0, 30_000, 0],
      [41, 2, true, 2, 10_000, 0, 'give_back'],
      [41, 100, true, 3, 0, 0, 'give_back'],
      // A debt of at most N: six hits beyond the burst of three.
      [42, 50, false, 0, 90_000, -1, 'record'],
      [52, 1, false, 0, 80_000, 60_000],
      [102, 0, true, 0, 30_000, 0, 'peek'],
      [102, 1, false, 0, 30_000, 10_000],
      // A clock that steps back gives nothing and takes nothing.
      [97, 1, false, 0, 35_000, 15_000],
      [112, 1, true, 0, 30_000, 0],
    ],
  },
  'fixed window, 0 a minute': {
    limit: limitOf('fixed_window', 0),
    lines: [
      [0, 0, true, 0, 60_000, 0, 'peek'],
      [0, 1, false, 0, 60_000, -1],
      [1, 0, true, 0, 59_000, 0],
    ],
  },
  'sliding window, 0 a minute': {
    limit: limitOf('sliding_window', 0),
    lines: [
      [0, 0, true, 0, 0, 0, 'peek'],
      [0, 1, false, 0, 0, -1],
      [0, 1, false, 0, 0, -1, 'record'],
      [1, 0, true, 0, 0, 0],
    ],
  },
  'sliding window counter, 0 a minute': {
    limit: limitOf('sliding_window_counter', 0),
    lines: [
      [0, 0, true, 0, 0, 0, 'peek'],
      [0, 1, false, 0, 0, -1],
      [0, 1, false, 0, 0, -1, 'record'],
      [1, 0, true, 0, 0, 0],
    ],
  },
  'token bucket, 0 a minute, burst 5': {
    limit: limitOf('token_bucket', 0, { burst: 5 }),
    lines: [
      [0, 0, true, 0, 0, 0, 'peek'],
      [0, 1, false, 0, 0, -1],
      [0, 1, false, 0, 0, -1, 'record'],
      [1, 0, true, 0, 0, 0],
    ],
  },
  'sliding window counter, 1 in 10 s': {
    limit: limitOf('sliding_window_counter', 1, { unit: 'second', unitMultiplier: 10 }),
    lines: [
      [0, 1, true, 0, 10_000, 0],
      [5, 1, false, 0, 5_000, 5_000],
      [10.27, 1, true, 0, 10_000, 0],
      [15.27, 1, false, 0, 5_000, 5_000],
      [20.54, 1, true, 0, 10_000, 0],
    ],
  },
  'fixed window, 4294967295 a day': {
    limit: limitOf('fixed_window', 4_294_967_295, { unit: 'hour' }),
    lines: [
      [0, 4_294_967_290, true, 5, 2_760_000, 0],
      [0, 5, true, 0, 2_760_000, 0],
      [0, 1, false, 0, 2_760_000, 2_760_000],
      [0, 9_007_199_254_740_991, false, 0, 2_760_000, -1, 'record'],
      [0, 9_007_199_254_740_991, true, 4_294_967_295, 2_760_000, 0, 'give_back'],
    ],
  },
  'sliding window counter, 4294967295 a minute': {
    limit: limitOf('sliding_window_counter', 4_294_967_295),
    lines: [
      [0, 4_294_967_295, true, 0, 60_000, 0],
      [0, 4_294_967_295, false, 0, 60_000, 60_000, 'record'],
      [1, 0, false, 0, 59_000, 59_000, 'peek'],
      [60, 4_294_967_295, true, 0, 60_000, 0],
    ],
  },
  'token bucket, 8000 a second': {
    limit: limitOf('token_bucket', 8000, { unit: 'second' }),
    lines: [
      [0, 8000, true, 0, 1_000, 0],
      // A token every 125 µs: an eighth of a millisecond is enough for one.
      [0.000124, 1, false, 0, 999.877, 0.002],
      [0.000125, 1, true, 0, 1_000, 0],
      [0.001, 8, false, 7, 999.125, 0.125],
      [0.001125, 8, true, 0, 1_000, 0],
      [1.001125, 8000, true, 0, 1_000, 0],
    ],
  },
  'token bucket, 4294967295 a day': {
    limit: limitOf('token_bucket', 4_294_967_295, { unit: 'day' }),
    lines: [
      [0, 4_294_967_295, true, 0, 86_400_000, 0],
      [0, 4_294_967_295, false, 0, 86_400_000, 86_400_000],
      [43_200, 4_294_967_295, false, 2_147_483_647, 43_200_000, 43_200_000],
      [86_400, 4_294_967_295, true, 0, 86_400_000, 0],
    ],
  },
  'token bucket, 1000000 a second': {
    limit: limitOf('token_bucket', 1_000_000, { unit: 'second' }),
    lines: [
      [0, 1_000_000, true, 0, 1_000, 0],
      [0.001, 1_001, false, 1_000, 999, 0.001],
      [0.001, 1_000, true, 0, 1_000, 0],
    ],
  },
};

describe('timelines', () => {
  let server: RedisServer;
  let script: ScriptStore;
  let nowUs = 0;

  before(async () => {
    server = await RedisServer.start();
    script = new ScriptStore(server.port, () => nowUs);
    await script.load();
  });

  after(async () => {
    await script.stop();
    await server.stop();
  });

  async function play(store: Store, limit: Limit, lines: readonly Line[]): Promise<void> {
    for (const [at, hits, fits, left, reset, retry, mode = 'take'] of lines) {
      nowUs = START_US + Math.round(at * 1_000_000);
      const charge = chargeOf(limit, `${limit.keyHead}|${String(limit.requests)}`, hits, { mode });
      const [outcome] = await decideOne(store, [charge]);
      expect(
        {
          fits: outcome?.fits,
          left: outcome?.remaining,
          reset: (outcome?.resetUs ?? 0) / 1000,
          retry: outcome?.retryAfterUs === -1 ? -1 : (outcome?.retryAfterUs ?? 0) / 1000,
        },
        `${mode} ${String(hits)} at ${String(at)} s`,
      ).to.deep.equal({ fits, left, reset, retry });
    }
  }

  for (const [name, { limit, lines }] of Object.entries(TIMELINES)) {
    it(`${name}, in memory`, async () => {
      const observer = { memoryOverflow: () => undefined };
      await play(new MemoryStore({ nowUs: () => nowUs, observer }), limit, lines);
    });

    it(`${name}, in Redis`, async () => {
      await play(script, limit, lines);
    });
  }
});
