/** The decision: match → charges → store → decision. The only place that decides what a store failure means. */
import type { Decision, DecisionRequest } from './model.js';

/** What is wrong with a request, for its sender to mend. Raised by the front doors and the limiter. */
export class RequestError extends Error {
  override readonly name = 'RequestError';

  /**
   * `invalid_argument`: the request is wrong, and stays so. `failed_precondition`: no configuration
   * is loaded yet; the same request may succeed later.
   */
  constructor(
    readonly code: 'invalid_argument' | 'failed_precondition',
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

export interface Limiter {
  /**
   * Decides one request. `deadlineMs`, on the clock of `performance.now()`, is when the answer must
   * be on its way; from then on policy answers. `done` is called once, now or in a later turn.
   * Throws RequestError (`failed_precondition`) while no configuration is loaded.
   */
  decide(request: DecisionRequest, deadlineMs: number, done: (decision: Decision) => void): void;
}
