/**
 * How much a connection bears of what no well-behaved client sends often: cancelled calls, frames that do
 * nothing, faults that cost only a stream. Each costs the server more than its client.
 */
import { RESET_BURST, RESETS_PER_SECOND } from '../calls.js';

export class Patience {
  private left = RESET_BURST;
  private sinceMs = performance.now();

  /** Something needless has come; it counts for so many. */
  bear(count = 1): void {
    this.left -= count;
  }

  /** Some clients send a PING or a reset with every call: a call that was answered pays for one. */
  reward(): void {
    if (this.left < RESET_BURST) this.left++;
  }

  /** More has come than is borne: this is an attack. */
  isExhausted(): boolean {
    if (this.left > 0) return false;
    const nowMs = performance.now();
    this.left += Math.floor(((nowMs - this.sinceMs) * RESETS_PER_SECOND) / 1000);
    if (this.left > RESET_BURST) this.left = RESET_BURST;
    this.sinceMs = nowMs;
    return this.left <= 0;
  }
}
