/**
 * Counters in a Redis Cluster: each node is a store of its own behind a guard of its own, so that a dead
 * node costs the others nothing, and each request goes in parts to the nodes that serve its slots.
 * Owns the map of slots; follows what nodes say of it. Knows no ioredis and no script.
 */
import type { Logger } from '../model.js';
import type { Backend, NamedGuardState } from './backend.js';
import { addressText, keySlot, parseSlots, SLOTS, tagInSlot } from './cluster-slots.js';
import type { NodeAddress, Redirect, SlotRange } from './cluster-slots.js';
import type { Guard } from './guard.js';
import { SplitGate } from './split.js';
import { StoreError } from './store.js';
import type { Gate, Store, StoreObserver, StoreRequest, UndoWatcher } from './store.js';

/** The map is looked at again so often when all is well, */
const CALM_REFRESH_MS = 5000;
/** and so often while a node does not answer. */
const ANXIOUS_REFRESH_MS = 250;
/** After a redirection: others will follow, one look answers them all. */
const REDIRECTED_REFRESH_MS = 50;
/** A node that the map does not name any more may still answer what it was asked. */
const RETIRE_MS = 2000;
/** How long calls wait for the first connection to a node, and how often it is looked for. */
const FIRST_CONNECTION_MS = 1000;
/** Two keys of one request while their slot moves: Redis asks to wait. */
const TRY_AGAIN_MS = 3;

/** The store of one node. */
export interface NodeStore extends Store {
  readonly connected: boolean;
  /** As `decide`, for a slot that is just moving to this node. */
  decideAsking(batch: readonly StoreRequest[], done: () => void): void;
  command(name: string, ...args: readonly string[]): Promise<unknown>;
  reset(keys: readonly string[]): Promise<number>;
}

/** Requests that a node has not decided, and what it asks to do instead; `done` is to be called once. */
export interface Redirected {
  readonly redirect: Redirect;
  readonly requests: readonly StoreRequest[];
  readonly done: () => void;
}

/** What a node needs of its cluster. */
export interface NodeHooks {
  readonly redirected: (call: Redirected) => void;
  /** The first connection stands, or a later one. */
  readonly up: () => void;
  readonly breakerOpen: (open: boolean) => void;
  /** A text that, as a hash tag, makes a key one of this node's; '' when it has no slot. */
  readonly probeTag: () => string;
}

export interface ClusterNode {
  readonly store: NodeStore;
  readonly guard: Guard;
}

export interface RedisClusterOptions {
  /** Where to ask first. */
  readonly seeds: readonly NodeAddress[];
  /** Makes the store and the guard of a node; starts nothing. */
  readonly createNode: (address: NodeAddress, hooks: NodeHooks) => ClusterNode;
  readonly observer: Pick<StoreObserver, 'breakerOpen' | 'storeFailed'> & UndoWatcher;
  readonly logger: Logger;
  readonly nowMs: () => number;
}

interface Member extends ClusterNode {
  readonly address: NodeAddress;
  readonly name: string;
  /** How many slots it serves. */
  slots: number;
  breakerOpen: boolean;
  /** It has not been connected yet, */
  fresh: boolean;
  /** and this waits for it. */
  readonly waiting: (() => void)[];
  probeTag: string | undefined;
  retired: boolean;
}

export class RedisCluster implements Backend {
  readonly gate: Gate;
  private readonly members = new Map<string, Member>();
  private readonly bySlot = new Array<Member | undefined>(SLOTS);
  private readonly nowhere: Gate;
  private timer: NodeJS.Timeout | undefined;
  private timerDueMs = Infinity;
  private refreshing = false;
  private stopped = false;
  private known = false;
  private turn = 0;
  private problem = new StoreError('connection', 'no node of the cluster has been reached yet');

  constructor(private readonly options: RedisClusterOptions) {
    this.nowhere = {
      submit: (request) => {
        options.observer.storeFailed(this.problem.kind);
        request.fail(this.problem);
      },
    };
    this.gate = new SplitGate<number>({
      route: ({ key }) => keySlot(key),
      gateOf: (slot) => this.bySlot[slot]?.guard ?? this.nowhere,
      undone: options.observer.undone,
      undoFailed: options.observer.undoFailed,
      nowMs: options.nowMs,
    });
  }

