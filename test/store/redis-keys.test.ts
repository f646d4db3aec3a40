import { expect } from 'chai';
import { Redis } from 'ioredis';
import { ALGORITHM_NAMES } from '../../src/model.js';
import type { AlgorithmName, Limit } from '../../src/model.js';
import { chargeOf, decideAll, decideOne, limitOf } from '../support/limits.js';
import { RedisServer } from '../support/redis-server.js';
import { ScriptStore } from '../support/script-store.js';

/** A minute begins. */
const START_US = 1_700_000_040_000_000;
const UNITS = ['second', 'minute', 'hour', 'day', 'week', 'month', 'year'] as const;

describe('the keys that the script writes', () => {
  let server: RedisServer;
  let admin: Redis;
  let store: ScriptStore;
  let jittered: ScriptStore;
  let nowUs = START_US;

  before(async () => {
    server = await RedisServer.start();
    admin = new Redis({ host: '127.0.0.1', port: server.port });
    store = new ScriptStore(server.port, () => nowUs);
    jittered = new ScriptStore(server.port, () => nowUs, 300_000_000);
    await store.load();
  });

  beforeEach(async () => {
    nowUs = START_US;
    await admin.flushall();
  });

  after(async () => {
    admin.disconnect();
    await store.stop();
    await jittered.stop();
    await server.stop();
  });

  /** Time to full, debt included, for a bucket; a window for the others. And one window more. */
  function longestMs(limit: Limit, used: number): number {
    const first = limit.algorithm === 'token_bucket' ? used / limit.requests : 1;
    return ((first + 1) * limit.windowUs) / 1000;
  }

  for (const algorithm of ALGORITHM_NAMES) {
    for (const unit of UNITS) {
      it(`live at most two windows: ${algorithm} a ${unit}`, async () => {
        const limit = limitOf(algorithm, 5, { unit });
        for (const one of [store, jittered]) {
          for (const [i, start] of [0, 1, limit.windowUs * 0.3, limit.windowUs - 1].entries()) {
            nowUs = START_US + Math.floor(start);
            const key = `${String(i)}|${one === store ? 'plain' : 'jittered'}`;
            let used = 0;
            for (const [hits, mode] of [
              [1, 'take'],
              [4, 'take'],
              [3, 'take'],
              [9, 'record'],
              [1, 'peek'],
              [2, 'give_back'],
            ] as const) {
              await decideOne(one, [chargeOf(limit, key, hits, { mode })]);
              if (mode === 'record') used = 10;
              else if (mode === 'give_back') used -= hits;
              else if (mode === 'take' && used + hits <= 5) used += hits;
              const ttl = await admin.pttl(key);
              expect(ttl).to.be.above(0);
              expect(ttl).to.be.at.most(longestMs(limit, used) + 1);
              if (unit === 'second' && algorithm === 'fixed_window')
                expect(ttl).to.be.at.most(5000);
            }
          }
        }
      });
    }

    it(`live at least until the counter is as untouched: ${algorithm}`, async () => {
      const limit = limitOf(algorithm, 5);
      for (let i = 0; i < 100; i++) {
        const [outcome] = await decideOne(store, [chargeOf(limit, 'k', 1)]);
        const left = (await admin.pttl('k')) * 1000;
        const passed = nowUs - START_US;
        // Redis's own clock stands still beside the test's: what was set long ago is that much longer.
        expect(left + passed).to.be.at.least(outcome?.resetUs ?? Infinity);
        nowUs += 1_700_000;
      }
    });

    it(`are not kept alive by hits that are refused: ${algorithm}`, async () => {
      const limit = limitOf(algorithm, 2);
      await decideOne(store, [chargeOf(limit, 'k', 2)]);
      await admin.pexpire('k', 5000);
      nowUs += 1000;
      const before = await admin.dump('k');
      for (let i = 0; i < 5; i++) await decideOne(store, [chargeOf(limit, 'k', 1)]);
      await decideOne(store, [chargeOf(limit, 'k', 0, { mode: 'peek' })]);
      expect(await admin.dump('k')).to.equal(before);
      expect(await admin.pttl('k')).to.be.at.most(5000);
    });

    it(`get their expiry again after somebody took it away: ${algorithm}`, async () => {
      const limit = limitOf(algorithm, 2, { unit: 'second', unitMultiplier: 10 });
      const fits: (boolean | undefined)[] = [];
      for (let round = 0; round < 2; round++) {
        for (let i = 0; i < 3; i++) {
          const [outcome] = await decideOne(store, [chargeOf(limit, 'k', 1)]);
          fits.push(outcome?.fits);
        }
        expect(await admin.pttl('k'), `round ${String(round)}`).to.be.above(0);
        await admin.persist('k');
        nowUs += 11_000_000;
      }
      expect(fits).to.deep.equal([true, true, false, true, true, false]);
    });
  }

  const MOST_BYTES: Readonly<Record<AlgorithmName, number>> = {
    // Beyond the key, in Redis 7: the dictionary's entry, the object, the expiry, the value.
    fixed_window: 120,
    sliding_window: 220,
    sliding_window_counter: 152,
    token_bucket: 120,
  };

  for (const algorithm of ALGORITHM_NAMES) {
    it(`take little memory: ${algorithm}`, async () => {
      const key = `${algorithm}|shop|user=1234567890`;
      await decideOne(store, [chargeOf(limitOf(algorithm, 5), key, 1)]);
      const bytes = Number(await admin.call('MEMORY', 'USAGE', key));
      expect(bytes - key.length).to.be.at.most(MOST_BYTES[algorithm]);
    });
  }

  it('hold 12 bytes in a fixed window and 20 in a token bucket', async () => {
    for (const algorithm of ['fixed_window', 'token_bucket'] as const) {
      await decideOne(store, [chargeOf(limitOf(algorithm, 5), algorithm, 1)]);
    }
    expect(await admin.strlen('fixed_window')).to.equal(12);
    expect(await admin.strlen('token_bucket')).to.equal(20);
  });

  it('hold at most 61 runs in a sliding window counter', async () => {
    const limit = limitOf('sliding_window_counter', 1_000_000, { unit: 'hour' });
    let longest = 0;
    for (let i = 0; i < 800; i++) {
      nowUs += 7_919_000;
      await decideOne(store, [chargeOf(limit, 'k', 3)]);
      longest = Math.max(longest, await admin.strlen('k'));
    }
    expect(longest).to.be.within(18 + 12 * 50, 18 + 12 * 61);
  });

  it('hold one entry a request or batch in a sliding window, at most N of them', async () => {
    const limit = limitOf('sliding_window', 100, { unit: 'hour' });
    await decideOne(store, [chargeOf(limit, 'many', 50)]);
    expect(await admin.llen('many')).to.equal(1);
    for (let i = 0; i < 4; i++) {
      const batch = Array.from({ length: 100 }, () => [chargeOf(limit, 'many', 1)]);
      nowUs += 1000;
      await decideAll(store, batch);
    }
    expect(await admin.llen('many')).to.equal(2);
    expect(Number(await admin.call('MEMORY', 'USAGE', 'many'))).to.be.below(300);
  });

  it('are removed when all is given back', async () => {
    for (const algorithm of ['sliding_window', 'sliding_window_counter', 'token_bucket'] as const) {
      const limit = limitOf(algorithm, 5);
      await decideOne(store, [chargeOf(limit, algorithm, 3)]);
      await decideOne(store, [chargeOf(limit, algorithm, 3, { mode: 'give_back' })]);
    }
    expect(await admin.keys('*')).to.deep.equal([]);
  });

  it('let 10,000 entries of a sliding window go in a few ms', async () => {
    const limit = limitOf('sliding_window', 10_000, { unit: 'hour' });
    const sent: Promise<unknown>[] = [];
    for (let i = 0; i < 10_000; i++) {
      nowUs += 1000;
      sent.push(decideAll(store, [[chargeOf(limit, 'long', 1)]]));
    }
    await Promise.all(sent);
    expect(await admin.llen('long')).to.equal(10_000);
    await admin.config('SET', 'slowlog-log-slower-than', '5000');
    await admin.call('SLOWLOG', 'RESET');
    nowUs += limit.windowUs - 5_000_000;
    expect((await decideOne(store, [chargeOf(limit, 'long', 4_000)]))[0]).to.include({
      taken: true,
    });
    nowUs += limit.windowUs + 1;
    expect((await decideOne(store, [chargeOf(limit, 'long', 5_000)]))[0]).to.include({
      remaining: 5_000,
    });
    expect(await admin.call('SLOWLOG', 'LEN')).to.equal(0);
    expect(await admin.llen('long')).to.equal(1);
  });
});
