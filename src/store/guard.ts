/**
 * Keeps the caller's patience: every request is settled by its deadline, whatever the store does, and a
 * store that fails again and again is not asked until a probe finds it well. Resends nothing.
 */
import { MAX_LIMIT, type Charge, type FailureKind, type Limit, type Logger } from '../model.js';
import { InFlight } from './in-flight.js';
import { StoreError, StoreRequest, submitUndo, undoOf } from './store.js';
import type { Gate, SettleWatcher, Store, StoreObserver, UndoWatcher } from './store.js';

/**
 * Failures in so many different moments and over so long, with no success between, open the breaker. A
 * shorter hiccup, such as Redis forking to save, costs only the requests that it delays.
 */
const FAILURES_TO_OPEN = 3;
const FAILING_FOR_MS = 50;
/**
 * A time-out after less waiting says nothing about the store, as callers may bring tiny deadlines; save
 * when nothing at all has come back for as long as a probe waits.
 */
const FAIR_WAIT_MS = 8;
const FIRST_PROBE_MS = 5;
const PROBE_INTERVAL_MS = 100;
const PROBE_PATIENCE_MS = 250;
/** A store that has not answered a probe for so long has its connection dropped. */
const STUCK_MS = 1000;
const LOG_INTERVAL_MS = 60_000;
/** A breaker that closed longer ago than this opens with a log line of its own. */
const CALM_MS = 10_000;

const ADVICE: Readonly<Record<FailureKind, string>> = {
  timeout: 'Redis does not answer in time: look at its load and the network between',
  connection: 'Redis cannot be reached: is it running, and are host, port and TLS settings right?',
  readonly: 'the server is a replica: reconnecting to find the new master',
  loading: 'Redis is not ready (loading its data, or busy with a script): it should come by itself',
  oom: 'Redis is out of memory: raise maxmemory, and use maxmemory-policy noeviction',
  permission: 'Redis refuses a command or the login: check user, password and ACL',
  cluster: 'the cluster does not serve the slot: look at CLUSTER INFO',
  script: 'the script failed in Redis: is this Redis 6.2 or later, or Valkey?',
  reply: 'Redis sent a reply that makes no sense: is something else listening there?',
};

/** What the breaker is doing, for the page and the metrics. */
export interface GuardState {
  readonly breakerOpen: boolean;
  readonly lastFailure: { readonly kind: FailureKind; readonly message: string } | undefined;
}

export interface GuardOptions {
  readonly gate: Gate;
  readonly store: Store;
  readonly observer: Pick<StoreObserver, 'breakerOpen' | 'storeFailed'> & UndoWatcher;
  readonly logger: Logger;
  /** Beginning of the key that probes write, such as CACHE_KEY_PREFIX. */
  readonly keyPrefix: string;
  /** In a cluster: a hash tag that puts the probe's key into a slot of this node. */
  readonly probeTag?: () => string;
  /** Which Redis this is, in the log. */
  readonly name: string;
  /** Monotonic, in ms; `performance.now`. */
  readonly nowMs: () => number;
}

export class Guard implements Gate, SettleWatcher {
  private readonly outstanding = new InFlight<StoreRequest>();
  private timer: NodeJS.Timeout | undefined;
  private timerDueMs = Infinity;
  private failures = 0;
  private firstFailureMs = 0;
  private lastFailureMs = -Infinity;
  private lastFailure: StoreError | undefined;
  private open = false;
  private probeTimer: NodeJS.Timeout | undefined;
  private probing = false;
  private probeDelayMs = FIRST_PROBE_MS;
  private lastAnswerMs = -Infinity;
  /** When what the store has not answered was first sent, with no answer to anything since. */
  private silentSinceMs = Infinity;
  private lastLogMs = -Infinity;
  private closedMs = -Infinity;
  private stopped = false;

  constructor(private readonly options: GuardOptions) {}

  get state(): GuardState {
    const failure = this.lastFailure;
    return {
      breakerOpen: this.open,
      lastFailure: failure && { kind: failure.kind, message: failure.message },
    };
  }

  submit(request: StoreRequest): void {
    if (this.open) {
      request.fail(this.lastFailure ?? new StoreError('connection', 'the breaker is open'));
      return;
    }
    if (request.submittedMs === 0) request.submittedMs = this.options.nowMs();
    this.outstanding.add(request);
    request.watch(this);
    if (request.deadlineMs < this.timerDueMs) this.arm(request.deadlineMs);
    this.options.gate.submit(request);
  }

  settled(request: StoreRequest): void {
    this.outstanding.delete(request);
    if (request.failure !== undefined) this.failed(request.failure, request.submittedMs);
    else this.answered(this.options.nowMs());
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    clearTimeout(this.probeTimer);
    for (const request of this.outstanding.all()) {
      request.fail(new StoreError('connection', 'the service is stopping'));
    }
  }

  private arm(dueMs: number): void {
    clearTimeout(this.timer);
    this.timerDueMs = dueMs;
    // Node truncates to whole milliseconds and turns 0 into 1: round down, so as not to be late.
    const delay = Math.max(1, Math.floor(dueMs - this.options.nowMs()));
    this.timer = setTimeout(this.due, delay);
    this.timer.unref();
  }

  private readonly due = (): void => {
    this.timerDueMs = Infinity;
    // After a pause of ours the answers may lie unread in the socket: read them before giving up.
    setImmediate(this.expire);
  };

  private readonly expire = (): void => {
    const nowMs = this.options.nowMs();
    let next = Infinity;
    for (const request of this.outstanding.all()) {
      // A timer may be early by part of a millisecond; waiting another whole one would be late.
      if (request.deadlineMs - nowMs < 1) {
        this.options.observer.storeFailed('timeout');
        this.undoIfRefused(request);
        this.hearLate(request);
        request.fail(new StoreError('timeout', 'no answer from the store before the deadline'));
      } else if (request.deadlineMs < next) next = request.deadlineMs;
    }
    if (next < this.timerDueMs) this.arm(next);
  };

