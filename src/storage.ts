/**
 * Puts the store and its decorators together as the settings say: deny cache → one Redis, or a second
 * one for limits per second, or the memory of this process alone. Decides nothing itself.
 */
import { randomUUID } from 'node:crypto';
import type { Logger } from './model.js';
import type { Settings } from './settings/settings.js';
import { describeRedis, type RedisSettings } from './settings/redis.js';
import { toRedisPlace } from './store/redis-place.js';
import type { Backend, KeyCommands, NamedGuardState } from './store/backend.js';
import { createBackend } from './store/connect.js';
import { DenyCache } from './store/deny-cache.js';
import { MemoryStore } from './store/memory.js';
import { Presence } from './store/presence.js';
import { RedisWatch } from './store/redis-watch.js';
import { SplitGate } from './store/split.js';
import type { Gate, Store, StoreObserver, UndoWatcher } from './store/store.js';

const SECOND_US = 1_000_000;

/** Everything behind the limiter, with its life. */
export interface Storage {
  readonly kind: 'memory' | 'redis';
  /** Where counters are, for people; without credentials. */
  readonly description: string;
  readonly gate: Gate;
  /** Counts for `on_store_error: local`. */
  readonly fallback: Store;
  /** A connection to every Redis is open; true for memory. */
  connected(): boolean;
  states(): readonly NamedGuardState[];
  /** What has been remembered of refusals is forgotten: after a reload. */
  forgetDenials(): void;
  /** Deletes counters wherever they are remembered; resolves to how many there were. */
  reset(keys: readonly string[]): Promise<number>;
  /** Another process has deleted these counters: what this one remembers of them goes too. */
  forget(keys: readonly string[]): void;
  /** Where instances share what is no decision; undefined in memory. */
  readonly commands: KeyCommands | undefined;
  /** Live instances that share these counters, as last seen or as set; 1 or more. */
  instances(): number;
  start(): void;
  stop(): Promise<void>;
}

export interface StorageDependencies {
  readonly settings: Settings;
  readonly observer: StoreObserver;
  readonly logger: Logger;
  readonly nowMs: () => number;
  readonly nowUs: () => number;
}

/** Starts nothing. */
export function createStorage(dependencies: StorageDependencies): Storage {
  const { settings, observer, nowUs } = dependencies;
  const fallback = new MemoryStore({
    nowUs,
    observer,
    maxCounters: settings.memoryMaxCounters,
  });
  if (settings.redis === undefined) return memoryStorage(fallback);
  return redisStorage(dependencies, settings.redis, fallback);
}

function memoryStorage(store: MemoryStore): Storage {
  return {
    kind: 'memory',
    description: 'memory of this process alone',
    gate: {
      submit: (request) => {
        store.decide([request], nothing);
      },
    },
    fallback: store,
    commands: undefined,
    connected: () => true,
    states: () => [],
    forgetDenials: nothing,
    reset: (keys) => store.reset(keys),
    forget: (keys) => void store.reset(keys),
    instances: () => 1,
    start: nothing,
    stop: () => store.stop(),
  };
}

