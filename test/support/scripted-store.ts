/** A store whose answers a test writes: it keeps the batches it is given until they are answered. */
import type { Charge, Limit, Outcome } from '../../src/model.js';
import type { Store, StoreObserver, StoreRequest } from '../../src/store/store.js';
import { StoreRequest as Request } from '../../src/store/store.js';

export const FITS: Outcome = {
  fits: true,
  taken: true,
  remaining: 5,
  resetUs: 60_000_000,
  retryAfterUs: 0,
};
export const REFUSED: Outcome = {
  fits: false,
  taken: false,
  remaining: 0,
  resetUs: 30_000_000,
  retryAfterUs: 30_000_000,
};

export class ScriptedStore implements Store {
  readonly kind = 'scripted';
  readonly batches: { requests: readonly StoreRequest[]; done: () => void }[] = [];
  reconnects = 0;

  decide(requests: readonly StoreRequest[], done: () => void): void {
    this.batches.push({ requests, done });
  }

  /** Answers the oldest batch: every charge of each request gets what `outcomeOf` says. */
  answer(outcomeOf: (charge: Charge) => Outcome = () => FITS): void {
    const batch = this.batches.shift();
    if (batch === undefined) throw new Error('no batch is waiting');
    for (const request of batch.requests) {
      request.charges.forEach((charge, i) => (request.outcomes[i] = outcomeOf(charge)));
      request.nowUs = 1_700_000_000_000_000;
      request.settle();
    }
    batch.done();
  }

  reconnect(): void {
    this.reconnects++;
  }
  start(): void {
    // nothing to open
  }
  stop(): Promise<void> {
    return Promise.resolve();
  }
}

/** Counts what it is told. */
export class CountingObserver implements StoreObserver {
  readonly failures: string[] = [];
  readonly batches: number[] = [];
  readonly breaker: boolean[] = [];
  denyHits = 0;
  overflows = 0;
  undoFailures = 0;
  readonly undoneKeys: string[] = [];
  readonly evictions: [boolean, number][] = [];
  reloads = 0;
  readonly skews: number[] = [];

  storeFailed(kind: string): void {
    this.failures.push(kind);
  }
  roundtrip(): void {
    // not looked at
  }
  batchSent(requests: number): void {
    this.batches.push(requests);
  }
  breakerOpen(open: boolean): void {
    this.breaker.push(open);
  }
  clockSkew(seconds: number): void {
    this.skews.push(seconds);
  }
  scriptReloaded(): void {
    this.reloads++;
  }
  denyCacheHit(): void {
    this.denyHits++;
  }
  memoryOverflow(): void {
    this.overflows++;
  }
  undone(charges: readonly Charge[]): void {
    this.undoneKeys.push(...charges.map(({ key }) => key));
  }
  undoFailed(): void {
    this.undoFailures++;
  }
  evictionSeen(policyUnsafe: boolean, evictedKeys: number): void {
    this.evictions.push([policyUnsafe, evictedKeys]);
  }
}

export function limit(change: Partial<Limit> = {}): Limit {
  return {
    name: '',
    algorithm: 'fixed_window',
    requests: 10,
    unit: 'minute',
    unitMultiplier: 1,
    windowUs: 60_000_000,
    burst: 10,
    precisionUs: 0,
    onStoreError: 'allow',
    countRejected: undefined,
    disclose: 'full',
    keyHead: 'f60',
    ...change,
  };
}

export function charge(change: Partial<Charge> = {}): Charge {
  return { limit: limit(), key: 'k', hits: 1, role: 'enforced', mode: 'take', ...change };
}

/** A request that remembers when it was settled. */
export function ask(charges: readonly Charge[], deadlineMs = Infinity): StoreRequest {
  return new Request(charges, deadlineMs, () => undefined);
}
