/**
 * Between single requests and a store: collects what arrives in one turn of the event loop and sends it
 * as one batch. A bounded number of calls is in flight; what arrives meanwhile forms the next batch.
 * No timer delays anything.
 */
import { MAX_CALL_CHARGES, MAX_CALL_REQUESTS } from './script-call.js';
import type { Gate, Store, StoreObserver, StoreRequest } from './store.js';

export interface BatcherOptions {
  readonly store: Store;
  readonly observer: Pick<StoreObserver, 'batchSent'>;
  /** Calls in flight at once. */
  readonly maxCalls: number;
}

export class Batcher implements Gate {
  private waiting: StoreRequest[] = [];
  private scheduled = false;
  private calls = 0;
  private readonly flush = (): void => {
    this.scheduled = false;
    this.sendWaiting();
  };
  private readonly finished = (): void => {
    this.calls--;
    if (this.waiting.length > 0) this.schedule();
  };

  constructor(private readonly options: BatcherOptions) {}

  submit(request: StoreRequest): void {
    // Behind a stuck store the queue would only grow: drop from it what its deadline has settled.
    if (this.waiting[0]?.settled === true) {
      this.waiting = this.waiting.filter((other) => !other.settled);
    }
    this.waiting.push(request);
    this.schedule();
  }

  private schedule(): void {
    if (this.scheduled || this.calls >= this.options.maxCalls) return;
    this.scheduled = true;
    // After the poll phase: everything that this turn read from the sockets is in the batch.
    setImmediate(this.flush);
  }

  private sendWaiting(): void {
    // A store that answers at once may bring new requests while this goes on: they gather by themselves.
    const { waiting } = this;
    this.waiting = [];
    let next = 0;
    while (next < waiting.length && this.calls < this.options.maxCalls) {
      const batch: StoreRequest[] = [];
      let charges = 0;
      for (; next < waiting.length && batch.length < MAX_CALL_REQUESTS; next++) {
        const request = waiting[next];
        if (request === undefined || request.settled) continue;
        charges += request.charges.length;
        if (charges > MAX_CALL_CHARGES && batch.length > 0) break;
        batch.push(request);
      }
      if (batch.length === 0) break;
      this.calls++;
      this.options.observer.batchSent(batch.length);
      this.options.store.decide(batch, this.finished);
    }
    if (next < waiting.length) this.waiting = [...waiting.slice(next), ...this.waiting];
  }
}
