import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Redis } from 'ioredis';
import type { Charge } from '../../src/model.js';
import { StoreRequest } from '../../src/store/store.js';
import { askGate, startBackend, untilDecides } from '../support/ask-gate.js';
import type { Asked, TestBackend } from '../support/ask-gate.js';
import { FakeRedis } from '../support/fake-redis.js';
import { Proxy } from '../support/proxy.js';
import { RedisServer } from '../support/redis-server.js';
import { charge, limit } from '../support/scripted-store.js';

/** What a caller with Envoy's 20 ms leaves us. */
const PATIENCE_MS = 15;
/** A stall of this whole process is measured and not held against it; who waited for a connection would wait 1000. */
const LATE_MS = 100;
const HOUR = limit({ requests: 100_000, burst: 100_000, windowUs: 3_600_000_000 });
let names = 0;

function counter(): Charge {
  return charge({ key: `f3600|${++names}`, limit: HOUR });
}

describe('faults between the service and a Redis', function () {
  this.timeout(60_000);
  let server: RedisServer;
  let proxy: Proxy;
  let admin: Redis;
  let tested: TestBackend;
  let stallMs = 0;

  const connectTo = (port: number): TestBackend =>
    startBackend({
      type: 'server',
      connection: { host: '127.0.0.1', port, connectTimeoutMs: 1000 },
    });
  const ask = (one: Charge, patienceMs = PATIENCE_MS): Promise<Asked> =>
    askGate(tested.backend.gate, [one], patienceMs);
  const counted = async (one: Charge): Promise<number> => {
    const { request } = await ask({ ...one, hits: 0, mode: 'peek' }, 1000);
    return HOUR.requests - (request.outcomes[0]?.remaining ?? NaN);
  };
  /** Asks at a steady pace for so long; every answer. */
  const askFor = async (one: Charge, durationMs: number, patienceMs?: number): Promise<Asked[]> => {
    const asked: Promise<Asked>[] = [];
    const endMs = performance.now() + durationMs;
    stallMs = 0;
    let tickMs = performance.now();
    const ticking = setInterval(() => {
      stallMs = Math.max(stallMs, performance.now() - tickMs - 1);
      tickMs = performance.now();
    }, 1);
    while (performance.now() < endMs) {
      asked.push(ask(one, patienceMs), ask(one, patienceMs));
      await sleep(4);
    }
    const answers = await Promise.all(asked);
    clearInterval(ticking);
    return answers;
  };
  const kinds = (asked: readonly Asked[]): string[] => [
    ...new Set(asked.map(({ request }) => request.failure?.kind ?? 'decided')),
  ];
  /** Without what this process itself stood still meanwhile. */
  const longestMs = (asked: readonly Asked[]): number =>
    Math.max(...asked.map(({ tookMs }) => tookMs)) - stallMs;

  beforeEach(async () => {
    server = await RedisServer.start();
    proxy = await Proxy.start({ port: server.port });
    admin = new Redis(server.port, '127.0.0.1', { retryStrategy: () => 50 });
    admin.on('error', () => undefined);
    tested = connectTo(proxy.port);
    await untilDecides(tested.backend.gate, counter());
  });

  afterEach(async () => {
    const immortal: string[] = [];
    const keys = await admin.keys('*').catch(() => []);
    for (const key of keys) if ((await admin.pttl(key)) < 0) immortal.push(key);
    await tested.backend.stop();
    admin.disconnect();
    await proxy.stop();
    await server.stop();
    expect(immortal).to.deep.equal([]);
  });

  it('a killed server: no waiting, no replay of what was not answered, and back within 2 s', async () => {
    const one = counter();
    await ask(one);
    const { port } = server;
    await server.stop();
    const asked = await askFor(one, 1500);
    expect(kinds(asked).filter((kind) => kind !== 'timeout')).to.deep.equal(['connection']);
    expect(longestMs(asked)).to.be.lessThan(PATIENCE_MS + LATE_MS);
    expect(tested.observer.breaker).to.deep.equal([true]);
    server = await RedisServer.start({ port });
    const startedMs = performance.now();
    await untilDecides(tested.backend.gate, counter());
    expect(performance.now() - startedMs).to.be.lessThan(2000);
    expect(tested.observer.breaker).to.deep.equal([true, false]);
    expect(await counted(one)).to.equal(0);
  });

  it('a black hole: nobody waits past the deadline, then nobody waits at all, and back within 2 s', async () => {
    proxy.blackhole();
    const asked = await askFor(counter(), 3000);
    expect(kinds(asked)).to.deep.equal(['timeout']);
    expect(longestMs(asked)).to.be.lessThan(PATIENCE_MS + LATE_MS);
    expect(tested.observer.breaker).to.deep.equal([true]);
    const settled = new Set<StoreRequest>();
    const later = Array.from({ length: 50 }, () => {
      const deadlineMs = performance.now() + 1000;
      return new StoreRequest([counter()], deadlineMs, (request) => settled.add(request));
    });
    for (const request of later) tested.backend.gate.submit(request);
    expect(settled.size).to.equal(50);
    proxy.pass();
    const passedMs = performance.now();
    await untilDecides(tested.backend.gate, counter());
    expect(performance.now() - passedMs).to.be.lessThan(2000);
  });

  it('a server that stands still: late answers change nothing, and nothing is counted twice', async () => {
    const one = counter();
    server.pause();
    const asked = await askFor(one, 500);
    expect(kinds(asked)).to.deep.equal(['timeout']);
    server.resume();
    const resumedMs = performance.now();
    await untilDecides(tested.backend.gate, counter());
    expect(performance.now() - resumedMs).to.be.lessThan(2000);
    const decided = await askFor(one, 200, 1000);
    const total = await counted(one);
    // Those sent before the breaker opened may have counted, each once.
    expect(total).to.be.within(decided.length, decided.length + asked.length);
  });

  it('a thousand calls in flight when the connection is cut: all are answered, none twice', async () => {
    const one = counter();
    proxy.delayReplies(30);
    const asked = Promise.all(Array.from({ length: 1000 }, () => ask(one, 2000)));
    await sleep(10);
    proxy.cut();
    proxy.pass();
    const answers = await asked;
    expect(answers).to.have.length(1000);
    expect(kinds(answers)).to.include('connection');
    await untilDecides(tested.backend.gate, counter());
    expect(await counted(one)).to.be.at.most(1000);
  });

  it('a lost reply: the hit counts once, and the caller is told of no decision', async () => {
    const one = counter();
    const lost = proxy.loseReplyTo(one.key);
    const { request } = await ask(one, 1000);
    await lost;
    expect(request.failure?.kind).to.equal('connection');
    await untilDecides(tested.backend.gate, counter());
    await sleep(300);
    expect(await counted(one)).to.equal(1);
  });

  it('latency: answers before the deadline, whichever it is', async () => {
    proxy.delayReplies(10);
    for (const patienceMs of [1, 5, 12, 20, 40]) {
      const asked = await askFor(counter(), 300, patienceMs);
      expect(longestMs(asked)).to.be.lessThan(patienceMs + LATE_MS);
      // Five milliseconds say nothing of a server; twelve do.
      if (patienceMs < 8) expect(tested.observer.breaker).to.deep.equal([]);
      if (patienceMs === 40) expect(kinds(await askFor(counter(), 300, 40))).to.include('decided');
    }
  });

  it('a script cache that is emptied again and again costs no decision', async () => {
    const one = counter();
    const flushing = setInterval(() => void admin.script('FLUSH'), 50);
    const asked = await askFor(one, 1000, 1000);
    clearInterval(flushing);
    expect(kinds(asked)).to.deep.equal(['decided']);
    expect(tested.observer.reloads).to.be.greaterThan(5);
    expect(await counted(one)).to.equal(asked.length);
  });

  it('a full server, and one that loses a permission: told as such, and back when mended', async () => {
    await admin.config('SET', 'maxmemory', '1', 'maxmemory-policy', 'noeviction');
    expect(kinds(await askFor(counter(), 300))).to.deep.equal(['oom']);
    await admin.config('SET', 'maxmemory', '0');
    await untilDecides(tested.backend.gate, counter(), 2000);

    await admin.acl('SETUSER', 'default', '-eval', '-evalsha');
    expect(kinds(await askFor(counter(), 300))).to.deep.equal(['permission']);
    await admin.acl('SETUSER', 'default', '+eval', '+evalsha');
    await untilDecides(tested.backend.gate, counter(), 2000);
    const lines = tested.logger.lines.filter((line) =>
      line.includes('decisions are made by policy'),
    );
    expect(lines.length).to.be.within(1, 2);
  });

  it('a demoted master: one failure is enough to look for the new one', async () => {
    const next = await RedisServer.start();
    try {
      const one = counter();
      proxy.switchTo({ port: next.port });
      await admin.replicaof('127.0.0.1', String(next.port));
      const demotedMs = performance.now();
      const asked = await askFor(one, 300);
      expect(kinds(asked)).to.include('readonly');
      await untilDecides(tested.backend.gate, counter());
      expect(performance.now() - demotedMs).to.be.lessThan(1500);
      const decided = asked.filter(({ request }) => request.failure === undefined).length;
      expect(await counted(one)).to.be.within(decided, decided + 1);
    } finally {
      await admin.replicaof('NO', 'ONE').catch(() => undefined);
      await next.stop();
    }
  });

  it('answers that make no sense are failures of a kind, said once in the log', async () => {
    const replies: [string, string][] = [
      ['-LOADING Redis is loading the dataset in memory\r\n', 'loading'],
      [
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        'loading',
      ],
      ['-BUSY Redis is busy running a script.\r\n', 'loading'],
      ['-TRYAGAIN Multiple keys request during rehashing of slot\r\n', 'cluster'],
      ['-CLUSTERDOWN The cluster is down\r\n', 'cluster'],
      ["-READONLY You can't write against a read only replica.\r\n", 'readonly'],
      ['$-1\r\n', 'reply'],
      ['$5\r\nhello\r\n', 'reply'],
      [':42\r\n', 'reply'],
      ['*1\r\n+OK\r\n', 'reply'],
      ['?what\r\n', 'reply'],
    ];
    for (const [reply, kind] of replies) {
      const fake = await FakeRedis.start(([name]) =>
        name?.toUpperCase().startsWith('EVAL') === true ? reply : '+OK\r\n',
      );
      const { backend, logger, observer } = connectTo(fake.port);
      try {
        for (let i = 0; i < 100 && !backend.connected; i++) await sleep(5);
        const failures = new Set<string>();
        for (let i = 0; i < 40; i++) {
          const { request } = await askGate(backend.gate, [counter()], PATIENCE_MS);
          failures.add(request.failure?.kind ?? 'decided');
          await sleep(3);
        }
        expect([reply, [...failures]]).to.satisfy(([, found]: [string, string[]]) =>
          found.includes(kind),
        );
        expect(observer.failures).to.include(kind);
        // Replies that follow one of a wrong form may belong to other calls.
        if (kind === 'reply') expect(fake.connections).to.be.greaterThan(1);
        const lines = logger.lines.filter((line) => line.includes(`"kind":"${kind}"`));
        expect(lines.length).to.be.within(1, 3);
      } finally {
        await backend.stop();
        await fake.stop();
      }
    }
  });

  it('a network that refuses: attempts of many instances become rare, and not in step', async () => {
    const others = Array.from({ length: 5 }, () => connectTo(proxy.port));
    try {
      await Promise.all(others.map(({ backend }) => untilDecides(backend.gate, counter())));
      await tested.backend.stop();
      proxy.refuse();
      proxy.cut();
      await sleep(5000);
      const before = proxy.attemptsMs.length;
      await sleep(4000);
      const attempts = proxy.attemptsMs.slice(before);
      expect(attempts.length / 4 / 5).to.be.lessThan(2);
      const gaps = attempts.slice(1).map((at, i) => at - (attempts[i] ?? 0));
      expect(gaps.filter((gap) => gap < 5).length).to.be.lessThan(attempts.length / 2);
    } finally {
      await Promise.all(others.map(({ backend }) => backend.stop()));
    }
  });

  it('keys whose expiry somebody removed get one again at the next hit of a new window', async () => {
    const short = limit({ requests: 2, burst: 2, windowUs: 1_000_000 });
    const one = charge({ key: 'f1|persisted', limit: short });
    for (let i = 0; i < 3; i++) await ask(one);
    await admin.persist(one.key);
    await sleep(1100);
    const { request } = await ask(one);
    expect(request.outcomes[0]?.fits).to.equal(true);
    expect(await admin.pttl(one.key)).to.be.within(1, 5000);
  });
});
