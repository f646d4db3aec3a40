import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Redis } from 'ioredis';
import { parseSettings } from '../src/settings/settings.js';
import { createStorage } from '../src/storage.js';
import type { Storage } from '../src/storage.js';
import { askGate, LineLogger, untilDecides } from './support/ask-gate.js';
import type { Asked } from './support/ask-gate.js';
import { Proxy } from './support/proxy.js';
import { RedisCluster } from './support/redis-cluster.js';
import { RedisServer } from './support/redis-server.js';
import { ask as toRequest, charge, CountingObserver, limit } from './support/scripted-store.js';

const HOUR = limit({ requests: 5, burst: 5, windowUs: 3_600_000_000, keyHead: 'f3600' });
const SECOND = limit({
  algorithm: 'fixed_window',
  requests: 3,
  burst: 3,
  windowUs: 1_000_000,
  keyHead: 'f1',
});

describe('storage', function () {
  this.timeout(30_000);
  let observer: CountingObserver;
  let storage: Storage;
  let clients: Redis[];

  const start = (env: Record<string, string>): void => {
    storage = createStorage({
      settings: parseSettings(env).settings,
      observer,
      logger: new LineLogger(),
      nowMs: () => performance.now(),
      nowUs: () => Date.now() * 1000,
    });
    storage.start();
  };

  beforeEach(() => {
    observer = new CountingObserver();
    clients = [];
  });
  afterEach(async () => {
    for (const client of clients) client.disconnect();
    await storage.stop();
  });

  describe('with a second Redis for limits per second', () => {
    let main: RedisServer;
    let second: RedisServer;

    beforeEach(async () => {
      main = await RedisServer.start();
      second = await RedisServer.start();
      start({
        REDIS_URL: `127.0.0.1:${main.port}`,
        REDIS_PERSECOND: 'true',
        REDIS_PERSECOND_URL: `127.0.0.1:${second.port}`,
      });
      clients = [main, second].map(({ port }) => {
        const client = new Redis(port, '127.0.0.1', { retryStrategy: () => null });
        client.on('error', () => undefined);
        return client;
      });
      await untilDecides(storage.gate, charge({ key: 'f3600|ready', limit: HOUR }));
      await untilDecides(storage.gate, charge({ key: 'f1|ready', limit: SECOND }));
    });
    afterEach(async () => {
      await Promise.all([main.stop(), second.stop()]);
    });

    const counters = async (): Promise<string[][]> =>
      Promise.all(clients.map((client) => client.keys('*|counted')));

    it('keeps each kind of counter in its own', async () => {
      const { request } = await askGate(storage.gate, [
        charge({ key: 'f3600|counted', limit: HOUR }),
        charge({ key: 'f1|counted', limit: SECOND }),
      ]);
      expect(request.outcomes.map((outcome) => outcome?.taken)).to.deep.equal([true, true]);
      expect(await counters()).to.deep.equal([['f3600|counted'], ['f1|counted']]);
    });

    it('takes back what one has counted when the other refuses', async () => {
      // Away from the edge of a second.
      await sleep(1000 - (Date.now() % 1000));
      const both = [
        charge({ key: 'f3600|both', limit: HOUR }),
        charge({ key: 'f1|both', limit: SECOND }),
      ];
      for (let i = 0; i < 8; i++) await askGate(storage.gate, both);
      storage.forgetDenials();
      await sleep(20);
      const look = {
        ...charge({ key: 'f3600|both', limit: HOUR, hits: 0 }),
        mode: 'peek' as const,
      };
      const { request } = await askGate(storage.gate, [look]);
      expect(request.outcomes[0]?.remaining).to.equal(2);
    });

    it('goes on with one while the other is dead', async () => {
      await second.stop();
      for (let i = 0; i < 40; i++) {
        const { request, tookMs } = await askGate(
          storage.gate,
          [charge({ key: `f3600|${i}`, limit: HOUR })],
          500,
        );
        expect(request.failure).to.equal(undefined);
        expect(tookMs).to.be.lessThan(400);
        await askGate(storage.gate, [charge({ key: `f1|${i}`, limit: SECOND })], 20);
        await sleep(5);
      }
      expect(storage.connected()).to.equal(false);
      expect(storage.states().map(({ name, breakerOpen }) => [name, breakerOpen])).to.deep.equal([
        ['main', false],
        ['per_second', true],
      ]);
      expect(observer.breaker).to.deep.equal([true]);
    });
  });

  it('refuses no longer what another request had taken for a moment', async () => {
    const [main, second] = [await RedisServer.start(), await RedisServer.start()];
    const slow = await Proxy.start({ port: second.port });
    try {
      start({
        REDIS_URL: `127.0.0.1:${main.port}`,
        REDIS_PERSECOND: 'true',
        REDIS_PERSECOND_URL: `127.0.0.1:${slow.port}`,
      });
      await untilDecides(storage.gate, charge({ key: 'f3600|ready', limit: HOUR }));
      await untilDecides(storage.gate, charge({ key: 'f1|ready', limit: SECOND }));
      slow.delayReplies(150);
      const last = charge({ key: 'f3600|last', limit: HOUR, hits: 5 });
      const never = charge({ key: 'f1|never', limit: { ...SECOND, requests: 0, burst: 0 } });
      const other = charge({ key: 'f1|other', limit: SECOND });
      const fits = ({ request }: Asked): boolean[] =>
        request.outcomes.map((outcome) => outcome?.fits === true);
      const refused = askGate(storage.gate, [last, never]);
      await sleep(50);
      const meanwhile = askGate(storage.gate, [last, other]);
      expect(fits(await askGate(storage.gate, [last]))).to.deep.equal([false]);
      expect(fits(await refused)).to.deep.equal([true, false]);
      // What it was told before the undo comes after it.
      expect(fits(await meanwhile)).to.deep.equal([false, true]);
      expect(fits(await askGate(storage.gate, [last]))).to.deep.equal([true]);
    } finally {
      await storage.stop();
      await slow.stop();
      await Promise.all([main.stop(), second.stop()]);
    }
  });

  it('does not remember a refusal that was on its way when the counter was reset', async () => {
    const redis = await RedisServer.start();
    try {
      start({ REDIS_URL: `127.0.0.1:${redis.port}` });
      const all = charge({ key: 'f3600|reset', limit: HOUR, hits: 5 });
      await untilDecides(storage.gate, charge({ key: 'f3600|ready', limit: HOUR }));
      await askGate(storage.gate, [all]);
      const onItsWay = askGate(storage.gate, [all]);
      await new Promise((resolve) => setImmediate(resolve));
      expect(await storage.reset([all.key])).to.equal(1);
      expect((await onItsWay).request.outcomes[0]?.fits).to.equal(false);
      expect((await askGate(storage.gate, [all])).request.outcomes[0]?.fits).to.equal(true);
    } finally {
      await storage.stop();
      await redis.stop();
    }
  });

  it('finds a cluster by the nodes that the settings name', async () => {
    const cluster = await RedisCluster.start({ replicas: 0 });
    try {
      start({
        REDIS_TYPE: 'CLUSTER',
        REDIS_URL: cluster.ports.map((port) => `127.0.0.1:${port}`).join(','),
      });
      const one = charge({ key: 'f3600|one', limit: HOUR });
      await untilDecides(storage.gate, one);
      await askGate(storage.gate, [one]);
      expect(storage.connected()).to.equal(true);
      expect(storage.states()).to.have.length(3);
      expect(await storage.reset([one.key, 'f3600|unknown'])).to.equal(1);
    } finally {
      await storage.stop();
      await cluster.stop();
    }
  });

  it('counts in memory when there is no Redis', async () => {
    start({});
    const { request } = await askGate(storage.gate, [charge({ limit: HOUR })]);
    expect(request.outcomes[0]?.remaining).to.equal(4);
    expect([storage.kind, storage.instances(), storage.connected()]).to.deep.equal([
      ...['memory', 1, true],
    ]);
  });

  it('keeps no more counters in memory than it is told, and says how often that was too few', async () => {
    start({ MEMORY_MAX_COUNTERS: '10' });
    const ask = async (key: string): Promise<number | undefined> =>
      (await askGate(storage.gate, [charge({ key, limit: HOUR })])).request.outcomes[0]?.remaining;
    for (let i = 0; i < 10; i++) await ask(`f3600|${i}`);
    expect(observer.overflows).to.equal(0);
    for (let i = 10; i < 30; i++) await ask(`f3600|${i}`);
    expect(observer.overflows).to.equal(20);
    expect(await ask('f3600|0')).to.equal(4);

    await storage.stop();
    start({ MEMORY_MAX_COUNTERS: '1', REDIS_URL: '127.0.0.1:1' });
    for (const key of ['f3600|a', 'f3600|b']) {
      storage.fallback.decide([toRequest([charge({ key, limit: HOUR })])], () => undefined);
    }
    expect(observer.overflows).to.be.greaterThan(20);
  });
});
