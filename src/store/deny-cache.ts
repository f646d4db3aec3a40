/**
 * A counter that has just refused need not be asked again until it can admit: the flood against one
 * exhausted key costs the store about one call a second. Knows nothing of how the store decides.
 *
 * A denial is kept by counter key, limit and hits, from the moment the call was sent, for its
 * `retry_after` and at most one second. Only refusals that count nothing are answered: `take` charges
 * that are enforced. Anything else in a request (a record, a give-back) goes to the store whole.
 */
import type { Charge, Outcome } from '../model.js';
import { capacity } from '../algorithms/algorithm.js';
import { StoreRequest } from './store.js';
import type { Gate, SettleWatcher, StoreObserver } from './store.js';

const LIFE_MS = 1000;

interface Remembered {
  readonly requests: number;
  readonly burst: number;
  readonly hits: number;
  /** False: an outcome of another charge of a refused request, to be shown and not to refuse by. */
  readonly denied: boolean;
  readonly outcome: Outcome;
  readonly storeNowUs: number;
  readonly sentMs: number;
  readonly untilMs: number;
  /** What was sent earlier than this knows less: its answer changes nothing here. */
  readonly sinceMs: number;
}

const NOTHING: Remembered = {
  requests: 0,
  burst: 0,
  hits: 0,
  denied: false,
  outcome: { fits: true, taken: false, remaining: 0, resetUs: 0, retryAfterUs: 0 },
  storeNowUs: 0,
  sentMs: -Infinity,
  untilMs: -Infinity,
  sinceMs: -Infinity,
};

export interface DenyCacheOptions {
  readonly gate: Gate;
  readonly observer: Pick<StoreObserver, 'denyCacheHit'>;
  /** Counters remembered at most. */
  readonly maxEntries: number;
  /** Monotonic, in ms; `performance.now`. */
  readonly nowMs: () => number;
}

export class DenyCache implements Gate, SettleWatcher {
  // Two generations of at most a second each: what is old goes without being looked for.
  private recent = new Map<string, Remembered>();
  private older = new Map<string, Remembered>();
  private rotatedMs = -Infinity;
  private clearedMs = -Infinity;

  constructor(private readonly options: DenyCacheOptions) {}

  submit(request: StoreRequest): void {
    const nowMs = this.options.nowMs();
    if (!this.answer(request, nowMs)) {
      request.submittedMs = nowMs;
      request.watch(this);
      this.options.gate.submit(request);
    }
  }

  /** Learns from an answer of the store; forgets what a give-back may have made wrong. */
  settled(request: StoreRequest): void {
    let denied = false;
    for (let i = 0; i < request.charges.length; i++) {
      const charge = request.charges[i];
      const outcome = request.outcomes[i];
      if (charge === undefined) continue;
      if (charge.mode === 'give_back') this.forget(charge.key);
      else if (outcome !== undefined && isDenial(charge, outcome)) denied = true;
    }
    if (!denied || !request.charges.every(isTake)) return;
    for (let i = 0; i < request.charges.length; i++) {
      const charge = request.charges[i];
      const outcome = request.outcomes[i];
      if (charge !== undefined && outcome !== undefined) this.remember(charge, outcome, request);
    }
  }

  /** Hits of these counters were taken back, by whoever is behind: what refused may fit again. */
  undone(charges: readonly Charge[]): void {
    const sinceMs = this.options.nowMs();
    for (const { key } of charges) {
      const known = this.recent.get(key) ?? this.older.get(key);
      // What fitted still does, and goes on being shown in place of a question to the store.
      if (known?.denied === false) this.keep(key, { ...known, sinceMs });
      else this.forget(key);
    }
  }

  /** On reload and on reset of counters. */
  clear(): void {
    this.clearedMs = this.options.nowMs();
    this.recent.clear();
    this.older.clear();
  }

  private answer(request: StoreRequest, nowMs: number): boolean {
    this.rotate(nowMs);
    if (this.recent.size + this.older.size === 0) return false;
    const { charges } = request;
    let denial: Remembered | undefined;
    for (const charge of charges) {
      if (!isTake(charge)) {
        if (charge.mode === 'give_back') this.forget(charge.key);
        return false;
      }
      denial ??= this.denialOf(charge, nowMs);
    }
    if (denial === undefined) return false;

    const unknown: Charge[] = [];
    for (let i = 0; i < charges.length; i++) {
      const charge = charges[i];
      if (charge === undefined) continue;
      const known = this.lookUp(charge, nowMs);
      if (known !== undefined && tellsOf(known, charge)) {
        request.outcomes[i] = aged(known, charge, nowMs);
      } else unknown.push({ ...charge, mode: 'peek' });
    }
    this.options.observer.denyCacheHit();
    request.nowUs = denial.storeNowUs + Math.round((nowMs - denial.sentMs) * 1000);
    if (unknown.length === 0) request.settle();
    else this.look(request, unknown);
    return true;
  }

