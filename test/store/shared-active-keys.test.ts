import { Redis } from 'ioredis';
import { expect } from 'chai';
import { ActiveKeys } from '../../src/metrics/active-keys.js';
import type { KeyCommands } from '../../src/store/backend.js';
import { SharedActiveKeys } from '../../src/store/shared-active-keys.js';
import { RedisServer } from '../support/redis-server.js';

const SLOT = 60_000;

describe('store/shared-active-keys', () => {
  let server: RedisServer;
  let redis: Redis;
  let sent: string[];
  let commands: KeyCommands;

  before(async () => {
    server = await RedisServer.start();
    redis = new Redis(server.port, server.host);
  });

  after(async () => {
    redis.disconnect();
    await server.stop();
  });

  beforeEach(async () => {
    await redis.flushall();
    sent = [];
    commands = {
      command: (name, ...args) => {
        sent.push(name);
        return redis.call(name, ...args);
      },
      evaluate: (script, key, ...args) => {
        sent.push('EVAL');
        return redis.eval(script, 1, key, ...args);
      },
    };
  });

  const settled = async (): Promise<void> => {
    for (let i = 0; i < 200; i++) await redis.ping();
  };

  it('counts the keys of all instances over two slots, each key once', async () => {
    const [first, second] = [1, 2].map(() => new SharedActiveKeys(commands, 'p:'));
    const keysOf = (from: number, to: number): string[] =>
      Array.from({ length: to - from }, (_, i) => `f60|shop|user=${from + i}`);
    first?.add('r', 7, keysOf(0, 3000));
    second?.add('r', 7, keysOf(2000, 4000));
    second?.add('r', 8, keysOf(3500, 5000));
    second?.add('other', 8, ['x']);
    await settled();
    const counts = await first?.count([
      { ruleId: 'r', slots: [7, 8] },
      { ruleId: 'other', slots: [7, 8] },
      { ruleId: 'silent', slots: [7, 8] },
    ]);
    expect(counts?.[0]).to.be.within(4850, 5150);
    expect(counts?.slice(1)).to.deep.equal([1, 0]);
  });

  it('leaves no key without a time to live, and none outside the prefix', async () => {
    new SharedActiveKeys(commands, 'p:').add('r', 7, ['a']);
    await settled();
    expect(await redis.keys('*')).to.deep.equal(['p:active|{r}|7']);
    expect(await redis.ttl('p:active|{r}|7')).to.be.within(170, 180);
  });

  it('makes no key whose life it is not permitted to end', async () => {
    await redis.call('ACL', 'SETUSER', 'short', 'on', 'nopass', '~*', '+@all', '-expire');
    await redis.call('AUTH', 'short', 'any');
    new SharedActiveKeys(commands, '').add('r', 7, ['a']);
    await settled();
    await redis.call('AUTH', 'default', 'any');
    expect(sent).to.deep.equal(['EVAL']);
    expect(await redis.keys('*')).to.deep.equal([]);
  });

  it('drops what waits when Redis fails, and goes on with what comes after', async () => {
    const shared = new SharedActiveKeys(
      { ...commands, evaluate: () => Promise.reject(new Error('down')) },
      '',
    );
    shared.add(
      'r',
      7,
      Array.from({ length: 2000 }, (_, i) => String(i)),
    );
    await settled();
    let asked = 0;
    const healed = new SharedActiveKeys(
      {
        ...commands,
        evaluate: () => (++asked === 1 ? Promise.reject(new Error('down')) : Promise.resolve(1)),
      },
      '',
    );
    healed.add(
      'r',
      7,
      Array.from({ length: 2000 }, (_, i) => String(i)),
    );
    await settled();
    expect(asked).to.equal(1);
    healed.add('r', 7, ['a']);
    await settled();
    expect(asked).to.equal(2);
  });

  it('is fed with what changes an instance, and tells it of the others', async () => {
    const [one, two] = [1, 2].map(() => {
      const keys = new ActiveKeys(() => 100 * SLOT);
      keys.share(new SharedActiveKeys(commands, ''));
      return { keys, rule: keys.track(() => 'r') };
    });
    if (one === undefined || two === undefined) throw new Error('two were made');
    for (let i = 0; i < 300; i++) one.keys.use(one.rule, `a${i}`);
    for (let i = 0; i < 300; i++) two.keys.use(two.rule, `b${i}`);
    one.keys.exchange();
    two.keys.exchange();
    await settled();
    for (let i = 0; i < 15; i++) one.keys.exchange();
    await settled();
    expect(one.keys.count(one.rule)).to.be.within(580, 620);
    const adds = sent.filter((name) => name === 'EVAL').length;
    for (let i = 0; i < 300; i++) one.keys.use(one.rule, `a${i}`);
    one.keys.exchange();
    await settled();
    expect(sent.filter((name) => name === 'EVAL').length).to.equal(adds);
    one.keys.stop();
    two.keys.stop();
  });
});
