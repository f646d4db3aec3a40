/**
 * What the front doors may tell of a limit: its durations, exact or coarse, and which of several limits
 * speaks for all. Shared by Envoy's API and the native one, so that both name the same limit.
 */
import type { Limit, LimitDecision } from '../model.js';

/** Until when a refusal by policy asks to wait: nothing better is known. */
export const POLICY_RETRY_US = 1_000_000;

/** `disclose: limit` rounds durations up to this part of the window, so that they give no count away. */
const COARSE_STEPS = 10;

/** A duration as `disclose: limit` shows it: rounded up to a tenth of the window, at least one. */
export function coarseUs(durationUs: number, limit: Limit): number {
  const stepUs = Math.max(1, Math.ceil(limit.windowUs / COARSE_STEPS));
  return Math.max(1, Math.ceil(durationUs / stepUs)) * stepUs;
}

/** How long a limit that does not fit asks to wait; Infinity when the hits can never fit. */
export function waitUs(decision: LimitDecision): number {
  if (decision.source !== 'store') return POLICY_RETRY_US;
  const { retryAfterUs } = decision.outcome;
  return retryAfterUs < 0 ? Infinity : retryAfterUs;
}

/**
 * Whether `a` is tighter than `b`: refused goes first, and of those the longest wait; else the smaller
 * remaining. A limit answered by policy has no remaining that is known, and goes before those that have.
 */
export function isTighter(a: LimitDecision, b: LimitDecision): boolean {
  if (a.outcome.fits !== b.outcome.fits) return !a.outcome.fits;
  if (!a.outcome.fits) return waitUs(a) > waitUs(b);
  return knownRemaining(a) < knownRemaining(b);
}

/** The tightest of some limits, the first on a tie; undefined of none. */
export function tightest(limits: readonly LimitDecision[]): LimitDecision | undefined {
  let found = limits[0];
  for (let i = 1; i < limits.length; i++) {
    const limit = limits[i];
    if (limit !== undefined && found !== undefined && isTighter(limit, found)) found = limit;
  }
  return found;
}

function knownRemaining(decision: LimitDecision): number {
  return decision.source === 'store' ? decision.outcome.remaining : -1;
}
