import { expect } from 'chai';
import type { Limit } from '../../src/model.js';
import { MemoryStore } from '../../src/store/memory.js';
import type { Store } from '../../src/store/store.js';
import { chargeOf, decideOne, limitOf } from '../support/limits.js';
import { RedisServer } from '../support/redis-server.js';
import { ScriptStore } from '../support/script-store.js';

/** A minute begins. */
const START_US = 1_700_000_040_000_000;

describe('an undo', () => {
  let server: RedisServer;
  let script: ScriptStore;
  let memory: MemoryStore;
  let nowUs = START_US;

  before(async () => {
    server = await RedisServer.start();
    script = new ScriptStore(server.port, () => nowUs);
    memory = new MemoryStore({
      nowUs: () => nowUs,
      observer: { memoryOverflow: () => undefined },
    });
    await script.load();
  });

  after(async () => {
    await script.stop();
    await server.stop();
  });

  /** Takes at a second; resolves to the mark. */
  async function take(store: Store, limit: Limit, second: number, hits: number): Promise<number> {
    nowUs = START_US + second * 1_000_000;
    const [outcome] = await decideOne(store, [chargeOf(limit, limit.keyHead, hits)]);
    expect(outcome?.taken).to.equal(true);
    return outcome?.mark ?? NaN;
  }

  /** Undoes at a second; resolves to what is used and when it resets, in s. */
  async function undo(
    store: Store,
    limit: Limit,
    second: number,
    hits: number,
    mark: number,
  ): Promise<[used: number, resetS: number]> {
    nowUs = START_US + second * 1_000_000;
    const charge = chargeOf(limit, limit.keyHead, hits, { mode: 'give_back', mark });
    const [outcome] = await decideOne(store, [charge]);
    return [limit.requests - (outcome?.remaining ?? NaN), (outcome?.resetUs ?? NaN) / 1_000_000];
  }

  for (const kind of ['memory', 'Redis'] as const) {
    const storeOf = (): Store => (kind === 'memory' ? memory : script);

    it(`leaves the next fixed window alone, in ${kind}`, async () => {
      const limit = limitOf('fixed_window', 10);
      const mark = await take(storeOf(), limit, 59, 3);
      await take(storeOf(), limit, 60, 5);
      expect(await undo(storeOf(), limit, 61, 3, mark)).to.deep.equal([5, 59]);
    });

    it(`takes out the entry that it names, not the oldest, in ${kind}`, async () => {
      const limit = limitOf('sliding_window', 10);
      await take(storeOf(), limit, 0, 2);
      const mark = await take(storeOf(), limit, 10, 3);
      await take(storeOf(), limit, 20, 4);
      expect(await undo(storeOf(), limit, 21, 3, mark)).to.deep.equal([6, 59]);
      // The same again finds nothing; the entries around still leave at their own time.
      expect(await undo(storeOf(), limit, 22, 3, mark)).to.deep.equal([6, 58]);
      expect(await undo(storeOf(), limit, 60, 0, mark)).to.deep.equal([4, 20]);
    });

    it(`takes the newest entry out, which then resets earlier, in ${kind}`, async () => {
      const limit = limitOf('sliding_window', 10, { unit: 'hour' });
      await take(storeOf(), limit, 0, 2);
      const mark = await take(storeOf(), limit, 10, 3);
      expect(await undo(storeOf(), limit, 10, 3, mark)).to.deep.equal([2, 3590]);
    });

    it(`takes hits out of the run that holds them, in ${kind}`, async () => {
      const limit = limitOf('sliding_window_counter', 20);
      await take(storeOf(), limit, 0, 2);
      const mark = await take(storeOf(), limit, 0.5, 3);
      await take(storeOf(), limit, 10, 4);
      expect(await undo(storeOf(), limit, 11, 3, mark)).to.deep.equal([6, 59]);
      // At 60.5 s the first run leaves: two hits are left of it.
      expect(await undo(storeOf(), limit, 60.5, 0, mark)).to.deep.equal([4, 9.5]);
    });

    it(`lets no later hit join a run whose beginning it has lost, in ${kind}`, async () => {
      const limit = limitOf('sliding_window_counter', 20, {
        unit: 'hour',
        precisionUs: 60_000_000,
      });
      await take(storeOf(), limit, 0, 2);
      await take(storeOf(), limit, 50, 1);
      const mark = await take(storeOf(), limit, 70, 5);
      expect(await undo(storeOf(), limit, 70, 5, mark)).to.deep.equal([3, 3580]);
      await take(storeOf(), limit, 80, 1);
      // Three hits leave at 3650 s, one at 3680 s.
      expect(await undo(storeOf(), limit, 3650, 0, mark)).to.deep.equal([1, 30]);
    });

    it(`takes tokens back, in ${kind}`, async () => {
      const limit = limitOf('token_bucket', 10);
      const mark = await take(storeOf(), limit, 0, 6);
      expect(await undo(storeOf(), limit, 0, 4, mark)).to.deep.equal([2, 12]);
    });
  }
});