  /** A hit that is counted after the deadline, for a request that its policy has refused, is undone. */
  private undoIfRefused(request: StoreRequest): void {
    // A part of a larger request is dealt with by who has split it.
    if (request.late !== undefined) return;
    const undone = new Set<number>();
    let refused = false;
    const undo = (): void => {
      const charges = refused ? undoOf(request, undone) : [];
      if (charges.length === 0) return;
      const { gate, nowMs, observer } = this.options;
      submitUndo(gate, charges, nowMs(), observer);
    };
    request.late = undo;
    request.takeBack = () => {
      refused = true;
      undo();
    };
  }

  /**
   * A store that answers late is slow, or we are too busy to hear it: callers who bring the load must not
   * open the breaker, which would let everybody pass. Later than a probe waits counts for nothing.
   */
  private hearLate(request: StoreRequest): void {
    const { late } = request;
    request.late = () => {
      const nowMs = this.options.nowMs();
      if (nowMs - request.submittedMs < PROBE_PATIENCE_MS) this.answered(nowMs);
      late?.();
    };
  }

  private answered(nowMs: number): void {
    this.failures = 0;
    this.lastAnswerMs = nowMs;
    this.silentSinceMs = Infinity;
  }

  private failed(error: StoreError, submittedMs: number): void {
    const nowMs = this.options.nowMs();
    this.lastFailure = error;
    this.silentSinceMs = Math.min(this.silentSinceMs, submittedMs);
    const silentMs = nowMs - this.silentSinceMs;
    const unfair = nowMs - submittedMs < FAIR_WAIT_MS && silentMs < PROBE_PATIENCE_MS;
    if (error.kind === 'timeout' && unfair) return;
    if (nowMs - this.lastFailureMs >= 1) {
      if (this.failures === 0) this.firstFailureMs = submittedMs;
      this.failures++;
      this.lastFailureMs = nowMs;
    }
    const lasting = nowMs - this.firstFailureMs >= FAILING_FOR_MS;
    if (!this.open && lasting && this.failures >= FAILURES_TO_OPEN) this.openBreaker(error);
  }

  private openBreaker(error: StoreError): void {
    this.open = true;
    this.probeDelayMs = FIRST_PROBE_MS;
    this.options.observer.breakerOpen(true);
    if (this.options.nowMs() - this.closedMs > CALM_MS) this.lastLogMs = -Infinity;
    this.log(error);
    this.scheduleProbe();
  }

  private closeBreaker(): void {
    this.open = false;
    this.closedMs = this.options.nowMs();
    this.answered(this.closedMs);
    this.options.observer.breakerOpen(false);
    this.options.logger.info(
      { store: this.options.name },
      'Redis answers again: decisions come from it',
    );
  }

  /** One line when the state changes, then at most one a minute. */
  private log(error: StoreError): void {
    const nowMs = this.options.nowMs();
    if (nowMs - this.lastLogMs < LOG_INTERVAL_MS) return;
    this.lastLogMs = nowMs;
    this.options.logger.error(
      { store: this.options.name, kind: error.kind, reason: error.message },
      `decisions are made by policy: ${ADVICE[error.kind]}`,
    );
  }

  private scheduleProbe(): void {
    // A probe may be out when it ends, and of a cluster's node nobody would ever stop the next.
    if (this.stopped) return;
    this.probeTimer = setTimeout(() => {
      this.probe();
    }, this.probeDelayMs);
    this.probeTimer.unref();
    this.probeDelayMs = Math.min(PROBE_INTERVAL_MS, this.probeDelayMs * 2);
  }

  private probeCharge(): Charge {
    const { keyPrefix, probeTag } = this.options;
    const tag = probeTag?.() ?? '';
    const key = `${keyPrefix}${PROBE_LIMIT.keyHead}!probe${tag === '' ? '' : `{${tag}}`}`;
    return { limit: PROBE_LIMIT, key, hits: 1, role: 'enforced', mode: 'record' };
  }

  /** Takes a hit on a key of our own: a look would not notice a full or read-only Redis. */
  private probe(): void {
    if (this.probing) return;
    this.probing = true;
    const sentMs = this.options.nowMs();
    let patience: NodeJS.Timeout | undefined = undefined;
    const probe = new StoreRequest([this.probeCharge()], sentMs + PROBE_PATIENCE_MS, (request) => {
      clearTimeout(patience);
      this.probing = false;
      if (request.failure === undefined) {
        this.closeBreaker();
        return;
      }
      this.lastFailure = request.failure;
      this.log(request.failure);
      if (request.failure.kind === 'timeout' && sentMs - this.lastAnswerMs > STUCK_MS) {
        this.lastAnswerMs = sentMs;
        this.options.store.reconnect();
      }
      this.scheduleProbe();
    });
    // Not through the batcher, whose places may all be held by calls that never come back.
    this.options.store.decide([probe], () => undefined);
    if (probe.settled) return;
    patience = setTimeout(() => {
      probe.fail(new StoreError('timeout', 'no answer to the probe'));
    }, PROBE_PATIENCE_MS);
    patience.unref();
  }
}

const PROBE_LIMIT: Limit = {
  name: '',
  algorithm: 'fixed_window',
  requests: MAX_LIMIT,
  unit: 'second',
  unitMultiplier: 1,
  windowUs: 1_000_000,
  burst: MAX_LIMIT,
  precisionUs: 0,
  onStoreError: 'allow',
  countRejected: true,
  disclose: 'none',
  keyHead: 'f1',
};
