/**
 * Counters in the process's own memory: the store when no Redis is configured, and what decides
 * `on_store_error: local`. Decides each batch at once, through the TypeScript half of each algorithm.
 * Knows no clock but the one it is given, and has no timer: expired counters go as new ones come.
 */
import { capacity, fits } from '../algorithms/algorithm.js';
import type { Algorithm, Counter } from '../algorithms/algorithm.js';
import { ALGORITHMS } from '../algorithms/registry.js';
import type { Store, StoreCharge, StoreObserver, StoreRequest } from './store.js';

/** Looked at for each new counter: above 1, so that what has expired goes faster than what comes. */
const SWEPT_PER_NEW = 4;

export interface MemoryStoreOptions {
  /** Whole µs since the epoch. */
  readonly nowUs: () => number;
  /** Counters kept; a new one above that takes the place of a little used one. Default: no bound. */
  readonly maxCounters?: number;
  readonly observer: Pick<StoreObserver, 'memoryOverflow'>;
}

/** A counter, and what of the batch and request in hand belongs to it. */
interface Kept {
  readonly key: string;
  readonly algorithm: Algorithm<Counter>;
  /** As it was when last changed. */
  readonly stored: Counter;
  /** Brought up to the time of the batch. */
  readonly state: Counter;
  untouchedAtUs: number;
  /** The batch for which `state` was loaded. */
  batch: number;
  /** Hits of earlier charges of the same request. */
  pending: number;
}

export class MemoryStore implements Store {
  readonly kind = 'memory';
  private readonly nowUs: () => number;
  private readonly maxCounters: number;
  private readonly observer: Pick<StoreObserver, 'memoryOverflow'>;
  private readonly counters = new Map<string, Kept>();
  private sweep: MapIterator<Kept> = this.counters.values();
  private batch = 0;
  /** Of the request in hand, one place per charge; kept from request to request. */
  private readonly found: Kept[] = [];
  private readonly fitting: boolean[] = [];
  private readonly wanted: number[] = [];
  private readonly marks: number[] = [];

  constructor(options: MemoryStoreOptions) {
    this.nowUs = options.nowUs;
    this.maxCounters = options.maxCounters ?? Infinity;
    this.observer = options.observer;
  }

  /** How many counters are kept, expired ones that are not swept yet included. */
  get size(): number {
    return this.counters.size;
  }

  start(): void {
    // Nothing to connect to.
  }

  reconnect(): void {
    // Nothing to connect to.
  }

  stop(): Promise<void> {
    this.counters.clear();
    return Promise.resolve();
  }

  /** Forgets these counters; resolves to how many there were. */
  reset(keys: readonly string[]): Promise<number> {
    let known = 0;
    for (const key of keys) if (this.counters.delete(key)) known++;
    return Promise.resolve(known);
  }

  /** Decides and settles every request before it returns. Those settled already are left out. */
  decide(batch: readonly StoreRequest[], done: () => void): void {
    const nowUs = this.nowUs();
    const number = ++this.batch;
    for (const request of batch) {
      if (request.settled) continue;
      this.decideRequest(request, nowUs, number);
      request.nowUs = nowUs;
      request.settle();
    }
    done();
  }

  private decideRequest(request: StoreRequest, nowUs: number, batch: number): void {
    const { charges, outcomes } = request;
    const refused = this.judge(charges, nowUs, batch);
    for (let i = 0; i < charges.length; i++) {
      const charge = charges[i];
      const counter = this.found[i];
      if (charge === undefined || counter === undefined) continue;
      counter.pending = 0;
      this.marks[i] = apply(charge, counter, this.fitting[i] === true, refused, nowUs);
    }
    for (let i = 0; i < charges.length; i++) {
      const charge = charges[i];
      const counter = this.found[i];
      if (charge === undefined || counter === undefined) continue;
      const { limit } = charge;
      const { algorithm, state } = counter;
      const fitted = this.fitting[i] === true;
      const wanted = this.wanted[i] ?? 0;
      const most = capacity(limit);
      let retryAfterUs = 0;
      if (!fitted) {
        retryAfterUs = wanted > most ? -1 : algorithm.retryAfterUs(state, limit, wanted, nowUs);
      }
      outcomes[i] = {
        fits: fitted,
        taken: isTaken(charge, fitted, refused),
        remaining: Math.max(most - state.used, 0),
        resetUs: algorithm.resetUs(state, limit, nowUs),
        retryAfterUs,
        mark: this.marks[i] ?? 0,
      };
    }
  }

