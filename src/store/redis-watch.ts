/**
 * Looks, off the decision path, at how a Redis is set up: whether it lets us run what we need, and whether
 * it may evict counters. Only tells; changes nothing.
 */
import type { Logger } from '../model.js';
import type { Backend } from './backend.js';
import { buildScript } from './script.js';
import { StoreError } from './store.js';
import type { StoreObserver } from './store.js';

const INTERVAL_MS = 60_000;
/** Until Redis is there for the first time. */
const WAIT_MS = 500;

/** A harmless call of each command that the script uses, on a key of our own; in an order that works. */
const TRIALS: readonly (readonly [name: string, ...args: string[]])[] = [
  ['SET', '0', 'PX', '5000'],
  ['PEXPIRE', '5000'],
  ['SETRANGE', '0', '1'],
  ['MGET'],
  ['UNLINK'],
  ['RPUSH', '0'],
  ['PEXPIRE', '5000'],
  ['LINDEX', '0'],
  ['LLEN'],
  ['LSET', '0', '1'],
  ['LREM', '0', '2'],
  ['LTRIM', '0', '0'],
  ['UNLINK'],
];

/** Every command that decisions need: what an ACL has to permit. */
export function neededCommands(): string[] {
  const used = [...buildScript().matchAll(/call\('([A-Z]+)'/g)].map(([, name = '']) => name);
  return [...new Set(['EVAL', 'EVALSHA', ...used])].sort();
}

export interface RedisWatchOptions {
  readonly backend: Backend;
  /** Which Redis this is, in the log. */
  readonly name: string;
  readonly keyPrefix: string;
  readonly observer: Pick<StoreObserver, 'evictionSeen'>;
  readonly logger: Logger;
}

export class RedisWatch {
  private timer: NodeJS.Timeout | undefined;
  private tried = false;
  private unsafe = false;
  private stopped = false;

  constructor(private readonly options: RedisWatchOptions) {}

  start(): void {
    this.lookIn(0);
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  private lookIn(delayMs: number): void {
    if (this.stopped) return;
    this.timer = setTimeout(() => {
      void this.look();
    }, delayMs);
    this.timer.unref();
  }

  /** Never rejects. */
  private async look(): Promise<void> {
    if (!this.options.backend.connected) {
      this.lookIn(this.tried ? INTERVAL_MS : WAIT_MS);
      return;
    }
    if (!this.tried) {
      this.tried = true;
      await this.tryCommands();
    }
    await this.lookAtEviction();
    this.lookIn(INTERVAL_MS);
  }

  private async tryCommands(): Promise<void> {
    const missing = await findMissingCommands(this.options.backend, this.options.keyPrefix);
    if (missing.length === 0) return;
    const fields = { store: this.options.name, missing };
    this.options.logger.error(
      fields,
      `Redis does not permit what decisions need: grant ${missing.map(grant).join(' ')} on ` +
        `~${this.options.keyPrefix}* to the user of this service`,
    );
  }

  private async lookAtEviction(): Promise<void> {
    const { backend, observer, logger, name } = this.options;
    let policy: string | undefined;
    let evicted = 0;
    for (const answer of await backend.broadcast('INFO')) {
      // Without permission for INFO this is not known, and nothing else depends on it.
      if (answer.status === 'rejected' || typeof answer.value !== 'string') continue;
      const facts = answer.value;
      const fact = (key: string): string =>
        new RegExp(`^${key}:(.*?)\r?$`, 'm').exec(facts)?.[1] ?? '';
      evicted += Number(fact('evicted_keys'));
      if (fact('maxmemory') !== '0' && !['', 'noeviction'].includes(fact('maxmemory_policy'))) {
        policy = fact('maxmemory_policy');
      }
    }
    observer.evictionSeen(policy !== undefined, evicted);
    if (policy !== undefined && !this.unsafe) {
      logger.warn(
        { store: name, policy, evicted },
        'Redis may evict counters, and so forget limits: set maxmemory-policy noeviction',
      );
    }
    this.unsafe = policy !== undefined;
  }
}

/** Commands that decisions need and Redis refuses, or `~*` for the keys themselves. */
export async function findMissingCommands(backend: Backend, keyPrefix: string): Promise<string[]> {
  const key = `${keyPrefix}f1!trial`;
  const missing = new Set<string>();
  const attempt = async (name: string, tried: Promise<unknown>): Promise<void> => {
    try {
      await tried;
    } catch (error) {
      if (!(error instanceof StoreError) || error.kind !== 'permission') return;
      missing.add(/\bkeys\b/.test(error.message) ? '~*' : name);
    }
  };
  await attempt('EVAL', backend.evaluate('return 1', key));
  // No such script: who may run scripts by name hears that, and who may not hears that.
  await attempt('EVALSHA', everywhere(backend, 'EVALSHA', '0'.repeat(40), '0'));
  await attempt('TIME', everywhere(backend, 'TIME'));
  for (const [name, ...args] of TRIALS) {
    // A list whose life cannot be ended must not be made.
    if (name === 'RPUSH' && (missing.has('UNLINK') || missing.has('PEXPIRE'))) break;
    await attempt(name, backend.command(name, key, ...args));
  }
  return [...missing];
}

/** Rejects with what the first server that refuses says. */
async function everywhere(backend: Backend, name: string, ...args: string[]): Promise<void> {
  for (const answer of await backend.broadcast(name, ...args)) {
    if (answer.status === 'rejected') throw answer.reason;
  }
}

function grant(command: string): string {
  return command === '~*' ? 'access to keys' : `+${command.toLowerCase()}`;
}