  get connected(): boolean {
    return this.known && this.serving().every(({ store }) => store.connected);
  }

  states(): NamedGuardState[] {
    return this.serving().map(({ name, guard }) => ({ name, ...guard.state }));
  }

  start(): void {
    for (const address of this.options.seeds) this.member(address);
    this.refreshIn(0);
  }

  async stop(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.timer);
    await Promise.all([...this.members.values()].map((member) => this.retire(member)));
  }

  async reset(keys: readonly string[]): Promise<number> {
    const counts = await Promise.all(keys.map((key) => this.storeOf(key).reset([key])));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  async command(name: string, key: string, ...args: readonly string[]): Promise<unknown> {
    return await this.storeOf(key).command(name, key, ...args);
  }

  async evaluate(script: string, key: string, ...args: readonly string[]): Promise<unknown> {
    return await this.storeOf(key).command('EVAL', script, '1', key, ...args);
  }

  broadcast(name: string, ...args: readonly string[]): Promise<PromiseSettledResult<unknown>[]> {
    return Promise.allSettled(this.serving().map(({ store }) => store.command(name, ...args)));
  }

  private storeOf(key: string): NodeStore {
    const member = this.bySlot[keySlot(key)];
    if (member === undefined) throw this.problem;
    return member.store;
  }

  private serving(): Member[] {
    return [...this.members.values()].filter(({ slots }) => slots > 0);
  }

  /** The node there; a new one begins to connect. */
  private member(address: NodeAddress): Member {
    const name = addressText(address);
    const known = this.members.get(name);
    if (known !== undefined) {
      known.retired = false;
      return known;
    }
    const node = this.options.createNode(address, {
      redirected: (call) => {
        this.follow(member, call);
      },
      up: () => {
        member.fresh = false;
        for (const waiting of member.waiting.splice(0)) waiting();
      },
      breakerOpen: (open) => {
        member.breakerOpen = open;
        this.reportBreakers();
        if (open) this.refreshIn(0);
      },
      probeTag: () => (member.probeTag ??= tagInSlot((slot) => this.bySlot[slot] === member) ?? ''),
    });
    const member: Member = {
      ...node,
      address,
      name,
      slots: 0,
      breakerOpen: false,
      fresh: true,
      waiting: [],
      probeTag: undefined,
      retired: false,
    };
    this.members.set(name, member);
    member.store.start();
    return member;
  }

  private reportBreakers(): void {
    this.options.observer.breakerOpen(
      [...this.members.values()].some(({ breakerOpen }) => breakerOpen),
    );
  }

  /** The call has not run: it may go where it is sent, once for each redirection. */
  private follow(from: Member, { redirect, requests, done }: Redirected): void {
    if (redirect.kind === 'try_again') {
      this.tryAgain(from, requests, done);
      return;
    }
    const to = this.member(redirect.to);
    if (redirect.kind === 'moved' && this.bySlot[redirect.slot] !== to) {
      this.assign(redirect.slot, to);
      this.refreshIn(REDIRECTED_REFRESH_MS);
    }
    whenConnected(to, () => {
      if (redirect.kind === 'moved') to.store.decide(requests, done);
      else to.store.decideAsking(requests, done);
    });
  }

  /** Some keys of the call have moved and some have not: each request for itself, then after a pause. */
  private tryAgain(from: Member, requests: readonly StoreRequest[], done: () => void): void {
    const [only] = requests;
    if (only !== undefined && requests.length === 1) {
      const slot = keySlot(only.charges[0]?.key ?? '');
      setTimeout(() => {
        (this.bySlot[slot] ?? from).store.decide(requests, done);
      }, TRY_AGAIN_MS);
      return;
    }
    let outstanding = requests.length;
    for (const request of requests) {
      from.store.decide([request], () => {
        if (--outstanding === 0) done();
      });
    }
  }

  private assign(slot: number, to: Member): void {
    const from = this.bySlot[slot];
    if (from === to) return;
    if (from !== undefined) {
      from.slots--;
      from.probeTag = undefined;
    }
    to.slots++;
    this.bySlot[slot] = to;
  }

  private refreshIn(delayMs: number): void {
    const dueMs = this.options.nowMs() + delayMs;
    if (this.stopped || this.refreshing || this.timerDueMs <= dueMs) return;
    clearTimeout(this.timer);
    this.timerDueMs = dueMs;
    this.timer = setTimeout(() => {
      void this.refresh();
    }, delayMs);
    this.timer.unref();
  }

  /** Asks one node after the other for the map, until one tells it. Never rejects. */
  private async refresh(): Promise<void> {
    this.timerDueMs = Infinity;
    this.refreshing = true;
    const ranges = await this.ask();
    if (this.stopped) return;
    if (ranges !== undefined) await this.apply(ranges);
    this.refreshing = false;
    const calm =
      ranges !== undefined &&
      this.serving().every(({ store, breakerOpen }) => store.connected && !breakerOpen);
    this.refreshIn(calm ? CALM_REFRESH_MS * (0.9 + Math.random() / 5) : ANXIOUS_REFRESH_MS);
  }

  /** First nodes that are connected, each time another; never all at once. */
  private async ask(): Promise<SlotRange[] | undefined> {
    const connected = [...this.members.values()].filter(({ store }) => store.connected);
    const well = connected.filter(({ breakerOpen }) => !breakerOpen);
    const members = well.length > 0 ? well : connected;
    if (members.length === 0) {
      // Whatever served has gone: the contacts that were named at start may know more.
      for (const address of this.options.seeds) this.member(address);
    }
    const first = this.turn++;
    for (let i = 0; i < members.length; i++) {
      const member = members[(first + i) % members.length];
      if (member === undefined) break;
      try {
        const ranges = parseSlots(await member.store.command('CLUSTER', 'SLOTS'), member.address);
        if (ranges !== undefined && ranges.length > 0) return ranges;
        this.problem = new StoreError('cluster', 'the cluster serves no slots');
      } catch (error) {
        // The next one may answer; a node that cannot is what its own breaker is for.
        if (error instanceof StoreError) this.problem = error;
      }
    }
    return undefined;
  }

  /** New nodes get a moment to connect, as what is sent to them before that fails. */
  private async apply(ranges: readonly SlotRange[]): Promise<void> {
    const named = new Map(ranges.map((range) => [range, this.member(range)]));
    await Promise.all([...new Set(named.values())].map(connectedSoon));
    if (this.stopped) return;
    for (const [{ first, last }, member] of named) {
      for (let slot = first; slot <= last; slot++) this.assign(slot, member);
    }
    if (!this.known) {
      this.known = true;
      const nodes = this.serving().map(({ name }) => name);
      this.options.logger.info({ nodes }, 'the slots of the cluster are known');
    }
    const kept = new Set(named.values());
    for (const member of this.members.values()) {
      if (kept.has(member) || member.slots > 0 || member.retired) continue;
      member.retired = true;
      setTimeout(() => {
        if (member.retired && member.slots === 0) void this.retire(member);
      }, RETIRE_MS).unref();
    }
  }

  private async retire(member: Member): Promise<void> {
    if (this.members.get(member.name) === member) this.members.delete(member.name);
    member.guard.stop();
    await member.store.stop();
    this.reportBreakers();
  }
}

/** At once unless the node is new; and not for ever then. */
function whenConnected(member: Member, act: () => void): void {
  if (!member.fresh) {
    act();
    return;
  }
  const once = (): void => {
    clearTimeout(timer);
    member.fresh = false;
    const place = member.waiting.indexOf(once);
    if (place >= 0) member.waiting.splice(place, 1);
    act();
  };
  const timer = setTimeout(once, FIRST_CONNECTION_MS);
  timer.unref();
  member.waiting.push(once);
}

function connectedSoon(member: Member): Promise<void> {
  return new Promise((resolve) => {
    whenConnected(member, resolve);
  });
}
