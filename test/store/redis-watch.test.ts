import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Redis } from 'ioredis';
import { findMissingCommands, neededCommands, RedisWatch } from '../../src/store/redis-watch.js';
import { askGate, startBackend, untilDecides } from '../support/ask-gate.js';
import type { TestBackend } from '../support/ask-gate.js';
import { RedisServer } from '../support/redis-server.js';
import { charge, limit } from '../support/scripted-store.js';
import { ALGORITHM_NAMES } from '../../src/model.js';

/** What follows the password in the operations manual's line. */
const ACL = (
  /^ACL SETUSER weir on >PASSWORD (.*)$/m.exec(readFileSync('docs/operations.md', 'utf8'))?.[1] ??
  ''
).split(' ');

describe('store/redis-watch', function () {
  this.timeout(20_000);
  let server: RedisServer;
  let admin: Redis;
  let tested: TestBackend | undefined;

  const as = async (username: string, ...rules: string[]): Promise<TestBackend> => {
    await admin.acl('SETUSER', username, 'reset', 'on', '>secret', ...rules);
    const { host, port } = server;
    const login = { username, password: 'secret' };
    const connection = { host, port, ...login, connectTimeoutMs: 1000 };
    const started = startBackend({ type: 'server', connection }, 'weir:');
    tested = started;
    for (let i = 0; i < 100 && !started.backend.connected; i++) await sleep(10);
    return started;
  };

  before(async () => {
    server = await RedisServer.start();
    admin = new Redis(server.port, server.host);
  });

  afterEach(() => tested?.backend.stop());

  after(async () => {
    admin.disconnect();
    await server.stop();
  });

  it('names the commands that decisions need', () => {
    expect(neededCommands()).to.deep.equal([
      ...['EVAL', 'EVALSHA', 'LINDEX', 'LLEN', 'LREM', 'LSET', 'LTRIM', 'MGET', 'PEXPIRE', 'RPUSH'],
      ...['SET', 'SETRANGE', 'TIME', 'UNLINK'],
    ]);
  });

  it('finds nothing missing for a user with these alone, and every algorithm works for it', async () => {
    const { backend } = await as('enough', ...ACL);
    for (const algorithm of ALGORITHM_NAMES) {
      const rule = limit({ algorithm, requests: 5, burst: 5, precisionUs: 1_000_000 });
      const counter = charge({ key: `weir:${algorithm}`, limit: rule });
      for (let i = 0; i < 8; i++) {
        const { request } = await askGate(backend.gate, [counter]);
        expect(request.failure).to.equal(undefined);
      }
      const back = charge({ ...counter, hits: 2, mode: 'give_back' });
      const { request } = await askGate(backend.gate, [back]);
      expect(request.outcomes[0]?.remaining).to.equal(2);
    }
    expect(await findMissingCommands(backend, 'weir:')).to.deep.equal([]);
    expect(await admin.keys('*trial*')).to.deep.equal([]);
  });

  for (const name of neededCommands()) {
    it(`finds that ${name} is missing`, async () => {
      const { backend } = await as('lacking', ...ACL, `-${name.toLowerCase()}`);
      expect(await findMissingCommands(backend, 'weir:')).to.include(name);
    });
  }

  it('finds that the keys are not those of the user, and says so once in the log', async () => {
    const { backend, logger, observer } = await as('elsewhere', ...ACL, 'resetkeys', '~other:*');
    expect(await findMissingCommands(backend, 'weir:')).to.include('~*');
    const watch = new RedisWatch({ backend, name: 'main', keyPrefix: 'weir:', observer, logger });
    watch.start();
    await sleep(300);
    watch.stop();
    const lines = logger.lines.filter((line) => line.includes('does not permit'));
    expect(lines).to.have.length(1);
    expect(lines[0]).to.include('grant access to keys on ~weir:*');
    expect(lines.join('')).to.not.include('secret');
  });

  it('tells a refused command and a refused key from other failures of the script', async () => {
    for (const rules of [['-mget'], ['resetkeys', '~other:*'], ['-evalsha'], ['-time']]) {
      const { backend } = await as('partly', ...ACL, ...rules);
      const { request } = await askGate(backend.gate, [charge({ key: 'weir:x' })]);
      expect(request.failure?.kind).to.equal('permission');
      await backend.stop();
    }
  });

  it('warns of a policy that may evict counters, and counts what was evicted', async () => {
    await admin.config('SET', 'maxmemory', '3mb', 'maxmemory-policy', 'allkeys-lru');
    const { backend, logger, observer } = await as('whole', '~*', '+@all');
    const watch = new RedisWatch({ backend, name: 'main', keyPrefix: '', observer, logger });
    watch.start();
    await untilDecides(backend.gate, charge());
    await sleep(200);
    watch.stop();
    expect(observer.evictions).to.deep.equal([[true, 0]]);
    expect(logger.lines.filter((line) => line.includes('maxmemory-policy'))).to.have.length(1);
    for (let i = 0; i < 20; i++) await admin.set(`fill:${i}`, 'x'.repeat(200_000), 'PX', 60_000);
    const again = new RedisWatch({ backend, name: 'main', keyPrefix: '', observer, logger });
    again.start();
    await sleep(200);
    again.stop();
    expect(observer.evictions[1]?.[1]).to.be.greaterThan(0);
    await admin.config('SET', 'maxmemory', '0', 'maxmemory-policy', 'noeviction');
  });
});
