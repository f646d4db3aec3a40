/**
 * Sliding window: at most N hits in any trailing window, exactly, as each request (or batch) is kept
 * with its time. Twin of sliding-window.lua. At most 2N hits are kept, so debt leaves in a window.
 */
import type { Algorithm, Counter } from './algorithm.js';

/** Entries, the oldest at `head`; what stands before it has left. */
export interface SlidingWindowState extends Counter {
  times: number[];
  hits: number[];
  head: number;
}

export const slidingWindow: Algorithm<SlidingWindowState> = {
  letter: 's',

  create() {
    return { used: 0, times: [], hits: [], head: 0 };
  },

  copy(from, to) {
    to.used = from.used;
    to.times = from.times;
    to.hits = from.hits;
    to.head = from.head;
  },

  load(state, limit, nowUs) {
    const last = newestTime(state);
    if (last === undefined) return;
    // Everything has left, or the newest is further ahead than a clock steps back.
    if (last <= nowUs - limit.windowUs || last > nowUs + limit.windowUs) {
      state.used = 0;
      state.head = state.times.length;
      return;
    }
    const edge = Math.max(nowUs, last) - limit.windowUs;
    while ((state.times[state.head] ?? Infinity) <= edge) {
      state.used -= state.hits[state.head] ?? 0;
      state.head++;
    }
  },

  take(state, limit, hits, nowUs) {
    const last = newestTime(state);
    const time = last === undefined ? nowUs : Math.max(nowUs, last);
    const added = Math.min(hits, 2 * limit.requests - state.used);
    if (added <= 0) return time;
    forgetLeft(state);
    state.used += added;
    if (last === time) {
      const newest = state.hits.length - 1;
      state.hits[newest] = (state.hits[newest] ?? 0) + added;
    } else {
      state.times.push(time);
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

  undo(state, _limit, hits, mark) {
    for (let i = state.times.length - 1; i >= state.head; i--) {
      const time = state.times[i] ?? 0;
      if (time < mark) return;
      if (time > mark) continue;
      const kept = state.hits[i] ?? 0;
      const undone = Math.min(hits, kept);
      state.used -= undone;
      if (kept > undone) {
        state.hits[i] = kept - undone;
      } else {
        state.times.splice(i, 1);
        state.hits.splice(i, 1);
        if (state.used === 0) clear(state);
      }
      return;
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
    return (state.times[i] ?? nowUs) + limit.windowUs - nowUs;
  },

  untouchedAtUs(state, limit, nowUs) {
    const last = newestTime(state);
    return last === undefined ? nowUs : last + limit.windowUs;
  },
};

/** Undefined when the counter is as untouched. */
function newestTime(state: SlidingWindowState): number | undefined {
  return state.head < state.times.length ? state.times.at(-1) : undefined;
}

function clear(state: SlidingWindowState): void {
  state.used = 0;
  state.head = 0;
  state.times.length = 0;
  state.hits.length = 0;
}

/** Moves the entries to the front when most places are of the past: constant work per entry. */
function forgetLeft(state: SlidingWindowState): void {
  if (state.used === 0) clear(state);
  if (state.head < 32 || state.head * 2 < state.times.length) return;
  state.times.splice(0, state.head);
  state.hits.splice(0, state.head);
  state.head = 0;
}
