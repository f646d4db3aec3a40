/**
 * The contract of an algorithm: how one counter is loaded, judged, changed and saved.
 * Each implementation is a pair, `x.ts` here and `x.lua` for Redis, with the same names and the same
 * order of steps. Pure: the time is an argument, the state a plain object of the algorithm's own.
 */
import type { Limit, Mode } from '../model.js';

/** What is reported of one charge; the unit of every time is µs from now. */
export interface Report {
  readonly remaining: number;
  readonly resetUs: number;
  readonly retryAfterUs: number;
}

/**
 * One way to count. `State` is what a counter holds while a batch is decided; it is what memory keeps
 * between batches too.
 */
export interface Algorithm<State> {
  /** First part of every counter key: one letter, so that a changed algorithm starts afresh. */
  readonly letter: string;
  /** A counter as untouched. */
  create(limit: Limit, nowUs: number): State;
  /** Brings a stored state up to now: drops what has left, refills, mends an implausible clock. */
  load(state: State, limit: Limit, nowUs: number): void;
  /** Hits that fit now; negative when more has been taken than fits. */
  room(state: State, limit: Limit): number;
  /**
   * Adds hits, saturating at what the algorithm keeps of a debt (at most one further window's worth).
   * Returns the mark that `undo` needs: the window's number, or the time in µs.
   */
  take(state: State, limit: Limit, hits: number, nowUs: number): number;
  /** Gives hits back, the oldest first, never beyond empty. */
  giveBack(state: State, limit: Limit, hits: number, nowUs: number): void;
  /** Takes back what `take` returned the mark for; nothing where that has left already. */
  undo(state: State, limit: Limit, hits: number, mark: number, nowUs: number): void;
  /** `fits` is the judgement of these hits. retryAfterUs is 0 when they fit, -1 when they never can. */
  report(state: State, limit: Limit, hits: number, fits: boolean, nowUs: number): Report;
  /** When the state is as untouched, in µs since the epoch; memory and Redis may forget it then. */
  untouchedAtUs(state: State, limit: Limit, nowUs: number): number;
}

/** The one rule of judgement: a look at 0 hits is refused only when more has been taken than fits. */
export function fits(hits: number, room: number, mode: Mode): boolean {
  return mode === 'give_back' || hits <= room || (hits === 0 && room >= 0);
}
