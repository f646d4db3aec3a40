import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { ALGORITHM_NAMES } from '../../src/model.js';
import { clockOff, findFakeClock } from '../support/fake-clock.js';
import { RedisServer } from '../support/redis-server.js';
import { Service } from '../support/service.js';

const RULES = `
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: site, rate_limit: { unit: hour, requests_per_unit: 100 } }
  - { key: exact, rate_limit: { algorithm: sliding_window, unit: hour, requests_per_unit: 100 } }
  - { key: swapped, rate_limit: { unit: hour, requests_per_unit: 50 } }
${ALGORITHM_NAMES.map(
  (algorithm) => `  - key: ${algorithm}
    rate_limit: { algorithm: ${algorithm}, unit: minute, requests_per_unit: 20 }
`,
).join('')}`;

const library = findFakeClock();

describe('replicas that share a Redis', function () {
  this.timeout(60_000);
  let redis: RedisServer;
  let replicas: Service[];

  before(async () => {
    redis = await RedisServer.start();
    // Exactness is what is tested here, and the machine may be busy: no policy may answer instead.
    const patient = { DECISION_TIMEOUT: '10s', DEFAULT_ON_STORE_ERROR: 'deny' };
    const env = { REDIS_URL: `127.0.0.1:${redis.port}`, ...patient };
    replicas = await Promise.all([Service.start(RULES, env), Service.start(RULES, env)]);
    await Promise.all(replicas.map((replica) => replica.untilDecides('user=ready')));
  });

  after(async () => {
    await Promise.all(replicas.map((replica) => replica.stop()));
    await redis.stop();
  });

  const replica = (i: number): Service => {
    const found = replicas[i % replicas.length];
    if (found === undefined) throw new Error('no replica');
    return found;
  };

  it('admit together what the limits say, all of a request or nothing', async () => {
    const admitted = new Map<string, number>();
    await Promise.all(
      Array.from({ length: 2000 }, async (_, i) => {
        const user = `user=u${i % 20}`;
        const { code } = await replica(i).ask([user, 'site=s'], 20_000);
        expect(code).to.not.equal('ERROR');
        if (code === 'OK') admitted.set(user, (admitted.get(user) ?? 0) + 1);
      }),
    );
    expect([...admitted.values()].reduce((sum, count) => sum + count, 0)).to.equal(100);
    expect(Math.max(...admitted.values())).to.be.at.most(10);
  });

  it('count each hit of an exact log, also when many come in one tick', async () => {
    const askAll = async (descriptor: string): Promise<number> => {
      const answers = await Promise.all(
        Array.from({ length: 500 }, (_, i) => replica(i).ask(descriptor, 20_000)),
      );
      return answers.filter(({ code }) => code === 'OK').length;
    };
    expect(await askAll('exact=one')).to.equal(100);
    expect(await askAll('exact=three:3')).to.equal(33);
  });

  it('see another number for a limit at once, and never a wrapped one', async () => {
    const rules = (requests: number): string =>
      RULES.replace(
        'unit: hour, requests_per_unit: 10 }',
        `unit: hour, requests_per_unit: ${requests} }`,
      );
    const load = async (requests: number): Promise<void> => {
      for (const { weir } of replicas)
        writeFileSync(join(weir.configDir, 'rules.yaml'), rules(requests));
      for (const one of replicas) {
        for (let i = 0; i < 100; i++) {
          const { statuses } = await one.ask('user=reload:0');
          if (statuses[0]?.current_limit?.requests_per_unit === requests) break;
          await sleep(50);
        }
      }
    };
    expect(await replica(0).codes('user=reload', 9)).to.not.include('OVER');
    await load(1000);
    expect((await replica(1).ask('user=reload:0')).statuses[0]?.limit_remaining).to.equal(991);
    await load(5);
    const { code, statuses } = await replica(0).ask('user=reload');
    expect([code, statuses[0]?.limit_remaining]).to.deep.equal(['OVER_LIMIT', 0]);
    await load(10);
    expect(await replica(1).codes('user=reload', 2)).to.equal('OK OVER');
  });

  it('admit at most one more limit when the algorithm changes under their feet', async () => {
    const rules = (algorithm: string): string => `
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: swapped, rate_limit: { algorithm: ${algorithm}, unit: hour, requests_per_unit: 50 } }
`;
    for (const algorithm of ALGORITHM_NAMES) {
      let admitted = 0;
      for (const { weir } of replicas) {
        const earlier = (async () => {
          for (let i = 0; i < 60; i++) {
            const { code } = await replica(i).ask(`swapped=x`);
            expect(code).to.not.equal('ERROR');
            if (code === 'OK') admitted++;
          }
        })();
        writeFileSync(join(weir.configDir, 'rules.yaml'), rules(algorithm));
        await sleep(300);
        await earlier;
      }
      expect(admitted).to.be.at.most(2 * 50);
    }
    expect(await replica(0).metric('weir_redis_errors_total')).to.equal(0);
  });

  describe('with clocks that differ', () => {
    before(function () {
      if (library !== undefined) return;
      if (process.env['CI'] === 'true') throw new Error('libfaketime is missing: make tools');
      console.error('*** skipped: no libfaketime (make tools installs it)');
      this.skip();
    });

    it('decide alike, and say how far each is off', async () => {
      const env = { REDIS_URL: `127.0.0.1:${redis.port}` };
      const skewed = await Promise.all(
        [90, -90].map((seconds) =>
          Service.start(RULES, { ...env, ...clockOff(library ?? '', seconds) }),
        ),
      );
      try {
        const [ahead, behind] = skewed;
        if (ahead === undefined || behind === undefined) throw new Error('no replicas');
        for (const algorithm of ALGORITHM_NAMES) {
          // A minute that does not end while this asks.
          if (Date.now() % 60_000 > 55_000) await sleep(60_000 - (Date.now() % 60_000));
          let admitted = 0;
          const resets: number[] = [];
          for (let i = 0; i < 30; i++) {
            const { code, statuses } = await (i % 2 === 0 ? ahead : behind).ask(`${algorithm}=k`);
            if (code === 'OK') admitted++;
            resets.push(Number(statuses[0]?.duration_until_reset?.seconds));
          }
          expect([algorithm, admitted]).to.satisfy(
            ([, count]: [string, number]) =>
              count === 20 || (algorithm === 'token_bucket' && count === 21),
          );
          const [one = 0, other = 0] = resets.slice(-2);
          expect(Math.abs(one - other)).to.be.at.most(1);
        }
        // Redis's clock minus ours.
        expect(await ahead.metric('weir_clock_skew_seconds')).to.be.within(-91, -89);
        expect(await behind.metric('weir_clock_skew_seconds')).to.be.within(89, 91);
      } finally {
        await Promise.all(skewed.map((one) => one.stop()));
      }
    });
  });
});
