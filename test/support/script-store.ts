/** The script in a real Redis, on a clock that the test sets: what RedisStore does, with time as an argument. */
import { Redis } from 'ioredis';
import { ScriptReply, encodeCall } from '../../src/store/script-call.js';
import { buildScript, scriptSha } from '../../src/store/script.js';
import type { Store, StoreRequest } from '../../src/store/store.js';
import { StoreError } from '../../src/store/store.js';

export class ScriptStore implements Store {
  readonly kind = 'script';
  readonly client: Redis;

  constructor(
    port: number,
    private readonly nowUs: () => number,
    private readonly jitterUs = 0,
  ) {
    this.client = new Redis({ host: '127.0.0.1', port });
  }

  decide(batch: readonly StoreRequest[], done: () => void): void {
    const { keys, argument, charges } = encodeCall(batch, this.jitterUs);
    const time = String(this.nowUs());
    this.client.callBuffer('EVALSHA', scriptSha(), keys.length, ...keys, argument, time).then(
      (answer) => {
        const reply = ScriptReply.parse(answer, charges);
        let index = 0;
        for (const request of batch) {
          request.nowUs = reply?.nowUs ?? 0;
          request.charges.forEach((_, i) => (request.outcomes[i] = reply?.outcome(index++)));
          request.settle();
        }
        done();
      },
      (error: unknown) => {
        const failure = new StoreError('script', String(error));
        for (const request of batch) request.fail(failure);
        done();
      },
    );
  }

  /** Puts the script into Redis's cache; goes before the first batch. */
  async load(): Promise<void> {
    await this.client.script('LOAD', buildScript());
  }

  reconnect(): void {
    this.client.disconnect(true);
  }

  start(): void {
    // Connects by itself.
  }

  stop(): Promise<void> {
    this.client.disconnect();
    return Promise.resolve();
  }
}
