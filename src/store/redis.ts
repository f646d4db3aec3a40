/**
 * Counters in Redis, standalone: one script call per batch. Owns the connection and the script in
 * Redis's cache; knows nothing of deadlines, policies or breakers (`guard`), and resends nothing but
 * a call that Redis says it has not run.
 */
import type { Redis } from 'ioredis';
import type { FailureKind, Logger } from '../model.js';
import { parseRedirect } from './cluster-slots.js';
import { InFlight, type Placed } from './in-flight.js';
import type { NodeStore, Redirected } from './redis-cluster.js';
import {
  backoffMs,
  createClient,
  isScriptMissing,
  toLoginError,
  toStoreError,
} from './redis-client.js';
import { ScriptCommand } from './redis-command.js';
import type { RedisConnection } from './redis-client.js';
import { MAX_CALL_CHARGES, MAX_CALL_REQUESTS, ScriptReply, encodeCall } from './script-call.js';
import type { ScriptCall } from './script-call.js';
import { buildScript, scriptSha } from './script.js';
import { StoreError } from './store.js';
import type { StoreObserver, StoreRequest } from './store.js';

/** One charge more than this has no place in the script's table of keys. */
const MOST_CHARGES = 7000;
const LOG_INTERVAL_MS = 60_000;
const COMMAND_PATIENCE_MS = 500;
const SKEW_INTERVAL_MS = 1000;

export interface RedisStoreOptions {
  readonly connection: RedisConnection;
  /** Random extra life of keys, 0 to this; the script takes at most a tenth of the window of it. */
  readonly expirationJitterMs?: number;
  readonly observer: Pick<
    StoreObserver,
    'storeFailed' | 'roundtrip' | 'clockSkew' | 'scriptReloaded'
  >;
  readonly logger: Logger;
  /** Our own clock, whole µs since the epoch: only for measuring Redis's against it. */
  readonly nowUs: () => number;
  /** 0 to below 1; default Math.random. */
  readonly random?: () => number;
  /** A connection stands, the first or a later one. */
  readonly onConnected?: () => void;
  /** When this is a node of a cluster. */
  readonly cluster?: ClusterHooks;
}

/** How a node of a cluster treats keys, and whom it tells of calls that are for another node. */
export interface ClusterHooks {
  /** One call may touch one slot only. */
  readonly slotOf: (key: string) => number;
  /** The call has not run; from now on it is the cluster's. */
  readonly redirected: (call: Redirected) => void;
}

/** A script call whose reply is awaited. */
interface Flight extends Placed {
  readonly requests: readonly StoreRequest[];
  readonly call: ScriptCall;
  readonly done: () => void;
  readonly sentMs: number;
  /** Of a slot that is just moving here: Redis serves it only to who says that it was sent. */
  readonly asking: boolean;
  /** The reply came, or the call was given up: what comes later is not looked at. */
  ended: boolean;
}

export class RedisStore implements NodeStore {
  readonly kind = 'redis';
  private readonly client: Redis;
  private readonly script = buildScript();
  private readonly sha = scriptSha();
  private readonly random: () => number;
  private readonly flights = new InFlight<Flight>();
  private attempts = 0;
  private stopped = false;
  /** Why there is no connection; also what calls fail with meanwhile. */
  private offline: StoreError | undefined = new StoreError('connection', 'not connected yet');
  private reportedUp: boolean | undefined;
  /** Something came back on the connection that was last reported; else it is no news that it broke. */
  private answered = true;
  private readonly loggedMs = new Map<FailureKind, number>();
  private skewMs = -Infinity;

  constructor(private readonly options: RedisStoreOptions) {
    this.random = options.random ?? Math.random;
    this.client = createClient(
      options.connection,
      () => backoffMs(this.attempts++, this.random()),
      (message) => {
        options.logger.warn({ redis: this.address }, message);
      },
    );
    this.client.on('ready', () => {
      this.up();
    });
    this.client.on('error', (error) => {
      const loggingIn = this.client.status === 'connect';
      this.down(loggingIn ? toLoginError(error) : toStoreError(error));
      // Else the library goes on when its SELECT is refused, and we would count in database 0.
      if (loggingIn) this.client.stream.destroy();
    });
    this.client.on('close', () => {
      if (this.connected) this.down(new StoreError('connection', 'the connection was closed'));
    });
  }

  /** The connection stands; says nothing of whether Redis answers. */
  get connected(): boolean {
    return this.offline === undefined;
  }

  /** Connects, now and whenever the connection is lost. Redis being absent is not an error. */
  start(): void {
    this.client.connect().catch(() => {
      // Reported by the event, and tried again.
    });
  }

