/**
 * A store that is too simple to be wrong: it keeps every hit that was let in, one by one with its time,
 * and counts by walking over all of them. Small numbers only.
 */
import type { Limit, Mode } from '../../src/model.js';
import type { StoreCharge } from '../../src/store/store.js';

export interface ModelOutcome {
  readonly fits: boolean;
  readonly taken: boolean;
  readonly remaining: number;
  readonly resetUs: number;
  readonly retryAfterUs: number;
}

interface ModelCounter {
  advance(nowUs: number): void;
  used(): number;
  take(hits: number): void;
  giveBack(hits: number): void;
  resetUs(): number;
  /** When `hits` fit, from now. */
  retryAfterUs(hits: number): number;
}

export class Model {
  private readonly counters = new Map<string, ModelCounter>();

  /** Decides one request, as section "The store" of the design says it. */
  decide(charges: readonly StoreCharge[], nowUs: number): ModelOutcome[] {
    const judged = charges.map((charge) => ({ charge, counter: this.find(charge) }));
    const pending = new Map<string, number>();
    for (const { counter } of judged) counter.advance(nowUs);
    const fitting = judged.map(({ charge, counter }) => {
      const before = pending.get(charge.key) ?? 0;
      const wanted = charge.hits + before;
      const fits =
        charge.mode === 'give_back' || wanted <= capacityOf(charge.limit) - counter.used();
      if (charge.mode === 'record' || (charge.mode === 'take' && fits)) {
        pending.set(charge.key, wanted);
      }
      return { fits, wanted };
    });
    const roles = judged.map(({ charge }, i) => ({ role: charge.role, fits: fitting[i]?.fits }));
    const quotas = roles.filter(({ role }) => role === 'quota');
    const refused =
      roles.some(({ role, fits }) => role === 'enforced' && fits !== true) ||
      (quotas.length > 0 && quotas.every(({ fits }) => fits !== true));
    const taken = judged.map(({ charge, counter }, i) => {
      const is = isTaken(charge.mode, fitting[i]?.fits === true, refused);
      if (charge.hits === 0) return is;
      if (is && charge.mode === 'give_back') counter.giveBack(charge.hits);
      else if (is) counter.take(charge.hits);
      return is;
    });
    return judged.map(({ charge, counter }, i) => {
      const { fits = false, wanted = 0 } = fitting[i] ?? {};
      const capacity = capacityOf(charge.limit);
      let retryAfterUs = 0;
      if (!fits) retryAfterUs = wanted > capacity ? -1 : counter.retryAfterUs(wanted);
      return {
        fits,
        taken: taken[i] === true,
        remaining: Math.max(0, capacity - counter.used()),
        resetUs: counter.resetUs(),
        retryAfterUs,
      };
    });
  }

  private find(charge: StoreCharge): ModelCounter {
    let counter = this.counters.get(charge.key);
    if (counter === undefined) {
      counter = create(charge.limit);
      this.counters.set(charge.key, counter);
    }
    return counter;
  }
}

function capacityOf(limit: Limit): number {
  return limit.requests === 0 ? 0 : limit.burst;
}

function isTaken(mode: Mode, fits: boolean, refused: boolean): boolean {
  if (mode === 'take') return fits && !refused;
  return mode !== 'peek';
}

function create(limit: Limit): ModelCounter {
  switch (limit.algorithm) {
    case 'fixed_window':
      return new EveryHitInItsWindow(limit);
    case 'sliding_window':
      return new EveryHit(limit, -1);
    case 'sliding_window_counter':
      return new EveryHit(limit, limit.precisionUs);
    case 'token_bucket':
      return new ExactBucket(limit);
  }
}

class EveryHitInItsWindow implements ModelCounter {
  private hits: number[] = [];
  private now = 0;

  constructor(private readonly limit: Limit) {}

  advance(nowUs: number): void {
    this.now = nowUs;
    const start = nowUs - (nowUs % this.limit.windowUs);
    this.hits = this.hits.filter((at) => at >= start);
  }

  used(): number {
    return this.hits.length;
  }

  take(hits: number): void {
    for (let i = 0; i < hits; i++) this.hits.push(this.now);
  }