  /** Loads and judges the charges in order; true if the request is refused. Changes no counter. */
  private judge(charges: readonly StoreCharge[], nowUs: number, batch: number): boolean {
    let refused = false;
    let quotas = 0;
    let quotaFits = false;
    for (let i = 0; i < charges.length; i++) {
      const charge = charges[i];
      if (charge === undefined) continue;
      const { limit, hits, mode, role } = charge;
      const counter = this.find(charge, charges, i, nowUs);
      if (counter.batch !== batch) {
        counter.batch = batch;
        counter.algorithm.copy(counter.stored, counter.state);
        counter.algorithm.load(counter.state, limit, nowUs);
      }
      const wanted = hits + counter.pending;
      const fitted = fits(wanted, capacity(limit) - counter.state.used, mode);
      this.found[i] = counter;
      this.fitting[i] = fitted;
      this.wanted[i] = wanted;
      if (mode === 'record' || (mode === 'take' && fitted)) counter.pending = wanted;
      if (role === 'quota') {
        quotas++;
        quotaFits ||= fitted;
      } else if (role === 'enforced' && !fitted) {
        refused = true;
      }
    }
    return refused || (quotas > 0 && !quotaFits);
  }

  private find(
    charge: StoreCharge,
    charges: readonly StoreCharge[],
    index: number,
    nowUs: number,
  ): Kept {
    const known = this.counters.get(charge.key);
    if (known !== undefined) return known;
    const idlest = this.sweepSome(nowUs);
    const algorithm = ALGORITHMS[charge.limit.algorithm];
    const counter: Kept = {
      key: charge.key,
      algorithm,
      stored: algorithm.create(charge.limit, nowUs),
      state: algorithm.create(charge.limit, nowUs),
      untouchedAtUs: nowUs,
      batch: 0,
      pending: 0,
    };
    const full = this.counters.size >= this.maxCounters;
    if (full && idlest !== undefined) this.counters.delete(idlest.key);
    if (this.counters.size < this.maxCounters) {
      if (full) this.observer.memoryOverflow();
      this.counters.set(charge.key, counter);
      return counter;
    }
    // Not kept, yet the charges of one request on one counter add up all the same.
    for (let i = 0; i < index; i++) {
      const earlier = this.found[i];
      if (charges[i]?.key === charge.key && earlier !== undefined) return earlier;
    }
    this.observer.memoryOverflow();
    return counter;
  }

  /**
   * A few steps of an endless walk over all counters: drops what has expired, and returns the one of the
   * others that was asked for the longest ago. When there is no room left that one goes: a flood of new
   * keys drives out its own, while a caller who keeps asking stays limited. One in use is never dropped.
   */
  private sweepSome(nowUs: number): Kept | undefined {
    let idlest: Kept | undefined;
    for (let i = 0; i < SWEPT_PER_NEW; i++) {
      const next = this.sweep.next();
      if (next.done === true) {
        this.sweep = this.counters.values();
        return idlest;
      }
      const counter = next.value;
      if (counter.batch === this.batch) continue;
      if (counter.untouchedAtUs <= nowUs) this.counters.delete(counter.key);
      else if (idlest === undefined || counter.batch < idlest.batch) idlest = counter;
    }
    return idlest;
  }
}

function isTaken(charge: StoreCharge, fitted: boolean, refused: boolean): boolean {
  if (charge.mode === 'take') return fitted && !refused;
  return charge.mode !== 'peek';
}

/** Changes the counter as the judgement demands. Returns the mark of what was taken, else 0. */
function apply(
  charge: StoreCharge,
  counter: Kept,
  fitted: boolean,
  refused: boolean,
  nowUs: number,
): number {
  const { hits, limit, mode, mark } = charge;
  const { algorithm, state } = counter;
  if (hits === 0 || !isTaken(charge, fitted, refused)) return 0;
  let taken = 0;
  if (mode !== 'give_back') taken = algorithm.take(state, limit, hits, nowUs);
  else if (mark === undefined) algorithm.giveBack(state, hits);
  else algorithm.undo(state, limit, hits, mark);
  algorithm.copy(state, counter.stored);
  counter.untouchedAtUs = algorithm.untouchedAtUs(state, limit, nowUs);
  return taken;
}
