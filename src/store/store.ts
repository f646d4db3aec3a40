/**
 * The contract of a store: batches of requests in, outcomes out. Decorators (`guard`, `deny-cache`)
 * take single requests; `batch` turns those into batches. A store knows nothing of rules or wires.
 */
import type { Charge, FailureKind, Outcome } from '../model.js';

/** Why a store gave no outcome; raised where a foreign error enters, never with a secret in it. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  readonly code = 'store_error';

  constructor(
    readonly kind: FailureKind,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

/**
 * A charge as stores see it. A give-back with a `mark` is an undo: it takes back exactly the hits of the
 * take that reported this mark, and nothing where those are gone.
 */
export interface StoreCharge extends Charge {
  readonly mark?: number;
}

/** An outcome as stores tell it: what was taken has the mark that undoes it (see `Algorithm.take`). */
export interface StoreOutcome extends Outcome {
  readonly mark?: number;
}

const NOBODY: readonly SettleWatcher[] = [];

/**
 * One request on its way through the store: its charges, and what becomes of them. The store fills
 * `outcomes` and calls `settle` as soon as nothing more will come for this request.
 */
export class StoreRequest {
  /** One place per charge; a place left undefined when settled had no answer (see `failure`). */
  readonly outcomes: (StoreOutcome | undefined)[];
  /** Why places are empty; the last failure that was met. */
  failure: StoreError | undefined;
  /** The store's clock, µs since the epoch; 0 while no part has been answered. */
  nowUs = 0;
  settled = false;
  /** Among the requests that the guard watches over. */
  place = -1;
  /** When it was passed on, on the clock of `performance.now()`; set by the first decorator that needs it. */
  submittedMs = 0;
  /**
   * Set where a request went out in parts, or had no answer in time. Who refuses it for a reason that the
   * store does not know, such as a policy, calls this: what was taken, or turns out to have been, is undone.
   */
  takeBack: (() => void) | undefined;
  /** Called when a store answers what its deadline has settled before; `outcomes` is filled then. */
  late: (() => void) | undefined;
  private watcher: SettleWatcher | undefined;
  private earlier: readonly SettleWatcher[] = NOBODY;

  /** `deadlineMs` is on the clock of `performance.now()`. `done` is called once, in any turn. */
  constructor(
    readonly charges: readonly StoreCharge[],
    readonly deadlineMs: number,
    private readonly done: (request: StoreRequest) => void,
  ) {
    this.outcomes = new Array<StoreOutcome | undefined>(charges.length);
  }

  /** A decorator that passes the request on asks to see it settled: the last to ask is told first. */
  watch(watcher: SettleWatcher): void {
    if (this.watcher !== undefined) this.earlier = [this.watcher, ...this.earlier];
    this.watcher = watcher;
  }

  /** Ends the wait; a second call does nothing, and what a store fills in later is not looked at. */
  settle(): void {
    if (this.settled) {
      this.late?.();
      return;
    }
    this.settled = true;
    this.watcher?.settled(this);
    for (const watcher of this.earlier) watcher.settled(this);
    this.done(this);
  }

  /** Ends the wait with what is there; the places without outcome failed for this reason. */
  fail(error: StoreError): void {
    if (this.settled) return;
    this.failure = error;
    this.settle();
  }
}

/** How long an undo may wait for its answer before it counts as failed. */
const UNDO_PATIENCE_MS = 1000;

/**
 * What undoes the takes of these charges that are known; those in `undone` were dealt with before. Not on a
 * counter that the same request gives back to: how much of the take is still there is not known, and to
 * take back more would let others pass.
 */
export function undoOf(request: StoreRequest, undone: Set<number>): StoreCharge[] {
  const undo: StoreCharge[] = [];
  const { charges } = request;
  const givesBack = (key: string): boolean =>
    charges.some((other) => other.mode === 'give_back' && other.key === key);
  for (const [i, charge] of charges.entries()) {
    const outcome = request.outcomes[i];
    if (charge.mode !== 'take' || outcome?.taken !== true || undone.has(i)) continue;
    undone.add(i);
    if (givesBack(charge.key)) continue;
    undo.push({ ...charge, role: 'shadow', mode: 'give_back', mark: outcome.mark ?? 0 });
  }
  return undo;
}

/** Who hears what becomes of undos. */
export interface UndoWatcher {
  /** These charges of before were undone, or may have been: what refused meanwhile may fit again. */
  readonly undone: (charges: readonly StoreCharge[]) => void;
  /** There was no answer: the hits may stay counted. */
  readonly undoFailed: () => void;
}

/** Sends what `undoOf` has found. */
export function submitUndo(
  gate: Gate,
  charges: readonly StoreCharge[],
  nowMs: number,
  watcher: UndoWatcher,
): void {
  const undo = new StoreRequest(charges, nowMs + UNDO_PATIENCE_MS, ({ failure }) => {
    watcher.undone(charges);
    if (failure !== undefined) watcher.undoFailed();
  });
  gate.submit(undo);
}

/** Sees a request settled, before its caller does. */
export interface SettleWatcher {
  settled(request: StoreRequest): void;
}

/** Takes one request at a time: the limiter's view of everything behind it. */
export interface Gate {
  submit(request: StoreRequest): void;
}

/** Decides batches. Requests see what earlier ones of the same batch took. */
export interface Store {
  /** For logs and metrics: `memory`, `redis`. */
  readonly kind: string;
  /**
   * Decides all requests in order, each all or nothing, and settles each one (with `fail` where no
   * answer came). Never throws. `done` is called once, when nothing of the batch is outstanding.
   */
  decide(batch: readonly StoreRequest[], done: () => void): void;
  /**
   * Drops a connection that may be stuck and makes a new one; what was in flight fails at once. Nothing
   * to do for a store without connections.
   */
  reconnect(): void;
  start(): void;
  stop(): Promise<void>;
}

/** What a store and its decorators tell the metrics. Every call is cheap and never throws. */
export interface StoreObserver {
  /** A call to Redis failed, or a connection broke. */
  storeFailed(kind: FailureKind): void;
  /** A script call came back after this long. */
  roundtrip(seconds: number): void;
  /** A batch of so many requests was sent. */
  batchSent(requests: number): void;
  breakerOpen(open: boolean): void;
  /** Redis's clock minus ours, in seconds. */
  clockSkew(seconds: number): void;
  /** The script was not in Redis's cache and had to be sent again. */
  scriptReloaded(): void;
  /** An answer came from the deny cache. */
  denyCacheHit(): void;
  /** Memory was full: a new counter took the place of an idle one, or was decided without being kept. */
  memoryOverflow(): void;
  /** An undo had no answer: hits of a refused request may stay counted until they leave by themselves. */
  undoFailed(): void;
  /** Redis may evict counters, by its maxmemory-policy; and how many keys it has evicted so far. */
  evictionSeen(policyUnsafe: boolean, evictedKeys: number): void;
}