  giveBack(hits: number): void {
    this.hits.splice(0, hits);
  }

  resetUs(): number {
    return this.limit.windowUs - (this.now % this.limit.windowUs);
  }

  retryAfterUs(): number {
    return this.resetUs();
  }
}

/** Both sliding windows: each hit with its run; a run of one instant when there is no precision. */
class EveryHit implements ModelCounter {
  private hits: { at: number; run: number }[] = [];
  private runs: { first: number; last: number }[] = [];
  private now = 0;

  constructor(
    private readonly limit: Limit,
    private readonly precisionUs: number,
  ) {}

  advance(nowUs: number): void {
    this.now = nowUs;
    this.hits = this.hits.filter((hit) => this.leavesAt(hit) > nowUs);
  }

  used(): number {
    return this.hits.length;
  }

  take(hits: number): void {
    const newest = this.hits.at(-1);
    let run = this.runs.length;
    const open = newest === undefined ? undefined : this.runs[newest.run];
    if (newest !== undefined && open !== undefined && this.now - open.first <= this.precisionUs) {
      run = newest.run;
    }
    for (let i = 0; i < hits && this.hits.length < 2 * this.limit.requests; i++) {
      const { first } = this.runs[run] ?? { first: this.now };
      this.runs[run] = { first, last: this.now };
      this.hits.push({ at: this.now, run });
    }
  }

  giveBack(hits: number): void {
    this.hits.splice(0, hits);
  }

  resetUs(): number {
    const newest = this.hits.at(-1);
    return newest === undefined ? 0 : this.leavesAt(newest) - this.now;
  }

  retryAfterUs(hits: number): number {
    if (this.hits.length + hits <= this.limit.requests) return 0;
    for (let left = 1; left <= this.hits.length; left++) {
      const leaving = this.hits[left - 1];
      if (leaving !== undefined && this.hits.length - left + hits <= this.limit.requests) {
        return this.leavesAt(leaving) - this.now;
      }
    }
    return 0;
  }

  private leavesAt(hit: { at: number; run: number }): number {
    return (this.runs[hit.run]?.last ?? hit.at) + this.limit.windowUs;
  }
}

/** Whole numbers of any size, so that no rounding can hide. What is looked at stays as it was stored. */
class ExactBucket implements ModelCounter {
  private stored = { level: 0n, at: 0n };
  private level = 0n;
  private at = 0n;
  private now = 0n;
  private readonly rate: bigint;
  private readonly window: bigint;

  constructor(private readonly limit: Limit) {
    this.rate = BigInt(limit.requests) << 20n;
    this.window = BigInt(limit.windowUs);
  }

  advance(nowUs: number): void {
    this.now = BigInt(nowUs);
    const { level, at } = this.stored;
    const refill = ((this.now - at) * this.rate) / this.window;
    if (refill >= level) {
      this.level = 0n;
      this.at = this.now;
    } else {
      this.level = level - refill;
      this.at = at + ceilDiv(refill * this.window, this.rate);
    }
  }

  used(): number {
    return Number(ceilDiv(this.level, 1n << 20n));
  }

  take(hits: number): void {
    if (this.level === 0n) this.at = this.now;
    const most = BigInt(capacityOf(this.limit) + this.limit.requests) << 20n;
    const level = this.level + (BigInt(hits) << 20n);
    this.level = level > most ? most : level;
    this.stored = { level: this.level, at: this.at };
  }

  giveBack(hits: number): void {
    const level = this.level - (BigInt(hits) << 20n);
    this.level = level < 0n ? 0n : level;
    this.stored = { level: this.level, at: this.at };
  }

  resetUs(): number {
    return this.level === 0n ? 0 : this.drainUs(this.level);
  }

  retryAfterUs(hits: number): number {
    const excess = this.level - (BigInt(capacityOf(this.limit) - hits) << 20n);
    return excess <= 0n ? 0 : this.drainUs(excess);
  }

  private drainUs(parts: bigint): number {
    return Number(this.at + ceilDiv(parts * this.window, this.rate) - this.now);
  }
}

function ceilDiv(a: bigint, b: bigint): bigint {
  if (a === 0n) return 0n;
  return (a + b - 1n) / b;
}
