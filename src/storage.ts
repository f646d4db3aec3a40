/**
 * Puts the store and its decorators together as the settings say: deny cache → guard → batches →
 * Redis, or the memory of this process alone. Decides nothing itself.
 */
import type { Logger } from './model.js';
import type { Settings } from './settings.js';
import type { RedisSettings } from './settings-redis.js';
import { Batcher } from './store/batch.js';
import { DenyCache } from './store/deny-cache.js';
import { Guard } from './store/guard.js';
import type { GuardState } from './store/guard.js';
import { MemoryStore } from './store/memory.js';
import { RedisStore } from './store/redis.js';
import type { RedisConnection } from './store/redis-client.js';
import type { Gate, Store, StoreObserver } from './store/store.js';

/** Script calls in flight at once: enough to hide a round trip, few enough that batches form. */
const MAX_CALLS = 4;

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
  states(): readonly ({ readonly name: string } & GuardState)[];
  /** What has been remembered of refusals is forgotten: after a reload. */
  forgetDenials(): void;
  /** Deletes counters wherever they are remembered; resolves to how many there were. */
  reset(keys: readonly string[]): Promise<number>;
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
  const fallback = new MemoryStore({ nowUs, observer });
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
    connected: () => true,
    states: () => [],
    forgetDenials: nothing,
    reset: (keys) => store.reset(keys),
    start: nothing,
    stop: () => store.stop(),
  };
}

function redisStorage(
  { settings, observer, logger, nowMs, nowUs }: StorageDependencies,
  redis: RedisSettings,
  fallback: MemoryStore,
): Storage {
  const { keyPrefix, expirationJitterMs, denyCacheEntries } = settings.limits;
  const store = new RedisStore({
    connection: standalone(redis),
    expirationJitterMs,
    observer,
    logger,
    nowUs,
  });
  const batcher = new Batcher({ store, observer, maxCalls: MAX_CALLS });
  const guard = new Guard({
    gate: batcher,
    store,
    observer,
    logger,
    keyPrefix,
    name: 'main',
    nowMs,
  });
  const denyCache =
    denyCacheEntries > 0
      ? new DenyCache({ gate: guard, observer, maxEntries: denyCacheEntries, nowMs })
      : undefined;
  return {
    kind: 'redis',
    description: describeRedis(redis),
    gate: denyCache ?? guard,
    fallback,
    connected: () => store.connected,
    states: () => [{ name: 'main', ...guard.state }],
    forgetDenials: () => denyCache?.clear(),
    reset: async (keys) => {
      denyCache?.clear();
      const [deleted] = await Promise.all([store.reset(keys), fallback.reset(keys)]);
      return deleted;
    },
    start: () => {
      store.start();
    },
    stop: async () => {
      guard.stop();
      await store.stop();
    },
  };
}

function standalone(redis: RedisSettings): RedisConnection {
  const { path, nodes, username, password, db, connectTimeoutMs } = redis;
  const [node = { host: '127.0.0.1', port: 6379 }] = nodes;
  return {
    ...node,
    ...(path !== undefined && { path }),
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    db,
    connectTimeoutMs,
  };
}

/** Where a Redis is, without credentials. */
export function describeRedis(redis: RedisSettings): string {
  const nodes =
    redis.path ?? redis.nodes.map(({ host, port }) => `${host}:${String(port)}`).join(',');
  const kind = redis.type === 'single' ? 'Redis' : `Redis ${redis.type}`;
  const master = redis.masterName === undefined ? '' : ` ${redis.masterName}`;
  return `${kind}${master} at ${nodes}${redis.tls === undefined ? '' : ' with TLS'}`;
}

function nothing(): void {
  // nothing to do
}
