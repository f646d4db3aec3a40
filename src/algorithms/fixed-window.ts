/**
 * Fixed window: at most N hits in each window aligned to the epoch, so up to 2N around an edge.
 * Twin of fixed-window.lua. Debt is kept to the window's end.
 */
import { MAX_HITS } from '../model.js';
import type { Algorithm, Counter } from './algorithm.js';

/** `window` is the window's number since the epoch, and the mark of a take. */
export interface FixedWindowState extends Counter {
  window: number;
}

export const fixedWindow: Algorithm<FixedWindowState> = {
  letter: 'f',

  create(limit, nowUs) {
    return { used: 0, window: Math.floor(nowUs / limit.windowUs) };
  },

  copy(from, to) {
    to.used = from.used;
    to.window = from.window;
  },

  load(state, limit, nowUs) {
    const window = Math.floor(nowUs / limit.windowUs);
    // One window ahead is a clock that stepped back: that window goes on. More is implausible.
    if (state.used > 0 && (state.window === window || state.window === window + 1)) return;
    state.window = window;
    state.used = 0;
  },

  take(state, _limit, hits) {
    state.used = Math.min(state.used + hits, MAX_HITS);
    return state.window;
  },

  giveBack(state, hits) {
    state.used = Math.max(state.used - hits, 0);
  },

  undo(state, _limit, hits, mark) {
    if (state.window === mark) state.used = Math.max(state.used - hits, 0);
  },

  resetUs(state, limit, nowUs) {
    return (state.window + 1) * limit.windowUs - nowUs;
  },

  retryAfterUs(state, limit, _hits, nowUs) {
    return (state.window + 1) * limit.windowUs - nowUs;
  },

  untouchedAtUs(state, limit) {
    return (state.window + 1) * limit.windowUs;
  },
};
