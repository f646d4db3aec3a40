import { expect } from 'chai';
import { Redis } from 'ioredis';
import { ALGORITHM_NAMES } from '../../src/model.js';
import { chargeOf, decideAll, decideOne, limitOf } from '../support/limits.js';
import { RedisServer, freePort } from '../support/redis-server.js';
import { stopStores, until, watchRedisStore } from '../support/redis-store.js';
import type { Watched } from '../support/redis-store.js';
import { storeContract } from './contract.js';

const HOUR = { unit: 'year' } as const;

describe('RedisStore', () => {
  let server: RedisServer;
  let admin: Redis;

  before(async () => {
    server = await RedisServer.start();
    admin = new Redis({ host: '127.0.0.1', port: server.port });
  });

  after(async () => {
    admin.disconnect();
    await server.stop();
  });

  afterEach(stopStores);

  async function started(port = server.port): Promise<Watched> {
    const watched = watchRedisStore(port);
    watched.store.start();
    await until(() => watched.store.connected);
    return watched;
  }

  describe('keeps the contract of a store', () => {
    storeContract(async () => (await started()).store);
  });

  it('sends the script again when Redis has lost it, counting once', async () => {
    const { store, ...watched } = await started();
    const charge = chargeOf(limitOf('fixed_window', 100, HOUR), 'noscript', 1);
    for (let i = 0; i < 5; i++) {
      await admin.script('FLUSH');
      const all = await Promise.all([decideAll(store, [[charge]]), decideAll(store, [[charge]])]);
      for (const [request] of all) expect(request?.failure).to.equal(undefined);
    }
    const [outcome] = await decideOne(store, [charge]);
    expect(outcome?.remaining).to.equal(89);
    expect(watched.failures).to.deep.equal([]);
    await store.stop();
  });

  it('tells the observer that the script was sent again', async () => {
    const watched = await started();
    await admin.script('FLUSH');
    await decideOne(watched.store, [chargeOf(limitOf('fixed_window', 1, HOUR), 'reloaded', 1)]);
    expect(watched.reloads).to.equal(1);
    expect(watched.roundtrips).to.equal(1);
    expect(watched.skews).to.have.length(1);
    expect(Math.abs(watched.skews[0] ?? 1)).to.be.below(0.5);
    await watched.store.stop();
  });

  it('touches only keys that it declares', async () => {
    const rules = ['on', '>x', '+evalsha', '+eval', '+@all', '%RW~declared*', '+@connection'];
    await admin.call('ACL', 'SETUSER', 'narrow', ...rules);
    const watched = watchRedisStore(server.port, { username: 'narrow', password: 'x' });
    watched.store.start();
    await until(() => watched.store.connected);
    const charges = ALGORITHM_NAMES.flatMap((algorithm) => {
      const limit = limitOf(algorithm, 3, HOUR);
      const key = `declared|${algorithm}`;
      return [
        chargeOf(limit, key, 1),
        chargeOf(limit, key, 1, { mode: 'record' }),
        chargeOf(limit, key, 1, { mode: 'give_back' }),
      ];
    });
    for (let i = 0; i < 3; i++) await decideOne(watched.store, charges);
    await watched.store.stop();
  });

  for (const algorithm of ALGORITHM_NAMES) {
    it(`replaces what is no counter of ours without failing the batch: ${algorithm}`, async () => {
      const { store } = await started();
      const limit = limitOf(algorithm, 2, HOUR);
      const spoil: Record<string, (key: string) => Promise<unknown>> = {
        text: (key) => admin.set(key, 'garbage'),
        twelve: (key) => admin.set(key, 'x'.repeat(12)),
        twenty: (key) => admin.set(key, Buffer.alloc(20, 0xff)),
        thirty: (key) => admin.set(key, Buffer.alloc(30, 0xff)),
        empty: (key) => admin.set(key, ''),
        list: (key) => admin.rpush(key, 'a', 'b', 'c'),
        longList: (key) => admin.rpush(key, 'a', 'b', 'x'.repeat(21)),
        hash: (key) => admin.hset(key, 'field', 'value'),
        set: (key) => admin.sadd(key, 'member'),
        sorted: (key) => admin.zadd(key, 1, 'member'),
      };
      for (const [name, write] of Object.entries(spoil)) {
        const key = `spoilt|${algorithm}|${name}`;
        await write(key);
        const settled = await decideAll(store, [
          [chargeOf(limit, `${key}|fine`, 1)],
          [chargeOf(limit, key, 1)],
          [chargeOf(limit, key, 1)],
          [chargeOf(limit, key, 1)],
        ]);
        const taken = settled.map((request) => request.outcomes[0]?.taken);
        expect(taken, name).to.deep.equal([true, true, true, false]);
        const [later] = await decideOne(store, [chargeOf(limit, key, 1)]);
        expect(later, name).to.include({ taken: false, remaining: 0 });
        expect(await admin.pttl(key), name).to.be.above(0);
      }
      await store.stop();
    });
  }

  it('keeps what was counted when a read is forbidden: sliding_window', async () => {
    const rules = ['on', '>x', '~*', '+@all', '-lindex'];
    await admin.call('ACL', 'SETUSER', 'blind', ...rules);
    const { store } = await started();
    const charge = chargeOf(limitOf('sliding_window', 3, HOUR), 'unreadable', 2);
    await decideOne(store, [charge]);
    const watched = watchRedisStore(server.port, { username: 'blind', password: 'x' });
    watched.store.start();
    await until(() => watched.store.connected);
    const [refused] = await decideAll(watched.store, [[charge]]);
    expect(refused?.failure?.kind).to.equal('permission');
    expect((await decideOne(store, [charge]))[0]).to.include({ taken: false, remaining: 1 });
    await watched.store.stop();
    await store.stop();
  });

  it('lets its connection be absent at start, and picks Redis up when it comes', async () => {
    const port = await freePort();
    const watched = watchRedisStore(port);
    const charge = chargeOf(limitOf('fixed_window', 2, HOUR), 'late', 1);
    watched.store.start();
    const [request] = await decideAll(watched.store, [[charge]]);
    expect(request?.failure).to.include({ kind: 'connection', code: 'store_error' });
    const late = await RedisServer.start({ port });
    await until(() => watched.store.connected, 2000);
    expect((await decideOne(watched.store, [charge]))[0]).to.include({ remaining: 1 });
    expect(watched.lines.filter((line) => line.startsWith('connected'))).to.have.length(1);
    expect(watched.lines.filter((line) => line.startsWith('no connection'))).to.have.length(1);
    await watched.store.stop();
    await late.stop();
  });

  it('fails what is in flight at once when Redis dies, and comes back within 2 s', async () => {
    const first = await RedisServer.start();
    const watched = await started(first.port);
    const charge = chargeOf(limitOf('fixed_window', 2, HOUR), 'flight', 1);
    await decideOne(watched.store, [charge]);
    first.pause();
    const pending = Promise.all([
      decideAll(watched.store, [[charge], [charge]]),
      decideAll(watched.store, [[charge]]),
    ]);
    await first.stop();
    for (const request of (await pending).flat()) {
      expect(request.failure?.kind).to.equal('connection');
    }
    const second = await RedisServer.start({ port: first.port });
    await until(() => watched.store.connected, 2000);
    // Nothing that was in flight is sent again.
    expect((await decideOne(watched.store, [charge]))[0]).to.include({ remaining: 1 });
    await watched.store.stop();
    await second.stop();
  });

  it('drops a connection that stands still, and fails what is in flight', async () => {
    const still = await RedisServer.start();
    const watched = await started(still.port);
    const charge = chargeOf(limitOf('fixed_window', 5, HOUR), 'still', 1);
    still.pause();
    const pending = decideAll(watched.store, [[charge]]);
    watched.store.reconnect();
    expect((await pending)[0]?.failure?.kind).to.equal('connection');
    still.resume();
    await until(() => watched.store.connected, 2000);
    await watched.store.stop();
    await still.stop();
  });

  it('says permission, and no password, when the login is wrong', async () => {
    const guarded = await RedisServer.start({ args: ['--requirepass', 'open sesame'] });
    const watched = watchRedisStore(guarded.port, { password: 'p:a@ss/#%' });
    watched.store.start();
    await until(() => watched.failures.includes('permission'));
    const charge = chargeOf(limitOf('fixed_window', 5, HOUR), 'guarded', 1);
    const [request] = await decideAll(watched.store, [[charge]]);
    expect(request?.failure?.kind).to.equal('permission');
    expect(JSON.stringify([watched.lines, request?.failure, String(request?.failure?.cause)]))
      .to.not.include('p:a@ss')
      .and.not.include('sesame');
    await watched.store.stop();
    await guarded.stop();
  });

  it('calls a full Redis out of memory, and counts again when there is room', async () => {
    const full = await RedisServer.start();
    const watched = await started(full.port);
    const fullAdmin = new Redis({ host: '127.0.0.1', port: full.port });
    const charge = chargeOf(limitOf('fixed_window', 5, HOUR), 'full', 1);
    await decideOne(watched.store, [charge]);
    await fullAdmin.config('SET', 'maxmemory', '1');
    const [request] = await decideAll(watched.store, [[charge]]);
    expect(request?.failure?.kind).to.equal('oom');
    await fullAdmin.config('SET', 'maxmemory', '0');
    expect((await decideOne(watched.store, [charge]))[0]).to.include({ remaining: 3 });
    fullAdmin.disconnect();
    await watched.store.stop();
    await full.stop();
  });

  it('reconnects when the master it is connected to was demoted', async () => {
    const demoted = await RedisServer.start();
    const watched = await started(demoted.port);
    const demoter = new Redis({ host: '127.0.0.1', port: demoted.port });
    const charge = chargeOf(limitOf('fixed_window', 5, HOUR), 'demoted', 1);
    await decideOne(watched.store, [charge]);
    await demoter.replicaof('127.0.0.1', String(server.port));
    const [request] = await decideAll(watched.store, [[charge]]);
    expect(request?.failure?.kind).to.be.oneOf(['readonly', 'loading']);
    if (request?.failure?.kind === 'readonly') {
      await until(() => !watched.store.connected);
      await until(() => watched.store.connected);
    }
    await demoter.call('REPLICAOF', 'NO', 'ONE');
    await until(async () => {
      const [again] = await decideAll(watched.store, [[charge]]);
      return again?.failure === undefined;
    });
    demoter.disconnect();
    await watched.store.stop();
    await demoted.stop();
  });
});
