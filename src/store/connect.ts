/**
 * Puts one Redis together, whatever its topology: connection, batches and guards. Starts nothing and
 * decides nothing; ioredis stays behind `redis.ts`.
 */
import type { Logger } from '../model.js';
import type { Backend } from './backend.js';
import { Batcher } from './batch.js';
import { addressText, keySlot } from './cluster-slots.js';
import type { NodeAddress } from './cluster-slots.js';
import { Guard } from './guard.js';
import type { GuardOptions } from './guard.js';
import { RedisCluster } from './redis-cluster.js';
import type { RedisConnection } from './redis-client.js';
import { RedisStore } from './redis.js';
import type { RedisStoreOptions } from './redis.js';
import type { StoreObserver, UndoWatcher } from './store.js';

/** Script calls in flight at once: enough to hide a round trip, few enough that batches form. */
const MAX_CALLS = 4;

/** Where a Redis is: one server (also found through sentinels), or the first contacts of a cluster. */
export type RedisPlace =
  | { readonly type: 'server'; readonly connection: RedisConnection }
  | {
      readonly type: 'cluster';
      readonly seeds: readonly NodeAddress[];
      /** For every node; its host and port are not looked at. */
      readonly connection: RedisConnection;
    };

export interface BackendOptions {
  readonly place: RedisPlace;
  /** Which Redis this is, in logs and states: `main`, `per_second`. */
  readonly name: string;
  /** Beginning of every key, CACHE_KEY_PREFIX. */
  readonly keyPrefix: string;
  readonly expirationJitterMs: number;
  readonly observer: StoreObserver;
  /** Told of hits that were taken back; see `UndoWatcher`. */
  readonly undone: UndoWatcher['undone'];
  readonly logger: Logger;
  /** Monotonic, in ms; `performance.now`. */
  readonly nowMs: () => number;
  /** Our own clock, µs since the epoch. */
  readonly nowUs: () => number;
}

/** Starts nothing. */
export function createBackend(options: BackendOptions): Backend {
  const { place } = options;
  return place.type === 'server'
    ? createServer(options, place.connection)
    : createCluster(options, place.seeds, place.connection);
}

function createServer(options: BackendOptions, connection: RedisConnection): Backend {
  const { name, observer } = options;
  const store = new RedisStore(storeOptions(options, connection));
  const guard = createGuard(options, store, name, {
    breakerOpen: (open) => {
      observer.breakerOpen(open);
    },
  });
  return {
    gate: guard,
    get connected() {
      return store.connected;
    },
    states: () => [{ name, ...guard.state }],
    reset: (keys) => store.reset(keys),
    command: (command, key, ...args) => store.command(command, key, ...args),
    evaluate: (script, key, ...args) => store.command('EVAL', script, '1', key, ...args),
    broadcast: (command, ...args) => Promise.allSettled([store.command(command, ...args)]),
    start: () => {
      store.start();
    },
    stop: async () => {
      guard.stop();
      await store.stop();
    },
  };
}

function createCluster(
  options: BackendOptions,
  seeds: readonly NodeAddress[],
  connection: RedisConnection,
): Backend {
  const { name, logger, nowMs } = options;
  return new RedisCluster({
    seeds,
    logger,
    nowMs,
    observer: guardObserver(options, (open) => {
      options.observer.breakerOpen(open);
    }),
    createNode: (address, hooks) => {
      const store = new RedisStore({
        ...storeOptions(options, { ...connection, host: address.host, port: address.port }),
        onConnected: hooks.up,
        cluster: { slotOf: keySlot, redirected: hooks.redirected },
      });
      const node = `${name} ${addressText(address)}`;
      return { store, guard: createGuard(options, store, node, hooks) };
    },
  });
}

function createGuard(
  options: BackendOptions,
  store: RedisStore,
  name: string,
  hooks: { breakerOpen: (open: boolean) => void; probeTag?: () => string },
): Guard {
  const { observer, logger, keyPrefix, nowMs } = options;
  return new Guard({
    gate: new Batcher({ store, observer, maxCalls: MAX_CALLS }),
    store,
    observer: guardObserver(options, hooks.breakerOpen),
    logger,
    keyPrefix,
    ...(hooks.probeTag !== undefined && { probeTag: hooks.probeTag }),
    name,
    nowMs,
  });
}

function guardObserver(
  { observer, undone }: BackendOptions,
  breakerOpen: (open: boolean) => void,
): GuardOptions['observer'] {
  return {
    breakerOpen,
    storeFailed: (kind) => {
      observer.storeFailed(kind);
    },
    undone,
    undoFailed: () => {
      observer.undoFailed();
    },
  };
}

function storeOptions(options: BackendOptions, connection: RedisConnection): RedisStoreOptions {
  const { expirationJitterMs, observer, logger, nowUs } = options;
  return { connection, expirationJitterMs, observer, logger, nowUs };
}
