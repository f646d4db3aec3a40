/** Random histories of requests, for fast-check: what the referee plays through several stores. */
import * as fc from 'fast-check';
import { ALGORITHM_NAMES, MAX_HITS } from '../../src/model.js';
import type { Limit, Mode, Role, Unit } from '../../src/model.js';
import { limitOf } from './limits.js';

/** A charge of a history: which counter, and what it asks. */
export interface Step {
  readonly counter: number;
  readonly hits: number;
  readonly mode: Mode | 'undo';
  readonly role: Role;
  /** Counts with this number instead of the counter's own, as a changed limit does. */
  readonly requests: number | undefined;
}

export interface Batch {
  /** Since the batch before: a share of the window of this counter, rounded down, and plain µs. */
  readonly of: number;
  readonly windows: number;
  readonly afterUs: number;
  readonly requests: readonly (readonly Step[])[];
}

export interface History {
  readonly startUs: number;
  readonly limits: readonly Limit[];
  readonly batches: readonly Batch[];
}

export interface HistoryOptions {
  /** Everything that a store may meet: clocks that step back, huge numbers, undo, changed limits. */
  readonly wild: boolean;
}

const tameRequests = fc.constantFrom(0, 1, 2, 3, 5, 10, 10);
const wildRequests = fc.constantFrom(0, 1, 2, 3, 5, 10, 10, 7919, 4294967295);

/** Shares of a window: among them whole ones, and whole precisions of the sliding window counter. */
const PAUSES = [
  0,
  0,
  1e-6,
  1 / 120,
  1 / 60,
  1 / 60,
  1 / 60,
  0.25,
  0.25,
  0.25,
  0.5,
  0.5,
  0.1,
  1,
  1.01,
];

/** Seed and number of runs, from the environment where they are set. */
export function runsOf(runs: number): { seed: number; numRuns: number } {
  const seed = process.env['FAST_CHECK_SEED'];
  const numRuns = process.env['FAST_CHECK_RUNS'];
  return {
    seed: seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(seed),
    numRuns: numRuns === undefined ? runs : Number(numRuns),
  };
}

export function histories({ wild }: HistoryOptions): fc.Arbitrary<History> {
  const requests = wild ? wildRequests : tameRequests;
  const limit = fc
    .record({
      algorithm: fc.constantFrom(...ALGORITHM_NAMES),
      requests,
      unit: fc.constantFrom<Unit>('second', 'minute', 'hour'),
      unitMultiplier: fc.constantFrom(1, 7),
      burst: fc.constantFrom(1, 3, 10, wild ? 4294967295 : 20),
      pieces: fc.constantFrom(4, 60, 1000),
    })
    .map(({ algorithm, requests: number, unit, unitMultiplier, burst, pieces }) => {
      const plain = limitOf(algorithm, number, { unit, unitMultiplier, burst });
      return limitOf(algorithm, number, {
        unit,
        unitMultiplier,
        burst,
        precisionUs: Math.floor(plain.windowUs / pieces),
      });
    });
  const step = fc.record({
    counter: fc.constantFrom(0, 0, 0, 0, 1, 2, 3),
    hits: wild
      ? fc.oneof(
          { weight: 8, arbitrary: fc.integer({ min: 0, max: 6 }) },
          {
            weight: 1,
            arbitrary: fc.constantFrom(20, 7919, 4294967295, 4294967296, MAX_HITS - 1, MAX_HITS),
          },
        )
      : fc.integer({ min: 0, max: 23 }).map((n) => (n > 6 ? n % 3 : n)),
    mode: fc.oneof(
      { weight: 8, arbitrary: fc.constant<Mode | 'undo'>('take') },
      {
        weight: 4,
        arbitrary: fc.constantFrom<Mode | 'undo'>('peek', 'record', 'give_back'),
      },
      { weight: wild ? 2 : 0, arbitrary: fc.constant<Mode | 'undo'>('undo') },
    ),
    role: fc.oneof(
      { weight: 6, arbitrary: fc.constant<Role>('enforced') },
      { weight: 1, arbitrary: fc.constantFrom<Role>('shadow', 'quota') },
    ),
    requests: wild
      ? fc.oneof(
          { weight: 12, arbitrary: fc.constant(undefined) },
          { weight: 1, arbitrary: requests },
        )
      : fc.constant(undefined),
  });
  const pause = wild
    ? fc.oneof(
        {
          weight: 12,
          arbitrary: fc.constantFrom(...PAUSES),
        },
        { weight: 1, arbitrary: fc.constantFrom(-1e-6, -0.1, -0.5, -1, -1.5, -30) },
      )
    : fc.constantFrom(...PAUSES);
  const batch = fc.record({
    of: fc.constantFrom(0, 0, 0, 0, 1, 2, 3),
    windows: pause,
    afterUs: fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 777, 123_456),
    requests: fc.array(fc.array(step, { minLength: 1, maxLength: 3 }), {
      minLength: 1,
      maxLength: 3,
    }),
  });
  return fc.record({
    startUs: fc.constantFrom(1_700_000_000_000_000, 1_700_000_000_000_001, 1_712_345_678_912_345),
    limits: fc.array(limit, { minLength: 4, maxLength: 4 }),
    batches: fc.array(batch, { minLength: 1, maxLength: 24, size: 'max' }),
  });
}
