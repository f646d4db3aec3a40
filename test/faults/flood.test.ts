import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { Redis } from 'ioredis';
import { until } from '../support/redis-store.js';
import { RedisServer } from '../support/redis-server.js';
import { Service } from '../support/service.js';
import { callerOf, NATIVE } from '../transport/grpc-client.js';
import type { Caller } from '../transport/grpc-client.js';

const RULES = `
domain: shop
descriptors:
  - { key: path, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: ip, rate_limit: { unit: hour, requests_per_unit: 5 } }
`;
const VALUES = 20_000;

describe('a flood of values that a client makes up', function () {
  this.timeout(60_000);
  let redis: RedisServer;
  let service: Service;
  let admin: Redis;
  let native: Caller;

  before(async () => {
    redis = await RedisServer.start();
    admin = new Redis(redis.port, '127.0.0.1');
    service = await Service.start(RULES, {
      REDIS_URL: `127.0.0.1:${redis.port}`,
      // The flood is as fast as this machine: what is asked here is not how it ends in time.
      DECISION_TIMEOUT: '10s',
      DEFAULT_ON_STORE_ERROR: 'deny',
      CACHE_KEY_PREFIX: 'w:',
    });
    native = callerOf(NATIVE, `127.0.0.1:${service.weir.grpcPort}`);
    await service.untilDecides('path=ready');
  });

  after(async () => {
    native.close();
    await service.stop();
    admin.disconnect();
    await redis.stop();
  });

  const seriesOf = async (): Promise<number> =>
    (await service.page('/metrics')).split('\n').filter((line) => line.startsWith('weir_')).length;
  const usedBytes = async (): Promise<number> =>
    Number(/used_memory:(\d+)/.exec(await admin.info('memory'))?.[1]);

  it('changes no decision, shows in a gauge alone, and costs Redis what is documented', async () => {
    await service.ask('path=first');
    const [series, bytes] = [await seriesOf(), await usedBytes()];
    let known = 0;
    for (let i = 0; i < VALUES; i += 500) {
      const flood = Array.from({ length: 500 }, (_, j) => service.ask(`path=/search?q=${i + j}`));
      if ((await service.ask('path=/known')).code === 'OK') known++;
      for (const { code } of await Promise.all(flood)) expect(code).to.equal('OK');
    }
    expect(known).to.equal(5);
    expect(await seriesOf()).to.equal(series);
    // The key's 33, 120 beyond it by the docs, and what Redis holds besides, over so few keys.
    expect(((await usedBytes()) - bytes) / VALUES).to.be.lessThan(33 + 120 + 60);
    await until(async () => {
      const active = await service.metric('weir_active_keys', /rule="path"/);
      return active > VALUES * 0.95 && active < VALUES * 1.05;
    }, 15_000);
    const immortal = await admin.eval(
      `local n = 0 for _, key in ipairs(redis.call('KEYS', 'w:*')) do
         if redis.call('PTTL', key) < 0 then n = n + 1 end end return n`,
      0,
    );
    expect(immortal).to.equal(0);
    expect(await admin.dbsize()).to.be.greaterThan(VALUES);
  });

  it('from all addresses of one network of IPv6 is one client', async () => {
    let admitted = 0;
    await Promise.all(
      Array.from({ length: 1000 }, async () => {
        const groups = randomBytes(8).toString('hex').match(/.{4}/g) ?? [];
        const descriptor = { ip: `2001:db8:1:2:${groups.join(':')}` };
        const answer = await native.call('ShouldRateLimit', { domain: 'shop', descriptor });
        if (answer['allowed'] === true) admitted++;
      }),
    );
    expect(admitted).to.equal(5);
    expect(await admin.keys('w:f3600|shop|ip=*')).to.have.length(1);
  });
});
