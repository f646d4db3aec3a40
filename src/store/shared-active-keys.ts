/**
 * The estimate of keys in use that all instances share: one HyperLogLog a rule and slot in Redis. Off
 * the decision path: it waits for one command before it sends the next, and gives way when one fails.
 */
import type { KeyCommands } from './backend.js';

/**
 * Lives for three slots: the one that is filled, the one before, and one to spare. In one call, and the first
 * EXPIRE before anything is made, so that no key stays for ever where the second may not or does not run.
 */
const ADD = `
redis.call('EXPIRE', KEYS[1], 180)
redis.call('PFADD', KEYS[1], unpack(ARGV))
redis.call('EXPIRE', KEYS[1], 180)`;
/** Keys in one PFADD; Redis is busy with it for about 0.1 ms. */
const CHUNK = 500;
/** More than that waits only when Redis is slow; it is dropped then. */
const MAX_WAITING_CHUNKS = 1000;

interface Chunk {
  readonly counter: string;
  readonly keys: readonly string[];
}

/** Adds and counts by rule and slot. A slot is a whole number that grows by one a minute. */
export class SharedActiveKeys {
  private waiting: Chunk[] = [];
  private sending = false;

  /** `keyPrefix` is CACHE_KEY_PREFIX. */
  constructor(
    private readonly redis: KeyCommands,
    private readonly keyPrefix: string,
  ) {}

  /** Adds keys without waiting; what cannot be sent is dropped, and the estimate is a little low. */
  add(ruleId: string, slot: number, keys: readonly string[]): void {
    const counter = this.counter(ruleId, slot);
    for (let at = 0; at < keys.length; at += CHUNK) {
      if (this.waiting.length >= MAX_WAITING_CHUNKS) return;
      this.waiting.push({ counter, keys: keys.slice(at, at + CHUNK) });
    }
    if (!this.sending) void this.send();
  }

  /**
   * How many distinct keys both slots hold, in the order of `ids`; one command after the other, as
   * each keeps Redis busy. Rejects with StoreError.
   */
  async count(
    ids: readonly { readonly ruleId: string; readonly slots: readonly [number, number] }[],
  ): Promise<readonly number[]> {
    const counts: number[] = [];
    for (const { ruleId, slots } of ids) {
      const [before, current] = slots;
      const reply = await this.redis.command(
        'PFCOUNT',
        this.counter(ruleId, before),
        this.counter(ruleId, current),
      );
      counts.push(Number(reply));
    }
    return counts;
  }

  private async send(): Promise<void> {
    this.sending = true;
    try {
      for (let chunk = this.waiting.shift(); chunk !== undefined; chunk = this.waiting.shift()) {
        await this.redis.evaluate(ADD, chunk.counter, ...chunk.keys);
      }
    } catch {
      // The store counts its failures itself; a Redis in trouble need not have this to do as well.
      this.waiting = [];
    } finally {
      this.sending = false;
    }
  }

  /** The braces put both slots of a rule on one node of a cluster, as PFCOUNT needs. */
  private counter(ruleId: string, slot: number): string {
    return `${this.keyPrefix}active|{${ruleId}}|${String(slot)}`;
  }
}
