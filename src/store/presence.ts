/**
 * How many instances of the service are alive: each writes itself into Redis every few seconds, off the
 * decision path, and counts those it finds there. While Redis does not answer, the last count stands.
 */
import type { KeyCommands } from './backend.js';

const BEAT_MS = 2000;
/** Who has not been seen for so long is gone. */
const GONE_MS = 5000;
const NAME = '!instances';

// Redis's own clock, so that hosts whose clocks differ see the same.
const BEAT = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2] * 2)
return redis.call('ZCARD', KEYS[1])`;

export interface PresenceOptions {
  readonly commands: KeyCommands;
  /** Beginning of the key, CACHE_KEY_PREFIX. */
  readonly keyPrefix: string;
  /** Of this process; different for every instance. */
  readonly instanceId: string;
}

export class Presence {
  private seen = 1;
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;

  constructor(private readonly options: PresenceOptions) {}

  /** Instances that were last seen alive, this one included; at least 1. */
  get instances(): number {
    return this.seen;
  }

  start(): void {
    void this.beat();
  }

  /** Says good-bye, if Redis listens. */
  async stop(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.timer);
    const { commands, instanceId } = this.options;
    try {
      await commands.command('ZREM', this.key, instanceId);
    } catch {
      // It is forgotten all the same, after some seconds.
    }
  }

  private get key(): string {
    return this.options.keyPrefix + NAME;
  }

  private async beat(): Promise<void> {
    const { commands, instanceId } = this.options;
    try {
      const count = await commands.evaluate(BEAT, this.key, instanceId, String(GONE_MS));
      if (typeof count === 'number' && !this.stopped) this.seen = Math.max(1, count);
    } catch {
      // The last count stands; the store reports its failures itself.
    }
    if (this.stopped) return;
    this.timer = setTimeout(
      () => {
        void this.beat();
      },
      BEAT_MS * (0.9 + Math.random() / 5),
    );
    this.timer.unref();
  }
}
