import dns from 'node:dns';
import { expect } from 'chai';
import { Redis } from 'ioredis';
import type { RedisPlace } from '../../src/store/connect.js';
import { askGate, startBackend, untilDecides } from '../support/ask-gate.js';
import type { TestBackend } from '../support/ask-gate.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { charge, limit } from '../support/scripted-store.js';

const HOUR = limit({ requests: 1000, burst: 1000, windowUs: 3_600_000_000 });
let keys = 0;

/** Where each name leads; others are looked up as ever. */
const addresses = new Map<string, string>();

describe('a Redis whose name leads to another address', function () {
  this.timeout(60_000);
  const { lookup } = dns;
  const closing: (() => Promise<void>)[] = [];

  before(() => {
    const resolve = (
      name: string,
      options: dns.LookupOptions,
      done: (error: null, found: string | dns.LookupAddress[], family?: number) => void,
    ): void => {
      const address = addresses.get(name);
      if (address === undefined) (lookup as (...args: unknown[]) => void)(name, options, done);
      else if (options.all === true) done(null, [{ address, family: 4 }]);
      else done(null, address, 4);
    };
    dns.lookup = resolve as typeof dns.lookup;
  });

  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });

  after(() => {
    dns.lookup = lookup;
  });

  const connect = (place: RedisPlace): TestBackend => {
    const tested = startBackend(place);
    closing.push(() => tested.backend.stop());
    return tested;
  };
  const serve = async (host: string, port?: number): Promise<RedisServer> => {
    const server = await RedisServer.start({ host, ...(port !== undefined && { port }) });
    closing.push(() => server.stop());
    return server;
  };
  /** How long until the server there has counted, in ms. */
  const untilCountedBy = async (tested: TestBackend, server: RedisServer): Promise<number> => {
    const admin = new Redis(server.port, server.host);
    const startMs = performance.now();
    try {
      for (;;) {
        const one = charge({ key: `f3600|moved|${++keys}`, limit: HOUR });
        await askGate(tested.backend.gate, [one], 20);
        const tookMs = performance.now() - startMs;
        if ((await admin.exists(one.key)) === 1) return tookMs;
        if (tookMs > 10_000) throw new Error('it does not count there');
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    } finally {
      admin.disconnect();
    }
  };
  const startMoving = async (): Promise<[TestBackend, RedisServer, RedisServer]> => {
    const here = await serve('127.0.0.1');
    const there = await serve('127.0.0.2', here.port);
    addresses.set('redis.test', here.host);
    const connection = { host: 'redis.test', port: here.port, connectTimeoutMs: 500 };
    const tested = connect({ type: 'server', connection });
    await untilCountedBy(tested, here);
    addresses.set('redis.test', there.host);
    return [tested, here, there];
  };

  it('is found there when the old one has died', async () => {
    const [tested, here, there] = await startMoving();
    await here.stop();
    expect(await untilCountedBy(tested, there)).to.be.lessThan(2000);
  });

  it('is found there when the old one has become a replica, and keeps its connections', async () => {
    const [tested, here, there] = await startMoving();
    const admin = new Redis(here.port, here.host);
    await admin.replicaof(there.host, there.port);
    admin.disconnect();
    expect(await untilCountedBy(tested, there)).to.be.lessThan(2000);
  });

  it('is found there when the old one is silent, with its connections open', async () => {
    const [tested, here, there] = await startMoving();
    here.pause();
    expect(await untilCountedBy(tested, there)).to.be.lessThan(5000);
  });

  it('is found there when it is a node of a cluster, and sends nobody back and forth', async () => {
    const nameOf = (port: number): string => `node-${port}.test`;
    const cluster = await RedisCluster.start({
      replicas: 0,
      args: (port) => {
        if (!addresses.has(nameOf(port))) addresses.set(nameOf(port), '127.0.0.1');
        const type = ['--cluster-preferred-endpoint-type', 'hostname'];
        return ['--cluster-announce-hostname', nameOf(port), ...type];
      },
    });
    closing.push(() => cluster.stop());
    const [seed = 0, moving = 0] = cluster.ports;
    const tested = connect({
      type: 'cluster',
      seeds: [{ host: nameOf(seed), port: seed }],
      connection: { host: '', port: 0, connectTimeoutMs: 500 },
    });
    const { gate } = tested.backend;
    const names = (): string[] =>
      tested.backend
        .states()
        .map(({ name }) => name.replace('main ', ''))
        .sort();
    const one = charge({ key: 'f3600|cluster', limit: HOUR });
    await untilDecides(gate, one);
    const slots = new Map<number, string>();
    while (slots.size < 3) {
      const key = `f3600|cluster|${++keys}`;
      slots.set(await cluster.masterOf(key), key);
    }
    await cluster.kill(moving);
    addresses.set(nameOf(moving), '127.0.0.2');
    await cluster.restart(moving, '127.0.0.2');
    const startMs = performance.now();
    const there = charge({ key: slots.get(moving) ?? '', limit: HOUR });
    await untilDecides(gate, there);
    expect(performance.now() - startMs).to.be.lessThan(10_000);
    await cluster.settled();

    expect(names()).to.deep.equal(cluster.ports.map((port) => `${nameOf(port)}:${port}`).sort());
    const redirections = async (): Promise<number> => {
      let sum = 0;
      for (const port of cluster.ports) {
        const errors = String(await cluster.call(port, 'info', 'errorstats'));
        sum += Number(/errorstat_MOVED:count=(\d+)/.exec(errors)?.[1] ?? 0);
      }
      return sum;
    };
    const before = await redirections();
    for (let i = 0; i < 50; i++) {
      const key = `f3600|after|${i}`;
      const { request } = await askGate(gate, [charge({ key, limit: HOUR })]);
      expect(request.failure).to.equal(undefined);
    }
    expect(await redirections()).to.equal(before);
  });
});
