/** How many of the last minute's answers were refusals: a ring of slots, advanced when it is used. Pure. */

const SLOT_MS = 5000;
const SLOTS = 12;

/** Counts of the last 60 s, to a slot of 5 s. Times are ms on any clock that does not jump far. */
export class RollingRatio {
  private readonly allowed = new Float64Array(SLOTS);
  private readonly rejected = new Float64Array(SLOTS);
  private newest = 0;

  count(isRejected: boolean, nowMs: number): void {
    const slot = this.advance(nowMs) % SLOTS;
    const counts = isRejected ? this.rejected : this.allowed;
    counts[slot] = (counts[slot] ?? 0) + 1;
  }

  /** rejected / (allowed + rejected), 0 when there were none. */
  ratio(nowMs: number): number {
    this.advance(nowMs);
    let allowed = 0;
    let rejected = 0;
    for (let slot = 0; slot < SLOTS; slot++) {
      allowed += this.allowed[slot] ?? 0;
      rejected += this.rejected[slot] ?? 0;
    }
    return rejected === 0 ? 0 : rejected / (allowed + rejected);
  }

  /** Empties the slots that have left. A clock that steps back goes on in the newest slot. */
  private advance(nowMs: number): number {
    const number = Math.floor(nowMs / SLOT_MS);
    if (number <= this.newest) return this.newest;
    if (number - this.newest >= SLOTS) {
      this.allowed.fill(0);
      this.rejected.fill(0);
    } else {
      for (let left = this.newest + 1; left <= number; left++) {
        this.allowed[left % SLOTS] = 0;
        this.rejected[left % SLOTS] = 0;
      }
    }
    this.newest = number;
    return number;
  }
}
