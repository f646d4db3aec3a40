/** How many of the last minute's answers were refusals: a ring of slots, advanced when it is used. Pure. */

const SLOT_MS = 5000;
const SLOTS = 12;

/** Counts of the last 60 s, to a slot of 5 s. Times are ms on any clock that does not jump far. */
export class RollingRatio {
  /** Undefined until something is counted: of many rules most stand idle. */
  private allowed: Float64Array | undefined;
  private rejected: Float64Array | undefined;
  private newest = 0;

  count(isRejected: boolean, nowMs: number): void {
    const slot = this.advance(nowMs) % SLOTS;
    this.allowed ??= new Float64Array(SLOTS);
    this.rejected ??= new Float64Array(SLOTS);
    const counts = isRejected ? this.rejected : this.allowed;
    counts[slot] = (counts[slot] ?? 0) + 1;
  }

  /** rejected / (allowed + rejected), 0 when there were none. */
  ratio(nowMs: number): number {
    this.advance(nowMs);
    let allowed = 0;
    let rejected = 0;
    for (let slot = 0; slot < SLOTS; slot++) {
      allowed += this.allowed?.[slot] ?? 0;
      rejected += this.rejected?.[slot] ?? 0;
    }
    return rejected === 0 ? 0 : rejected / (allowed + rejected);
  }

  /** Empties the slots that have left. A clock that steps back goes on in the newest slot. */
  private advance(nowMs: number): number {
    const number = Math.floor(nowMs / SLOT_MS);
    if (number <= this.newest) return this.newest;
    // More slots than there are would only be emptied twice.
    for (let left = Math.max(this.newest + 1, number - SLOTS + 1); left <= number; left++) {
      if (this.allowed !== undefined) this.allowed[left % SLOTS] = 0;
      if (this.rejected !== undefined) this.rejected[left % SLOTS] = 0;
    }
    this.newest = number;
    return number;
  }
}
