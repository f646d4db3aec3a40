import { expect } from 'chai';
import type { FailureKind } from '../../src/model.js';
import { backoffMs } from '../../src/store/redis-client.js';
import { FakeRedis } from '../support/fake-redis.js';
import type { Answer } from '../support/fake-redis.js';
import { chargeOf, decideAll, limitOf } from '../support/limits.js';
import { stopStores, until, watchRedisStore } from '../support/redis-store.js';
import type { Watched } from '../support/redis-store.js';

const CHARGE = chargeOf(limitOf('fixed_window', 5), 'key-of-a-user', 1);

describe('RedisStore, when Redis answers oddly', () => {
  let fake: FakeRedis | undefined;

  afterEach(async () => {
    await stopStores();
    await fake?.stop();
  });

  async function connectTo(answer: Answer): Promise<Watched> {
    fake = await FakeRedis.start(answer);
    const watched = watchRedisStore(fake.port);
    watched.store.start();
    await until(() => watched.store.connected);
    return watched;
  }

  const ANSWERS: readonly (readonly [string, string, FailureKind])[] = [
    ['LOADING', '-LOADING Redis is loading the dataset in memory\r\n', 'loading'],
    ['MASTERDOWN', '-MASTERDOWN Link with MASTER is down\r\n', 'loading'],
    ['BUSY', '-BUSY Redis is busy running a script\r\n', 'loading'],
    ['READONLY', "-READONLY You can't write against a read only replica.\r\n", 'readonly'],
    ['OOM', "-OOM command not allowed when used memory > 'maxmemory'.\r\n", 'oom'],
    [
      'OOM within a script, as Redis 6 says it',
      "-ERR Error running script (call to f_abc): @user_script:86: @user_script: 86: -OOM command not allowed when used memory > 'maxmemory'.\r\n",
      'oom',
    ],
    ['NOPERM', "-NOPERM this user has no permissions to run 'evalsha'\r\n", 'permission'],
    ['NOAUTH', '-NOAUTH Authentication required.\r\n', 'permission'],
    ['CLUSTERDOWN', '-CLUSTERDOWN Hash slot not served\r\n', 'cluster'],
    ['TRYAGAIN', '-TRYAGAIN Multiple keys request during rehashing of slot\r\n', 'cluster'],
    ['MOVED', '-MOVED 3999 127.0.0.1:6381\r\n', 'cluster'],
    ['ASK', '-ASK 3999 127.0.0.1:6381\r\n', 'cluster'],
    ['NOSCRIPT for ever', '-NOSCRIPT No matching script. Please use EVAL.\r\n', 'script'],
    ['an error of the script', '-ERR user_script:1: attempt to index a nil value\r\n', 'script'],
    ['an error without words', '-\r\n', 'script'],
    ['nil', '$-1\r\n', 'reply'],
    ['a number', ':1\r\n', 'reply'],
    ['a status', '+OK\r\n', 'reply'],
    ['an empty string', '$0\r\n\r\n', 'reply'],
    ['a string of a wrong length', '$3\r\nabc\r\n', 'reply'],
    ['a list', '*2\r\n:1\r\n:2\r\n', 'reply'],
    ['an empty list', '*0\r\n', 'reply'],
  ];

  for (const [name, bytes, kind] of ANSWERS) {
    it(`calls ${name} ${kind}`, async () => {
      const watched = await connectTo(() => bytes);
      const settled = await decideAll(watched.store, [[CHARGE], [CHARGE]]);
      expect(settled.map((request) => request.failure?.kind)).to.deep.equal([kind, kind]);
      expect(settled[0]?.outcomes).to.deep.equal([undefined]);
      expect(watched.failures[0]).to.equal(kind);
      expect(String(settled[0]?.failure)).to.not.include('key-of-a-user');
    });
  }

  it('fails what is in flight when the other side does not speak RESP', async () => {
    const watched = await connectTo(() => 'HTTP/1.1 400 Bad Request\r\n\r\n');
    const [request] = await decideAll(watched.store, [[CHARGE]]);
    expect(request?.failure?.kind).to.be.oneOf(['reply', 'connection']);
  });

  it('fails what is in flight when the reply is cut off', async () => {
    const watched = await connectTo((_, socket) => {
      socket.end('$41\r\nabc', 'latin1');
      return undefined;
    });
    const [request] = await decideAll(watched.store, [[CHARGE]]);
    expect(request?.failure?.kind).to.equal('connection');
  });

  it('sends nothing twice when the reply is lost', async () => {
    const watched = await connectTo((_, socket) => {
      socket.destroy();
      return undefined;
    });
    await decideAll(watched.store, [[CHARGE], [CHARGE]]);
    await until(() => (fake?.connections ?? 0) > 1 && watched.store.connected);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(fake?.commands.filter(([name]) => name?.toUpperCase() === 'EVALSHA')).to.have.length(1);
  });

  it('queues nothing while there is no connection', async () => {
    const watched = await connectTo(() => undefined);
    watched.store.reconnect();
    await until(() => !watched.store.connected);
    for (let i = 0; i < 100; i++) await decideAll(watched.store, [[CHARGE]]);
    await until(() => watched.store.connected);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(fake?.commands).to.have.length(0);
  });

  it('logs a repeated failure once', async () => {
    const watched = await connectTo(() => '-LOADING Redis is loading the dataset in memory\r\n');
    for (let i = 0; i < 20; i++) await decideAll(watched.store, [[CHARGE]]);
    expect(watched.failures).to.have.length(20);
    expect(watched.lines.filter((line) => line.includes('loading'))).to.have.length(1);
  });

  it('fails what is in flight when it is stopped, and everything after', async () => {
    const watched = await connectTo(() => undefined);
    const pending = decideAll(watched.store, [[CHARGE]]);
    await watched.store.stop();
    expect((await pending)[0]?.failure?.kind).to.equal('connection');
    expect((await decideAll(watched.store, [[CHARGE]]))[0]?.failure?.kind).to.equal('connection');
  });

  it('tries again ever more slowly, below twice a second after 5 s', () => {
    const delays = Array.from({ length: 12 }, (_, attempt) => backoffMs(attempt, 0));
    expect(delays).to.deep.equal([
      50,
      100,
      200,
      400,
      800,
      ...Array.from({ length: 7 }, () => 1000),
    ]);
    expect(backoffMs(50, 0.999)).to.equal(750);
  });
});
