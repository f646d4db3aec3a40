/**
 * Sliding window counter: at most N hits in any trailing window, in little memory, as hits at most
 * `precision` apart are lumped into runs that leave together; may refuse up to one precision early.
 * Twin of sliding-window-counter.lua. At most 2N hits are kept, so debt leaves in a window.
 */
import type { Algorithm, Counter } from './algorithm.js';

/**
 * Runs, the oldest at `head`; what stands before it has left. A run leaves one window after its last
 * hit. `first` is when the newest run began: hits join it for one precision from then.
 */
export interface SlidingWindowCounterState extends Counter {
  first: number;
  lasts: number[];
  hits: number[];
  head: number;
}

export const slidingWindowCounter: Algorithm<SlidingWindowCounterState> = {
  letter: 'c',

  create() {
    return { used: 0, first: 0, lasts: [], hits: [], head: 0 };
  },

  copy(from, to) {
    to.used = from.used;
    to.first = from.first;
    to.lasts = from.lasts;
    to.hits = from.hits;
    to.head = from.head;
  },

  load(state, limit, nowUs) {
    const last = newestTime(state);
    if (last === undefined) return;
    // Everything has left, or the newest is further ahead than a clock steps back.
    if (last <= nowUs - limit.windowUs || last > nowUs + limit.windowUs) {
      state.used = 0;
      state.head = state.lasts.length;
      return;
    }
    const edge = Math.max(nowUs, last) - limit.windowUs;
    while ((state.lasts[state.head] ?? Infinity) <= edge) {
      state.used -= state.hits[state.head] ?? 0;
      state.head++;
    }
  },

  take(state, limit, hits, nowUs) {
    const time = Math.max(nowUs, newestTime(state) ?? nowUs);
    const added = Math.min(hits, 2 * limit.requests - state.used);
    if (added <= 0) return time;
    forgetLeft(state);
    state.used += added;
    const newest = state.lasts.length - 1;
    if (newest >= state.head && time - state.first <= limit.precisionUs) {
      state.lasts[newest] = time;
      state.hits[newest] = (state.hits[newest] ?? 0) + added;
    } else {
      state.first = time;
      state.lasts.push(time);
      state.hits.push(added);
    }
    return time;
  },

  giveBack(state, hits) {
    let left = Math.min(hits, state.used);
    state.used -= left;
    while (left > 0) {
      const oldest = state.hits[state.head] ?? 0;
      if (oldest > left) {
        state.hits[state.head] = oldest - left;
        return;
      }
      left -= oldest;
      state.head++;
    }
    forgetLeft(state);
  },

  undo(state, limit, hits, mark) {
    const newest = state.lasts.length - 1;
    let i = state.head;
    while (i <= newest && (state.lasts[i] ?? 0) < mark) i++;
    // A run is at most one precision long: one that began after the mark does not hold the hits.
    if (i > newest || (state.lasts[i] ?? 0) - limit.precisionUs > mark) return;
    if (i === newest && state.first > mark) return;
    const kept = state.hits[i] ?? 0;
    const undone = Math.min(hits, kept);
    state.used -= undone;
    if (state.used === 0) {
      clear(state);
    } else if (kept > undone) {
      state.hits[i] = kept - undone;
    } else {
      state.lasts.splice(i, 1);
      state.hits.splice(i, 1);
      // When the run before this one began is not known: as early as it can have, so none joins.
      if (i === newest) state.first = (state.lasts.at(-1) ?? 0) - limit.precisionUs;
    }
  },

  resetUs(state, limit, nowUs) {
    const last = newestTime(state);
    return last === undefined ? 0 : last + limit.windowUs - nowUs;
  },

  retryAfterUs(state, limit, hits, nowUs) {
    let need = state.used + hits - limit.requests;
    if (need <= 0) return 0;
    let i = state.head;
    while ((need -= state.hits[i] ?? Infinity) > 0) i++;
    return (state.lasts[i] ?? nowUs) + limit.windowUs - nowUs;
  },

  untouchedAtUs(state, limit, nowUs) {
    const last = newestTime(state);
    return last === undefined ? nowUs : last + limit.windowUs;
  },
};

/** Undefined when the counter is as untouched. */
function newestTime(state: SlidingWindowCounterState): number | undefined {
  return state.head < state.lasts.length ? state.lasts.at(-1) : undefined;
}

function clear(state: SlidingWindowCounterState): void {
  state.used = 0;
  state.first = 0;
  state.head = 0;
  state.lasts.length = 0;
  state.hits.length = 0;
}

/** Moves the runs to the front when most places are of the past: constant work per run. */
function forgetLeft(state: SlidingWindowCounterState): void {
  if (state.used === 0) clear(state);
  if (state.head < 32 || state.head * 2 < state.lasts.length) return;
  state.lasts.splice(0, state.head);
  state.hits.splice(0, state.head);
  state.head = 0;
}
