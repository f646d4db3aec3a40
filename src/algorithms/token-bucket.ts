/**
 * Token bucket: at most burst + rate × t hits in any span t. Twin of token-bucket.lua.
 * Keeps hits used, not an arrival time: so a changed number neither forgives nor forgets, and no rate
 * is too high for the clock. Hits are counted in 2^-20ths; with N and burst ≤ 2^32 - 1 and a debt of
 * at most N, the level stays below 2^53 and every step is exact.
 */
import type { Limit } from '../model.js';
import { capacity } from './algorithm.js';
import type { Algorithm, Counter } from './algorithm.js';

const PARTS = 1_048_576;
/** 142 years: no time to refill is longer, so that sums of times stay exact. */
const MOST_US = 4_503_599_627_370_496;

/** `level` is what has not been refilled yet, in 2^-20ths, as of `at`; `used` is it in whole hits. */
export interface TokenBucketState extends Counter {
  level: number;
  at: number;
}

export const tokenBucket: Algorithm<TokenBucketState> = {
  letter: 't',

  create(_limit, nowUs) {
    return { used: 0, level: 0, at: nowUs };
  },

  copy(from, to) {
    to.used = from.used;
    to.level = from.level;
    to.at = from.at;
  },

  load(state, limit, nowUs) {
    // A time further ahead than a clock steps back is not believed; what was used still is.
    if (state.at > nowUs + limit.windowUs || state.level <= 0) state.at = nowUs;
    const elapsed = nowUs - state.at;
    if (elapsed <= 0) return;
    const rate = limit.requests * PARTS;
    const refill = Math.floor((elapsed * rate) / limit.windowUs);
    // A limit of 0 never refills; what an earlier number left behind goes after one window.
    if (refill >= state.level || (rate === 0 && elapsed >= limit.windowUs)) {
      state.level = 0;
      state.at = nowUs;
    } else if (refill > 0) {
      state.level -= refill;
      state.at = Math.min(state.at + Math.ceil((refill * limit.windowUs) / rate), nowUs);
    }
    state.used = Math.ceil(state.level / PARTS);
  },

  take(state, limit, hits, nowUs) {
    if (state.level <= 0) state.at = Math.max(state.at, nowUs);
    const most = (capacity(limit) + limit.requests) * PARTS;
    state.level = Math.max(state.level, Math.min(state.level + hits * PARTS, most));
    state.used = Math.ceil(state.level / PARTS);
    return 0;
  },

  giveBack(state, hits) {
    state.level = Math.max(state.level - hits * PARTS, 0);
    state.used = Math.ceil(state.level / PARTS);
  },

  undo(state, _limit, hits) {
    state.level = Math.max(state.level - hits * PARTS, 0);
    state.used = Math.ceil(state.level / PARTS);
  },

  resetUs(state, limit, nowUs) {
    return state.level <= 0 ? 0 : state.at + drainUs(state.level, limit) - nowUs;
  },

  retryAfterUs(state, limit, hits, nowUs) {
    const excess = state.level - (capacity(limit) - hits) * PARTS;
    return excess <= 0 ? 0 : state.at + drainUs(excess, limit) - nowUs;
  },

  untouchedAtUs(state, limit, nowUs) {
    return state.level <= 0 ? nowUs : state.at + drainUs(state.level, limit);
  },
};

/** The fewest µs after which `load` refills so many parts; its rounding is repeated, not guessed. */
function drainUs(parts: number, limit: Limit): number {
  const rate = limit.requests * PARTS;
  if (rate === 0) return limit.windowUs;
  const elapsed = Math.ceil((parts * limit.windowUs) / rate);
  const refill = Math.floor((elapsed * rate) / limit.windowUs);
  return Math.min(refill < parts ? elapsed + 1 : elapsed, MOST_US);
}
