/**
 * The contract of an algorithm: how one counter is loaded, judged, changed and forgotten.
 * Each implementation is a pair, `x.ts` here and `x.lua` for Redis, with the same names and the same
 * order of steps. Pure: the time is an argument, the state a plain object of the algorithm's own.
 * Every number is a double here and there, so the same steps give the same bits.
 */
import type { Limit, Mode } from '../model.js';

/** What every counter knows: how many hits count now. May be above what fits: that is a debt. */
export interface Counter {
  used: number;
}

/**
 * One way to count. `State` is what a counter holds while a batch is decided; it is what memory keeps
 * between batches too. `load` goes before every other step of a batch.
 */
export interface Algorithm<State extends Counter> {
  /** First part of every counter key: one letter, so that a changed algorithm starts afresh. */
  readonly letter: string;
  /** A counter as untouched. */
  create(limit: Limit, nowUs: number): State;
  /** Makes `to` what `from` is; lists are shared. A change of one of them is copied to the other at once. */
  copy(from: State, to: State): void;
  /**
   * Brings a stored state up to now: drops what has left, refills, mends an implausible clock. Changes
   * no list: what is looked at and not changed stays as it was stored, here and in Redis, so that both
   * see the same when the clock steps back.
   */
  load(state: State, limit: Limit, nowUs: number): void;
  /**
   * Adds hits, saturating at what the algorithm keeps of a debt (at most one further window's worth).
   * Returns the mark that `undo` needs: the window's number, the time in µs, or 0.
   */
  take(state: State, limit: Limit, hits: number, nowUs: number): number;
  /** Gives hits back, the oldest first, never beyond empty. */
  giveBack(state: State, hits: number): void;
  /** Takes back what `take` returned the mark for; nothing where that has left already. */
  undo(state: State, limit: Limit, hits: number, mark: number): void;
  /** µs from now until the counter is as untouched; 0 when it is. Fixed window: until its end. */
  resetUs(state: State, limit: Limit, nowUs: number): number;
  /**
   * µs from now until `hits`, which do not fit now, would fit if nobody else asks. At least 0.
   * `hits` is at most the capacity; above that the answer is -1 and nobody asks here.
   */
  retryAfterUs(state: State, limit: Limit, hits: number, nowUs: number): number;
  /** When the state is as untouched, in µs since the epoch; memory may forget it then. */
  untouchedAtUs(state: State, limit: Limit, nowUs: number): number;
}

/** Hits that an untouched counter admits at once. */
export function capacity(limit: Limit): number {
  return limit.requests === 0 ? 0 : limit.burst;
}

/** The one rule of judgement: a look at 0 hits is refused only when more has been taken than fits. */
export function fits(hits: number, room: number, mode: Mode): boolean {
  return mode === 'give_back' || hits <= room;
}
