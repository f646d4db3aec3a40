/**
 * Flow control of what we send (RFC 9113, 5.2): how much the client allows on the connection and on each
 * stream, and which calls wait for more. Knows no frames.
 */
import type { Call } from './call.js';
import { ConnectionError } from './connection-error.js';
import { DEFAULT_WINDOW, ERROR, MAX_WINDOW } from './frames.js';

export class SendWindows {
  private connection = DEFAULT_WINDOW;
  /** Of a stream at its beginning. */
  private initial = DEFAULT_WINDOW;
  private readonly waiting = new Set<Call>();
  /** Calls that wait may find their windows larger. */
  private grown = false;
  private initialChanged = false;

  /** How many bytes of data may be sent for this call; may be less than nothing. */
  of(call: Call): number {
    return Math.min(this.connection, this.ofStream(call));
  }

  private ofStream(call: Call): number {
    return this.initial + call.credit - call.sentBytes;
  }

  sent(call: Call, bytes: number): void {
    this.connection -= bytes;
    call.sentBytes += bytes;
  }

  /** The call has more to send. */
  await(call: Call): void {
    this.waiting.add(call);
  }

  forget(call: Call): void {
    if (this.waiting.size > 0) this.waiting.delete(call);
  }

  /** The window of the connection grows. Throws ConnectionError when it becomes too large. */
  grow(increment: number): void {
    if (increment === 0) throw new ConnectionError(ERROR.protocol);
    this.connection += increment;
    if (this.connection > MAX_WINDOW) throw new ConnectionError(ERROR.flowControl);
    this.grown = true;
  }

  /** The window of a stream grows. False: it has become too large. */
  growStream(call: Call, increment: number): boolean {
    call.credit += increment;
    if (this.ofStream(call) > MAX_WINDOW) return false;
    if (this.waiting.delete(call)) call.sendUnsent();
    return true;
  }

  /** The windows of all streams change by as much as that of a new one. */
  resize(initial: number): void {
    if (initial > MAX_WINDOW) throw new ConnectionError(ERROR.flowControl);
    this.initial = initial;
    this.initialChanged = true;
    this.grown = true;
  }

  /** There was another reason not to send, which is gone. */
  retry(): void {
    this.grown = true;
  }

  /**
   * Lets the calls that wait go on, until `isCongested`. To be called at the end of what has come: a
   * thousand calls may wait, and a chunk hold a thousand changes. Throws ConnectionError when the window
   * of one of `calls`, which are all that are open, has become too large.
   */
  sendWaiting(calls: Iterable<Call>, isCongested: () => boolean): void {
    if (!this.grown) return;
    this.grown = false;
    if (this.initialChanged) this.check(calls);
    if (this.waiting.size === 0) return;
    for (const call of [...this.waiting]) {
      if (this.connection <= 0 || isCongested()) return;
      this.waiting.delete(call);
      call.sendUnsent();
    }
  }

  private check(calls: Iterable<Call>): void {
    this.initialChanged = false;
    for (const call of calls) {
      if (this.ofStream(call) > MAX_WINDOW) throw new ConnectionError(ERROR.flowControl);
    }
  }
}
