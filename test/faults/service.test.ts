import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Redis } from 'ioredis';
import { ALGORITHM_NAMES } from '../../src/model.js';
import { Proxy } from '../support/proxy.js';
import { RedisServer } from '../support/redis-server.js';
import { Service } from '../support/service.js';
import type { Answered } from '../support/service.js';

const RULES = `
domain: shop
descriptors:
  - { key: open, rate_limit: { unit: minute, requests_per_unit: 3, on_store_error: allow } }
  - { key: closed, rate_limit: { unit: minute, requests_per_unit: 3, on_store_error: deny } }
  - { key: own, rate_limit: { unit: minute, requests_per_unit: 2, on_store_error: local } }
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 1000, on_store_error: allow } }
  - { key: five, rate_limit: { unit: hour, requests_per_unit: 5, on_store_error: local } }
${ALGORITHM_NAMES.map(
  (algorithm) => `  - key: ${algorithm}
    rate_limit:
      { algorithm: ${algorithm}, unit: second, unit_multiplier: 2, requests_per_unit: 3, on_store_error: local }
  - key: banned_${algorithm}
    rate_limit: { algorithm: ${algorithm}, unit: minute, requests_per_unit: 0, on_store_error: allow }
`,
).join('')}`;

describe('a service whose Redis fails', function () {
  this.timeout(60_000);
  const directory = mkdtempSync(join(tmpdir(), 'weir-faults-'));
  let redis: RedisServer;
  let proxy: Proxy;
  let service: Service;
  let admin: Redis;

  // What it writes outlives the process, as in a deployment that keeps its data.
  const startRedis = (port?: number): Promise<RedisServer> =>
    RedisServer.start({
      ...(port !== undefined && { port }),
      args: ['--dir', directory, '--appendonly', 'yes', '--appendfsync', 'always'],
    });

  before(async () => {
    redis = await startRedis();
    proxy = await Proxy.start({ port: redis.port });
    admin = new Redis(redis.port, '127.0.0.1', { retryStrategy: () => 100 });
    admin.on('error', () => undefined);
    service = await Service.start(RULES, { REDIS_URL: `127.0.0.1:${proxy.port}` });
  });

  beforeEach(() => service.untilDecides('user=ready'));

  after(async () => {
    await service.stop();
    admin.disconnect();
    await proxy.stop();
    await redis.stop();
    rmSync(directory, { recursive: true, force: true });
    expect(service.weir.output()).to.not.match(/unhandledRejection|uncaughtException/i);
  });

  const killAndWait = async (): Promise<void> => {
    await redis.stop();
    while ((await service.metric('weir_breaker_open')) === 0) await service.ask('user=opens', 20);
  };
  const restart = async (): Promise<number> => {
    redis = await startRedis(redis.port);
    return service.untilDecides('user=ready');
  };

  it('answers each rule by its policy, as a normal response, and is back within 2 s', async () => {
    const ratio = await service.metric('weir_reject_ratio', /rule="closed"/);
    await killAndWait();
    expect(await service.codes('open=a', 5)).to.equal('OK OK OK OK OK');
    expect(await service.codes('closed=a', 5)).to.equal('OVER OVER OVER OVER OVER');
    expect(await service.codes('own=a', 5)).to.equal('OK OK OVER OVER OVER');
    const late = await service.metric('weir_deadline_exceeded_total');
    const { statuses } = await service.ask('closed=b');
    expect(statuses[0]).to.deep.include({ code: 'OVER_LIMIT', limit_remaining: 0 });
    expect(statuses[0]?.current_limit ?? undefined).to.equal(undefined);
    expect(Number(statuses[0]?.duration_until_reset?.seconds)).to.equal(1);
    expect(await service.metric('weir_deadline_exceeded_total')).to.equal(late);

    const decisions = (rule: string, outcome: string): Promise<number> =>
      service.metric('weir_decisions_total', new RegExp(`rule="${rule}",outcome="${outcome}"`));
    expect(await decisions('open', 'policy_allowed')).to.equal(5);
    expect(await decisions('closed', 'policy_denied')).to.equal(6);
    expect(await decisions('own', 'policy_local_allowed')).to.equal(2);
    expect(await decisions('own', 'policy_local_rejected')).to.equal(3);
    expect(await decisions('closed', 'rejected')).to.equal(0);
    expect(await service.metric('weir_reject_ratio', /rule="closed"/)).to.equal(ratio);
    expect(await service.metric('weir_redis_errors_total', /connection/)).to.be.greaterThan(0);

    expect(await restart()).to.be.lessThan(2000);
    expect(await service.metric('weir_breaker_open')).to.equal(0);
    expect(await service.codes('closed=a', 4)).to.equal('OK OK OK OVER');
  });

  it('passes nothing of a thousand calls for what is banned, just started and without Redis', async () => {
    const fresh = await Service.start(RULES, { REDIS_URL: `127.0.0.1:${proxy.port}` });
    try {
      const askAll = (): Promise<Answered[]> =>
        Promise.all(
          Array.from({ length: 1000 }, (_, i) =>
            fresh.ask(`banned_${ALGORITHM_NAMES[i % 4] ?? ''}=x`, 20_000),
          ),
        );
      for (const { code, statuses } of await askAll()) {
        expect([code, statuses[0]?.limit_remaining]).to.deep.equal(['OVER_LIMIT', 0]);
        expect(Number(statuses[0]?.duration_until_reset?.seconds)).to.be.within(1, 60);
      }
      for (const algorithm of ALGORITHM_NAMES) {
        const look = await fresh.ask(`banned_${algorithm}=x:0`);
        expect([look.code, look.statuses[0]?.limit_remaining]).to.deep.equal(['OK', 0]);
      }
      expect(await fresh.metric('weir_redis_errors_total', /script|reply/)).to.equal(0);

      await redis.stop();
      // What was refused is remembered for a second.
      await sleep(1100);
      for (const { code } of await askAll()) expect(code).to.equal('OVER_LIMIT');
      await restart();
    } finally {
      await fresh.stop();
    }
  });

  it('refuses by policy however the store fails, never passes by accident', async () => {
    const both = ['closed=x', 'user=x'];
    await admin.config('SET', 'maxmemory', '1');
    expect(await service.codes(both, 5)).to.equal('OVER OVER OVER OVER OVER');
    await admin.config('SET', 'maxmemory', '0');
    await service.untilDecides('user=ready');

    proxy.delayReplies(50);
    const flying = Promise.all(Array.from({ length: 20 }, () => service.ask(both)));
    await sleep(20);
    proxy.cut();
    proxy.pass();
    for (const { code } of await flying) expect(code).to.equal('OVER_LIMIT');
    await service.untilDecides('user=ready');

    await killAndWait();
    expect(await service.codes(both, 3)).to.equal('OVER OVER OVER');
    await restart();
  });

  it('replays nothing of an outage when Redis is back with its data', async () => {
    await service.codes('user=steady', 3);
    await killAndWait();
    const asked: Promise<unknown>[] = [];
    for (let i = 0; i < 300; i++) {
      asked.push(service.ask('user=steady'));
      await sleep(2);
    }
    await Promise.all(asked);
    await restart();
    await sleep(500);
    const { statuses } = await service.ask('user=steady:0');
    expect(statuses[0]?.limit_remaining).to.equal(997);
  });

  it('leaves the fallback each time Redis is back, three times in a row', async () => {
    for (let i = 0; i < 3; i++) {
      await killAndWait();
      expect(await service.codes(`own=cycle${i}`, 3)).to.equal('OK OK OVER');
      expect(await restart()).to.be.lessThan(2000);
      expect(await service.codes(`five=cycle${i}`, 6)).to.equal('OK OK OK OK OK OVER');
    }
  });

  it('counts locally by each algorithm, window after window, also across a reload', async () => {
    await killAndWait();
    for (const algorithm of ALGORITHM_NAMES) {
      // A fixed window of two seconds: begin where it has just begun.
      await sleep(2000 - (Date.now() % 2000));
      expect([algorithm, await service.codes(`${algorithm}=a`, 5)]).to.deep.equal([
        ...[algorithm, 'OK OK OK OVER OVER'],
      ]);
      writeFileSync(join(service.weir.configDir, 'rules.yaml'), RULES);
      await sleep(100);
      expect((await service.ask(`${algorithm}=a`)).code).to.equal('OVER_LIMIT');
      await sleep(2100);
      expect((await service.ask(`${algorithm}=a`)).code).to.equal('OK');
    }
    await restart();
  });

  it('answers before the caller gives up, whatever the network does', async () => {
    for (const fault of ['latency', 'black hole'] as const) {
      if (fault === 'latency') proxy.delayReplies(60);
      else proxy.blackhole();
      const late = await service.metric('weir_deadline_exceeded_total');
      let errors = 0;
      for (let i = 0; i < 100; i++) {
        const { code } = await service.ask('closed=late', 60);
        if (code === 'ERROR') errors++;
      }
      // This test and the service share a machine with others: a stall of either is no fault of the policy.
      expect([fault, errors]).to.satisfy(([, count]: [string, number]) => count <= 3);
      expect((await service.metric('weir_deadline_exceeded_total')) - late).to.be.at.most(3);
      proxy.pass();
      expect(await service.untilDecides('user=ready')).to.be.lessThan(2000);
    }
  });

  it('leaves no hit of a request that its policy refused, when Redis counts it later', async () => {
    redis.pause();
    const refused = await Promise.all(
      Array.from({ length: 20 }, (_, i) => service.ask(`closed=later${i}`, 60)),
    );
    expect(refused.filter(({ code }) => code === 'OK')).to.deep.equal([]);
    redis.resume();
    await service.untilDecides('user=ready');
    await sleep(200);
    for (let i = 0; i < 20; i++) {
      const { statuses } = await service.ask(`closed=later${i}:0`);
      expect(statuses[0]?.limit_remaining).to.equal(3);
    }
  });

  it('measures round trips in seconds', async () => {
    const read = async (part: string): Promise<number> =>
      service.metric(`weir_redis_roundtrip_seconds_${part}`);
    const [sum, count] = [await read('sum'), await read('count')];
    proxy.delayReplies(10);
    for (let i = 0; i < 50; i++) await service.ask('user=slow');
    proxy.pass();
    const mean = ((await read('sum')) - sum) / ((await read('count')) - count);
    expect(mean).to.be.within(0.01, 0.2);
  });

  it('ends with code 0 while a call hangs in a black hole, and while Redis never came', async () => {
    const second = await Service.start(RULES, { REDIS_URL: `127.0.0.1:${proxy.port}` });
    await second.untilDecides('user=ready');
    proxy.blackhole();
    const hanging = second.ask('user=hangs');
    expect(await second.stop()).to.equal(0);
    await hanging;
    proxy.pass();

    const third = await Service.start(RULES, { REDIS_URL: '127.0.0.1:1' });
    expect((await third.ask('closed=a')).code).to.equal('OVER_LIMIT');
    expect(await third.stop()).to.equal(0);
    expect(third.weir.output()).to.not.match(/unhandled/i);
  });

  it('tells no password, whatever the log level, and however Redis refuses it', async () => {
    const secret = 'open-sesame';
    await admin.config('SET', 'requirepass', 'another');
    const env = { LOG_LEVEL: 'debug', REDIS_URL: `redis://:${secret}@127.0.0.1:${redis.port}` };
    const wrong = await Service.start(RULES, env);
    try {
      expect((await wrong.ask('closed=a')).code).to.equal('OVER_LIMIT');
      await sleep(500);
      const told = [
        wrong.weir.output(),
        await wrong.page('/metrics'),
        await wrong.page('/healthz'),
      ];
      expect(told.join('\n')).to.not.include(secret);
      expect(told[0]).to.include('permission');
    } finally {
      await admin.config('SET', 'requirepass', '');
      await wrong.stop();
    }
  });
});
