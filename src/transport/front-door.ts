/**
 * What every front door needs of the rest of the service, and how long it may take. The interfaces are
 * structural: metrics and health are made elsewhere and only passed in.
 */
import type { Decision } from '../model.js';

export type FrontDoorName = 'envoy' | 'native' | 'json';

/** What the front doors tell the metrics. Every call is cheap and never throws. */
export interface TransportObserver {
  observeDecision(decision: Decision): void;
  /** From receipt to answer, errors included. */
  observeRequest(method: FrontDoorName, seconds: number): void;
  /** A request was wrong, and its sender was told so. */
  invalidRequest(): void;
  /** The answer came after the caller's deadline. */
  deadlineExceeded(): void;
  /** The metrics as text, in the format that the Accept header prefers. */
  exposition(accept: string | undefined): Promise<{ contentType: string; body: readonly Buffer[] }>;
}

/** Follows requests in traces. */
export interface RequestTracer {
  /**
   * A request has come; `header` gives the caller's headers by lower-case name. Undefined when it is not
   * sampled. Exactly one of the two that it returns is called.
   */
  start(
    method: FrontDoorName,
    header: (name: string) => string | undefined,
  ): { decided(decision: Decision): void; failed(error: unknown): void } | undefined;
}

/** Whether the service may be asked: for health checks of gRPC and HTTP. */
export interface HealthSource {
  serving(): boolean;
  /** The listener is called whenever `serving` may have changed, as long as the process lives. */
  onChange(listener: () => void): void;
  /** Whether it should get traffic; the reason is one line for people. */
  ready(): { ok: boolean; reason: string };
}

/** Part of the caller's patience that a decision may take; the rest is for the way back. */
const SHARE_OF_PATIENCE = 0.75;

/**
 * When a decision must be on its way, on the clock of `performance.now()`. `patienceMs` is what the
 * caller has left: Infinity when it named no deadline, 0 or less when that has passed already.
 */
export function decisionDeadlineMs(nowMs: number, patienceMs: number, capMs: number): number {
  return nowMs + Math.max(0, Math.min(capMs, patienceMs * SHARE_OF_PATIENCE));
}
