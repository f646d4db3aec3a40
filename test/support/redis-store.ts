/** A RedisStore for tests, with what it told its observer and its log. */
import type { FailureKind, Logger } from '../../src/model.js';
import { RedisStore } from '../../src/store/redis.js';
import type { RedisStoreOptions } from '../../src/store/redis.js';

export interface Watched {
  readonly store: RedisStore;
  readonly failures: FailureKind[];
  readonly lines: string[];
  readonly skews: number[];
  reloads: number;
  roundtrips: number;
}

const opened = new Set<RedisStore>();

/** Stops every store that a test has made, also after it failed: an open connection keeps mocha alive. */
export async function stopStores(): Promise<void> {
  for (const store of opened) await store.stop();
  opened.clear();
}

/** Not started. `port` on this host, or a whole connection. */
export function watchRedisStore(
  port: number,
  options: Partial<RedisStoreOptions['connection']> = {},
  more: Partial<RedisStoreOptions> = {},
): Watched {
  const failures: FailureKind[] = [];
  const lines: string[] = [];
  const skews: number[] = [];
  const line = (fields: object, message: string): void => {
    lines.push(`${message} ${JSON.stringify(fields)}`);
  };
  const logger: Logger = { debug: line, info: line, warn: line, error: line };
  const watched: Watched = {
    store: new RedisStore({
      connection: { host: '127.0.0.1', port, connectTimeoutMs: 2000, ...options },
      logger,
      nowUs: () => Date.now() * 1000,
      observer: {
        storeFailed: (kind) => failures.push(kind),
        roundtrip: () => watched.roundtrips++,
        clockSkew: (seconds) => skews.push(seconds),
        scriptReloaded: () => watched.reloads++,
      },
      ...more,
    }),
    failures,
    lines,
    skews,
    reloads: 0,
    roundtrips: 0,
  };
  opened.add(watched.store);
  return watched;
}

/** Waits until `condition` holds; throws after `patienceMs`. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  patienceMs = 5000,
): Promise<void> {
  const giveUpMs = performance.now() + patienceMs;
  while (!(await condition())) {
    if (performance.now() > giveUpMs) throw new Error('it did not happen in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
