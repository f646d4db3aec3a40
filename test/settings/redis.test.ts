import { expect } from 'chai';
import { parseSettings } from '../../src/settings/settings.js';
import { describeRedis, hideCredentials, type RedisSettings } from '../../src/settings/redis.js';

function redis(env: Record<string, string>): RedisSettings {
  const found = parseSettings(env).settings.redis;
  if (found === undefined) throw new Error('no Redis');
  return found;
}

describe('where Redis is', () => {
  for (const [url, node, username, password, db, tls] of [
    ['redis:6380', 'redis:6380', undefined, undefined, 0, false],
    [':6380', '127.0.0.1:6380', undefined, undefined, 0, false],
    ['[::1]:6380', '::1:6380', undefined, undefined, 0, false],
    ['redis://host', 'host:6379', undefined, undefined, 0, false],
    ['redis://host:1/4', 'host:1', undefined, undefined, 4, false],
    ['redis://word@host:1', 'host:1', undefined, 'word', 0, false],
    ['redis://:word@host:1', 'host:1', undefined, 'word', 0, false],
    ['rediss://u:p@host:1/', 'host:1', 'u', 'p', 0, true],
    ['redis://u:a%3Ab%40c%2Fd%25e%23f@host:1/2', 'host:1', 'u', 'a:b@c/d%e#f', 2, false],
    ['redis://us%3Aer:a:b@c/d?e#f@host:1/2', 'host:1', 'us:er', 'a:b@c/d?e#f', 2, false],
    ['redis://u:50%@[::1]:1', '::1:1', 'u', '50%', 0, false],
  ] as const) {
    it(`is read from ${url}`, () => {
      const found = redis({ REDIS_URL: url });
      expect(found.nodes.map((at) => `${at.host}:${at.port}`)).to.deep.equal([node]);
      expect([found.username, found.password, found.db, found.tls !== undefined]).to.deep.equal([
        username,
        password,
        db,
        tls,
      ]);
    });
  }

  it('is a socket for a path', () => {
    expect(redis({ REDIS_URL: '/run/r.sock' }).path).to.equal('/run/r.sock');
    const url = redis({ REDIS_URL: 'unix://u:p@/run/r%20s.sock?db=3' });
    expect([url.path, url.username, url.password, url.db]).to.deep.equal([
      '/run/r s.sock',
      'u',
      'p',
      3,
    ]);
    expect(url.nodes).to.deep.equal([]);
  });

  it('is a master and its sentinels', () => {
    const found = redis({
      REDIS_TYPE: 'Sentinel',
      REDIS_URL: 'mymaster, s1:1,s2',
      REDIS_AUTH: 'a:b:c',
      REDIS_SENTINEL_AUTH: 'word',
    });
    expect(found.masterName).to.equal('mymaster');
    expect(found.nodes).to.deep.equal([
      { host: 's1', port: 1 },
      { host: 's2', port: 26379 },
    ]);
    expect([found.username, found.password]).to.deep.equal(['a', 'b:c']);
    expect([found.sentinelUsername, found.sentinelPassword]).to.deep.equal([undefined, 'word']);
    expect(describeRedis(found)).to.equal('mymaster of sentinels s1:1, s2:26379');
  });

  it('is the first contacts of a cluster', () => {
    const found = redis({ REDIS_TYPE: 'cluster', REDIS_URL: 'a:1,[::1]:2', REDIS_TLS: 'true' });
    expect(describeRedis(found)).to.equal('cluster a:1, [::1]:2 with TLS');
  });

  it('has REDIS_AUTH go before the password in the URL, and says so', () => {
    const { settings, notices } = parseSettings({
      REDIS_URL: 'redis://u:p@a:1',
      REDIS_AUTH: ':x:y',
    });
    expect([settings.redis?.username, settings.redis?.password]).to.deep.equal([undefined, 'x:y']);
    expect(notices.map((notice) => notice.message)).to.deep.equal([
      'REDIS_AUTH goes before the password in REDIS_URL',
    ]);
  });

  it('may be a second one for limits per second', () => {
    const { settings } = parseSettings({
      REDIS_URL: 'a:1',
      REDIS_PERSECOND: 'true',
      REDIS_PERSECOND_URL: 'b:2',
      REDIS_PERSECOND_AUTH: 'q',
    });
    expect(settings.redisPerSecond?.nodes).to.deep.equal([{ host: 'b', port: 2 }]);
    expect(settings.redisPerSecond?.password).to.equal('q');
    expect(settings.redis?.password).to.equal(undefined);
  });

  it('is shown without credentials', () => {
    expect(hideCredentials('redis://u:p@w@host:1')).to.equal('redis://***@host:1');
    expect(hideCredentials('host:1')).to.equal('host:1');
    expect(describeRedis(redis({ REDIS_URL: 'rediss://u:p@host:1/2' }))).to.equal(
      'host:1 database 2 with TLS',
    );
  });
});