  stop(): Promise<void> {
    this.stopped = true;
    this.offline = new StoreError('connection', 'the store is stopped');
    this.client.disconnect();
    this.failFlights(this.offline);
    return Promise.resolve();
  }

  /** Drops the connection at once, without a farewell that a stuck peer would not answer. */
  reconnect(): void {
    if (this.stopped || !this.connected) return;
    this.client.stream.destroy();
  }

  /** Deletes these counters; resolves to how many there were. Rejects with StoreError. */
  async reset(keys: readonly string[]): Promise<number> {
    return keys.length === 0 ? 0 : Number(await this.command('UNLINK', ...keys));
  }

  /** One command off the decision path. Rejects with StoreError, at the latest after half a second. */
  command(name: string, ...args: readonly string[]): Promise<unknown> {
    if (this.offline !== undefined) return Promise.reject(this.offline);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new StoreError('timeout', `no answer to ${name}`));
      }, COMMAND_PATIENCE_MS);
      timer.unref();
      this.client.call(name, ...args).then(
        (reply) => {
          clearTimeout(timer);
          this.answered = true;
          resolve(reply);
        },
        (error: unknown) => {
          clearTimeout(timer);
          reject(toStoreError(error));
        },
      );
    });
  }

  /** What was settled before is left out. Splits what is too much for one call. */
  decide(batch: readonly StoreRequest[], done: () => void): void {
    this.sendAll(batch, done, false);
  }

  decideAsking(batch: readonly StoreRequest[], done: () => void): void {
    this.sendAll(batch, done, true);
  }

  private sendAll(batch: readonly StoreRequest[], done: () => void, asking: boolean): void {
    const waiting = batch.filter((request) => !request.settled);
    const groups = this.group(waiting);
    let outstanding = groups.length;
    if (outstanding === 0) done();
    for (const requests of groups) {
      const groupDone = (): void => {
        if (--outstanding === 0) done();
      };
      this.send(requests, groupDone, asking);
    }
  }

  private group(requests: readonly StoreRequest[]): StoreRequest[][] {
    const { cluster } = this.options;
    if (requests.length === 0) return [];
    if (cluster === undefined) return split(requests);
    const bySlot = new Map<number, StoreRequest[]>();
    for (const request of requests) {
      const slot = cluster.slotOf(request.charges[0]?.key ?? '');
      const others = bySlot.get(slot);
      if (others === undefined) bySlot.set(slot, [request]);
      else others.push(request);
    }
    return [...bySlot.values()].flatMap(split);
  }

  private send(requests: readonly StoreRequest[], done: () => void, asking: boolean): void {
    const charges = requests.reduce((sum, request) => sum + request.charges.length, 0);
    const refusal =
      charges > MOST_CHARGES
        ? new StoreError('script', `one request has ${String(charges)} charges`)
        : this.offline;
    if (refusal !== undefined) {
      this.options.observer.storeFailed(refusal.kind);
      for (const request of requests) request.fail(refusal);
      done();
      return;
    }
    const jitterUs = Math.floor(this.random() * (this.options.expirationJitterMs ?? 0) * 1000);
    const call = encodeCall(requests, jitterUs);
    const flight = {
      requests,
      call,
      done,
      sentMs: performance.now(),
      asking,
      ended: false,
      place: -1,
    };
    this.flights.add(flight);
    this.call(flight, 'EVALSHA', this.sha, (error) => {
      if (isScriptMissing(error)) this.sendScript(flight);
      else this.failOrRedirect(flight, error);
    });
  }

  private call(
    flight: Flight,
    command: 'EVALSHA' | 'EVAL',
    script: string,
    failed: (error: unknown) => void,
  ): void {
    const { keys, argument } = flight.call;
    if (flight.asking) {
      this.client.call('ASKING').catch(() => {
        // What follows on the same connection fails too, and says why.
      });
    }
    const sent = this.client.sendCommand(new ScriptCommand(command, script, keys, argument));
    (sent as Promise<unknown>).then((reply) => {
      this.land(flight, reply);
    }, failed);
  }

  /** Safe to send again: Redis did not have the script, so nothing ran. */
  private sendScript(flight: Flight): void {
    if (flight.ended) return;
    this.options.observer.scriptReloaded();
    this.call(flight, 'EVAL', this.script, (error) => {
      this.failOrRedirect(flight, error);
    });
  }

  private land(flight: Flight, reply: unknown): void {
    if (flight.ended) return;
    const answer = ScriptReply.parse(reply, flight.call.charges);
    if (answer === undefined) {
      this.fail(flight, new StoreError('reply', 'the reply of the script has a wrong form'));
      return;
    }
    this.end(flight);
    this.attempts = 0;
    this.answered = true;
    const nowMs = performance.now();
    this.options.observer.roundtrip((nowMs - flight.sentMs) / 1000);
    this.measureSkew(answer.nowUs, flight.sentMs, nowMs);
    let index = 0;
    for (const request of flight.requests) {
      // Also where the deadline has settled it: what a part of a refused request took must be undone.
      request.nowUs = answer.nowUs;
      for (let i = 0; i < request.charges.length; i++) {
        request.outcomes[i] = answer.outcome(index++);
      }
      request.settle();
    }
    flight.done();
  }

  private failOrRedirect(flight: Flight, error: unknown): void {
    const { cluster, connection } = this.options;
    const redirect =
      cluster !== undefined && error instanceof Error
        ? parseRedirect(error.message, connection)
        : undefined;
    if (cluster === undefined || redirect === undefined) {
      this.fail(flight, toStoreError(error));
    } else if (!flight.ended) {
      this.end(flight);
      cluster.redirected({ redirect, requests: flight.requests, done: flight.done });
    }
  }

  private fail(flight: Flight, error: StoreError): void {
    if (flight.ended) return;
    this.end(flight);
    this.options.observer.storeFailed(error.kind);
    this.logFailure(error);
    for (const request of flight.requests) request.fail(error);
    flight.done();
    // A demoted master keeps its sockets: only a new connection finds the new one. And after a reply of a
    // wrong form, those that follow may answer other calls than we think.
    if (error.kind === 'readonly' || error.kind === 'reply') this.reconnect();
  }

  private end(flight: Flight): void {
    flight.ended = true;
    this.flights.delete(flight);
  }

  /** ioredis may leave promises pending for ever when a connection breaks: nobody waits for those. */
  private failFlights(error: StoreError): void {
    for (const flight of this.flights.all()) this.fail(flight, error);
  }

  private up(): void {
    if (this.client.stream.destroyed) return;
    this.offline = undefined;
    this.options.onConnected?.();
    if (this.reportedUp === true || !this.answered) return;
    this.reportedUp = true;
    this.answered = false;
    this.loggedMs.clear();
    this.options.logger.info({ redis: this.address }, 'connected to Redis');
  }

  private down(error: StoreError): void {
    if (this.stopped) return;
    const wasUp = this.connected;
    this.offline = error;
    if (wasUp || error.kind !== 'connection') this.options.observer.storeFailed(error.kind);
    if (this.answered) {
      if (this.reportedUp !== false) this.loggedMs.delete(error.kind);
      this.reportedUp = false;
    }
    this.logFailure(error);
    this.failFlights(error);
  }

  /** At most once a minute for each kind. */
  private logFailure(error: StoreError): void {
    const nowMs = performance.now();
    if (nowMs - (this.loggedMs.get(error.kind) ?? -Infinity) < LOG_INTERVAL_MS) return;
    this.loggedMs.set(error.kind, nowMs);
    const fields = { redis: this.address, kind: error.kind, reason: error.message };
    const message = this.connected ? 'a call to Redis failed' : 'no connection to Redis';
    this.options.logger.warn(fields, message);
  }

  private get address(): string {
    const { host, port, path, sentinels } = this.options.connection;
    if (sentinels !== undefined) return `${sentinels.masterName} of the sentinels`;
    return path ?? `${host}:${String(port)}`;
  }

  private measureSkew(redisUs: number, sentMs: number, nowMs: number): void {
    if (nowMs - this.skewMs < SKEW_INTERVAL_MS) return;
    this.skewMs = nowMs;
    // Redis looked at its clock about half-way between.
    const oursUs = this.options.nowUs() - ((nowMs - sentMs) / 2) * 1000;
    this.options.observer.clockSkew((redisUs - oursUs) / 1_000_000);
  }
}

/** Requests in order, in groups that one call can carry; a request stays whole. */
function split(requests: readonly StoreRequest[]): StoreRequest[][] {
  const groups: StoreRequest[][] = [];
  let group: StoreRequest[] = [];
  let charges = 0;
  for (const request of requests) {
    const more = request.charges.length;
    if (
      group.length > 0 &&
      (group.length >= MAX_CALL_REQUESTS || charges + more > MAX_CALL_CHARGES)
    ) {
      groups.push(group);
      group = [];
      charges = 0;
    }
    group.push(request);
    charges += more;
  }
  if (group.length > 0) groups.push(group);
  return groups;
}