function redisStorage(
  dependencies: StorageDependencies,
  redis: RedisSettings,
  fallback: MemoryStore,
): Storage {
  const { settings, observer, nowMs } = dependencies;
  const { denyCacheEntries } = settings.limits;
  const openBreakers = new Set<string>();
  let denyCache: DenyCache | undefined = undefined;
  const undone: UndoWatcher['undone'] = (charges) => denyCache?.undone(charges);
  const create = (name: string, place: RedisSettings): Backend =>
    createBackend({
      place: toRedisPlace(place),
      name,
      keyPrefix: settings.limits.keyPrefix,
      expirationJitterMs: settings.limits.expirationJitterMs,
      observer: withBreakers(observer, name, openBreakers),
      undone,
      logger: dependencies.logger,
      nowMs,
      nowUs: dependencies.nowUs,
    });
  const main = create('main', redis);
  const perSecond = settings.redisPerSecond && create('per_second', settings.redisPerSecond);
  const backends = perSecond === undefined ? [main] : [main, perSecond];
  const gate =
    perSecond === undefined
      ? main.gate
      : new SplitGate<Backend>({
          route: ({ limit }) => (limit.windowUs === SECOND_US ? perSecond : main),
          gateOf: (backend) => backend.gate,
          undone,
          undoFailed: () => {
            observer.undoFailed();
          },
          nowMs,
        });
  const { keyPrefix, instances, instanceId } = settings.limits;
  const presence =
    instances > 0
      ? undefined
      : new Presence({
          commands: main,
          keyPrefix,
          // Workers of one instance are counted one by one: each has a share of its own.
          instanceId: `${instanceId ?? ''}${randomUUID()}`,
        });
  const evictions = new Map<string, { unsafe: boolean; evicted: number }>();
  const watches = backends.map((backend, i) => {
    const name = i === 0 ? 'main' : 'per_second';
    const evictionSeen = (unsafe: boolean, evicted: number): void => {
      evictions.set(name, { unsafe, evicted });
      const all = [...evictions.values()];
      observer.evictionSeen(
        all.some((one) => one.unsafe),
        all.reduce((sum, one) => sum + one.evicted, 0),
      );
    };
    const { logger } = dependencies;
    return new RedisWatch({ backend, name, keyPrefix, observer: { evictionSeen }, logger });
  });
  denyCache =
    denyCacheEntries > 0
      ? new DenyCache({ gate, observer, maxEntries: denyCacheEntries, nowMs })
      : undefined;
  const forget = (keys: readonly string[]): void => {
    denyCache?.clear();
    void fallback.reset(keys);
  };
  return {
    kind: 'redis',
    description: [redis, settings.redisPerSecond]
      .flatMap((place) => (place === undefined ? [] : [`Redis ${describeRedis(place)}`]))
      .join('; limits per second in '),
    gate: denyCache ?? gate,
    fallback,
    commands: main,
    connected: () => backends.every(({ connected }) => connected),
    states: () => backends.flatMap((backend) => backend.states()),
    forgetDenials: () => denyCache?.clear(),
    reset: async (keys) => {
      try {
        const counts = await Promise.all(backends.map((backend) => backend.reset(keys)));
        return counts.reduce((sum, count) => sum + count, 0);
      } finally {
        // Not before: a refusal that is on its way would be remembered, and outlive its counter.
        forget(keys);
      }
    },
    forget,
    // Each worker of an instance has a share of its own.
    instances: () => presence?.instances ?? instances * settings.workers,
    start: () => {
      for (const backend of backends) backend.start();
      for (const watch of watches) watch.start();
      presence?.start();
    },
    stop: async () => {
      for (const watch of watches) watch.stop();
      await presence?.stop();
      await Promise.all(backends.map((backend) => backend.stop()));
    },
  };
}

/** Several breakers, one gauge: it says whether any is open. */
function withBreakers(observer: StoreObserver, name: string, open: Set<string>): StoreObserver {
  return {
    breakerOpen: (isOpen) => {
      if (isOpen) open.add(name);
      else open.delete(name);
      observer.breakerOpen(open.size > 0);
    },
    storeFailed: (kind) => observer.storeFailed(kind),
    roundtrip: (seconds) => observer.roundtrip(seconds),
    batchSent: (requests) => observer.batchSent(requests),
    clockSkew: (seconds) => observer.clockSkew(seconds),
    scriptReloaded: () => observer.scriptReloaded(),
    denyCacheHit: () => observer.denyCacheHit(),
    memoryOverflow: () => observer.memoryOverflow(),
    undoFailed: () => observer.undoFailed(),
    evictionSeen: (unsafe, evicted) => observer.evictionSeen(unsafe, evicted),
  };
}

function nothing(): void {
  // nothing to do
}
