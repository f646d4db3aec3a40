import { expect } from 'chai';
import { Redis } from 'ioredis';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ALGORITHM_NAMES } from '../../src/model.js';
import type { Limit } from '../../src/model.js';
import { chargeOf, decideAll, decideOne, limitOf } from '../support/limits.js';
import { RedisServer } from '../support/redis-server.js';
import { stopStores, until, watchRedisStore } from '../support/redis-store.js';
import type { RedisStore } from '../../src/store/redis.js';
import { ScriptStore } from '../support/script-store.js';

const run = promisify(execFile);
const PROGRAM = fileURLToPath(new URL('../support/charge-process.ts', import.meta.url));
const YEAR = { unit: 'year' } as const;
/** A minute begins. */
const START_US = 1_700_000_040_000_000;

describe('many callers at once', () => {
  let server: RedisServer;
  let admin: Redis;
  let store: RedisStore;

  before(async () => {
    server = await RedisServer.start();
    admin = new Redis({ host: '127.0.0.1', port: server.port });
  });

  beforeEach(async () => {
    await admin.flushall();
    ({ store } = watchRedisStore(server.port));
    store.start();
    await until(() => store.connected);
  });

  afterEach(stopStores);

  after(async () => {
    admin.disconnect();
    await server.stop();
  });

  /** Two processes of 200 callers each; resolves to how many were let in. */
  async function twoProcesses(
    limits: readonly Limit[],
    keys: readonly string[],
    hits: number,
  ): Promise<number> {
    const task = JSON.stringify({ limits, keys, hits });
    const args = ['--import', 'tsx', PROGRAM, String(server.port), '200', task];
    const [one, other] = await Promise.all([
      run(process.execPath, args),
      run(process.execPath, args),
    ]);
    return Number(one.stdout) + Number(other.stdout);
  }

  for (const algorithm of ALGORITHM_NAMES) {
    it(`lets exactly the limit in of 50 callers, again and again: ${algorithm}`, async () => {
      for (const requests of [1, 2, 5]) {
        for (let round = 0; round < 20; round++) {
          const charge = chargeOf(
            limitOf(algorithm, requests, YEAR),
            `${String(requests)}.${String(round)}`,
            1,
          );
          const outcomes = await Promise.all(
            Array.from({ length: 50 }, () => decideOne(store, [charge])),
          );
          const taken = outcomes.filter(([outcome]) => outcome?.taken === true);
          expect(taken).to.have.length(requests);
        }
      }
    });

    it(`lets exactly the limit in of two processes with 200 callers each: ${algorithm}`, async () => {
      expect(await twoProcesses([limitOf(algorithm, 100, YEAR)], ['shared'], 1)).to.equal(100);
      expect(await twoProcesses([limitOf(algorithm, 100, YEAR)], ['thrice'], 3)).to.equal(33);
      const [left] = await decideOne(store, [
        chargeOf(limitOf(algorithm, 100, YEAR), 'thrice', 0, { mode: 'peek' }),
      ]);
      expect(left?.remaining).to.equal(1);
    }).timeout(30_000);
  }

  it('leaves a limit untouched by what another refuses, in two processes', async () => {
    const limits = [limitOf('sliding_window', 150, YEAR), limitOf('fixed_window', 40, YEAR)];
    expect(await twoProcesses(limits, ['wide', 'tight'], 1)).to.equal(40);
    const [wide] = await decideOne(store, [
      chargeOf(limits[0] ?? limitOf('fixed_window', 0), 'wide', 0, { mode: 'peek' }),
    ]);
    expect(wide?.remaining).to.equal(110);
  }).timeout(30_000);

  it('stays exact among peeks and give-backs', async () => {
    for (const algorithm of ALGORITHM_NAMES) {
      const limit = limitOf(algorithm, 30, YEAR);
      const calls = Array.from({ length: 300 }, (_, i) => {
        if (i % 3 === 1) return chargeOf(limit, algorithm, 0, { mode: 'peek' });
        if (i % 10 === 0) return chargeOf(limit, algorithm, 1, { mode: 'give_back' });
        return chargeOf(limit, algorithm, 2);
      });
      const outcomes = await Promise.all(calls.map((charge) => decideOne(store, [charge])));
      let used = 0;
      for (const [i, charge] of calls.entries()) {
        const outcome = outcomes[i]?.[0];
        if (charge.mode === 'give_back') used = Math.max(0, used - 1);
        if (charge.mode === 'take') {
          expect(outcome?.taken).to.equal(used + 2 <= 30);
          if (used + 2 <= 30) used += 2;
        }
        expect(outcome?.remaining).to.equal(30 - used);
      }
    }
  });

  const AROUND_THE_EDGE: readonly (readonly [Limit, number, number])[] = [
    [limitOf('fixed_window', 50), 100, 100],
    [limitOf('sliding_window', 50), 50, 50],
    [limitOf('sliding_window_counter', 50), 50, 50],
    // 2 s of refill at 50 a minute: one hit, after a burst of 50.
    [limitOf('token_bucket', 50), 51, 51],
  ];

  for (const [limit, least, most] of AROUND_THE_EDGE) {
    it(`lets ${String(least)} in around the edge of a window of 50: ${limit.algorithm}`, async () => {
      let nowUs = 0;
      const timed = new ScriptStore(server.port, () => nowUs);
      await timed.load();
      let taken = 0;
      for (const second of [59, 61]) {
        nowUs = START_US + second * 1_000_000;
        const calls = Array.from({ length: 100 }, () =>
          decideAll(timed, [[chargeOf(limit, 'edge', 1)]]),
        );
        for (const [request] of await Promise.all(calls)) {
          if (request?.outcomes[0]?.taken === true) taken++;
        }
      }
      expect(taken).to.be.within(least, most);
      await timed.stop();
    });
  }
});