  /** The request is refused already: what else it would have charged is only looked at. */
  private look(request: StoreRequest, unknown: readonly Charge[]): void {
    const peek = new StoreRequest(unknown, request.deadlineMs, () => {
      let next = 0;
      for (let i = 0; i < request.charges.length; i++) {
        if (request.outcomes[i] === undefined) request.outcomes[i] = peek.outcomes[next++];
      }
      if (peek.failure === undefined) request.settle();
      else request.fail(peek.failure);
    });
    this.options.gate.submit(peek);
  }

  private denialOf(charge: Charge, nowMs: number): Remembered | undefined {
    if (charge.role !== 'enforced') return undefined;
    const known = this.lookUp(charge, nowMs);
    return known?.denied === true && charge.hits >= known.hits ? known : undefined;
  }

  private lookUp(charge: Charge, nowMs: number): Remembered | undefined {
    const known = this.recent.get(charge.key) ?? this.older.get(charge.key);
    if (known === undefined || nowMs >= known.untilMs) return undefined;
    const sameLimit =
      known.requests === charge.limit.requests && known.burst === charge.limit.burst;
    return sameLimit ? known : undefined;
  }

  private remember(charge: Charge, outcome: Outcome, request: StoreRequest): void {
    const sentMs = request.submittedMs;
    this.rotate(this.options.nowMs());
    const known = this.recent.get(charge.key) ?? this.older.get(charge.key);
    if (sentMs < Math.max(this.clearedMs, known?.sinceMs ?? -Infinity)) return;
    const retryMs = outcome.retryAfterUs > 0 ? outcome.retryAfterUs / 1000 : LIFE_MS;
    this.keep(charge.key, {
      requests: charge.limit.requests,
      burst: charge.limit.burst,
      hits: charge.hits,
      denied: isDenial(charge, outcome),
      outcome,
      storeNowUs: request.nowUs,
      sentMs,
      untilMs: sentMs + Math.min(LIFE_MS, retryMs),
      sinceMs: sentMs,
    });
  }

  private keep(key: string, remembered: Remembered): void {
    if (this.recent.size < this.options.maxEntries / 2) this.recent.set(key, remembered);
  }

  /** Nor is believed what a refusal says that is still on its way. */
  private forget(key: string): void {
    this.recent.delete(key);
    this.older.delete(key);
    this.keep(key, { ...NOTHING, sinceMs: this.options.nowMs() });
  }

  private rotate(nowMs: number): void {
    if (nowMs - this.rotatedMs < LIFE_MS) return;
    this.older = nowMs - this.rotatedMs < 2 * LIFE_MS ? this.recent : new Map<string, Remembered>();
    this.recent = new Map();
    this.rotatedMs = nowMs;
  }
}

function isTake(charge: Charge): boolean {
  return charge.mode === 'take';
}

/** The hits exceed what is left by themselves, not only together with others of the same request. */
function isDenial(charge: Charge, outcome: Outcome): boolean {
  const refused = !outcome.fits && charge.hits > outcome.remaining;
  return refused && charge.role === 'enforced' && charge.mode === 'take';
}

/** What was so for other hits says nothing of when these would fit, unless both fit or both do not. */
function tellsOf({ outcome }: Remembered, charge: Charge): boolean {
  return outcome.fits === charge.hits <= outcome.remaining;
}

/** The outcome as the store would tell it now, if nobody else had asked meanwhile. */
function aged(known: Remembered, charge: Charge, nowMs: number): Outcome {
  const { outcome } = known;
  const ageUs = Math.round((nowMs - known.sentMs) * 1000);
  const { fits } = outcome;
  const later = (us: number): number => (us > 0 ? Math.max(1, us - ageUs) : us);
  return {
    fits,
    taken: false,
    remaining: outcome.remaining,
    resetUs: later(outcome.resetUs),
    retryAfterUs: charge.hits > capacity(charge.limit) ? -1 : later(outcome.retryAfterUs),
  };
}
