import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { SettingsError, parseSettings } from '../../src/settings/settings.js';
import { CHAPTERS, VARIABLES } from '../../src/settings/table.js';

function problems(env: Record<string, string>): readonly string[] {
  try {
    parseSettings(env);
  } catch (error) {
    if (error instanceof SettingsError) return error.problems;
    throw error;
  }
  return [];
}

const notices = (env: Record<string, string>): string[] =>
  parseSettings(env).notices.map((notice) => `${notice.level}: ${notice.message}`);

describe('settings', () => {
  it('are complete when the environment is empty', () => {
    const { settings, notices: said } = parseSettings({});
    expect(said).to.deep.equal([]);
    expect(settings.backend).to.equal('memory');
    expect(settings.redis).to.equal(undefined);
    expect(settings.config.directory).to.equal('/srv/runtime_data/current/config');
    expect(settings.http).to.deep.equal({ host: '0.0.0.0', port: 8080 });
    expect(settings.admin).to.deep.equal({ host: '127.0.0.1', port: 6070, token: undefined });
    expect(settings.limits.stopIncrement).to.equal(undefined);
    expect(settings.grpc.maxConnectionAgeMs).to.equal(86_400_000);
    expect(settings.headers.retryAfter).to.equal('Retry-After');
  });

  it('treat empty as unset, as env files have it', () => {
    const empty = Object.fromEntries(
      Object.entries(VARIABLES)
        .filter(([, variable]) => !variable.mayBeEmpty)
        .map(([name]) => [name, '']),
    );
    expect(parseSettings(empty)).to.deep.equal(parseSettings({}));
  });

  it('take an empty retry-after header and an empty app directory at their word', () => {
    const { settings } = parseSettings({
      LIMIT_RETRY_AFTER_HEADER: '',
      RUNTIME_ROOT: '/data',
      RUNTIME_SUBDIRECTORY: 'ratelimit',
      RUNTIME_APPDIRECTORY: '',
    });
    expect(settings.headers.retryAfter).to.equal(undefined);
    expect(settings.config.directory).to.equal('/data/ratelimit');
  });

  it('accept the environment of an existing deployment without an error', () => {
    const { settings, notices: said } = parseSettings({
      USE_STATSD: 'false',
      LOG_LEVEL: 'WARN',
      LOG_FORMAT: 'json',
      BACKEND_TYPE: 'redis',
      REDIS_SOCKET_TYPE: 'tcp',
      REDIS_TYPE: 'SINGLE',
      REDIS_URL: 'redis:6379',
      REDIS_POOL_SIZE: '10',
      REDIS_TIMEOUT: '10s',
      RUNTIME_ROOT: '/data',
      RUNTIME_SUBDIRECTORY: 'ratelimit',
      RUNTIME_WATCH_ROOT: 'false',
      RUNTIME_IGNOREDOTFILES: 'true',
      STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: 'f',
      PATH: '/bin',
    });
    expect(said.map((notice) => notice.variable)).to.deep.equal(['RUNTIME_IGNOREDOTFILES']);
    expect(settings.redis?.nodes).to.deep.equal([{ host: 'redis', port: 6379 }]);
    expect(settings.redis?.connectTimeoutMs).to.equal(10_000);
    expect(settings.limits.decisionTimeoutMs).to.equal(100);
    expect(settings.limits.stopIncrement).to.equal(false);
    expect(settings.config.directory).to.equal('/data/ratelimit/config');
    expect(settings.log).to.deep.equal({ level: 'warn', format: 'json' });
  });

  it('report everything that is wrong at once, with the choices', () => {
    expect(
      problems({
        LOG_LEVEL: 'loud',
        GRPC_PORT: '70000',
        DECISION_TIMEOUT: '100',
        REDIS_TLS: 'yes',
      }),
    ).to.deep.equal([
      'GRPC_PORT is "70000", which is not a whole number, 0 to 65535',
      'DECISION_TIMEOUT is "100", which is not a duration: it needs a unit, such as 100s or 100ms',
      'REDIS_TLS is "yes", which is not true or false (also 1, t, 0, f)',
      'LOG_LEVEL is "loud", which is not one of panic, fatal, error, warn, warning, info, debug, trace',
    ]);
  });

  for (const [what, env, message] of [
    ['redis without an address', { BACKEND_TYPE: 'redis' }, 'REDIS_URL is not set'],
    ['memcache', { BACKEND_TYPE: 'memcache' }, 'cannot decide atomically'],
    ['an unknown backend', { BACKEND_TYPE: 'etcd' }, 'not one of redis, memory, memcache'],
    ['a negative number', { INSTANCES: '-1' }, 'INSTANCES is "-1"'],
    ['a ratio above 1', { NEAR_LIMIT_RATIO: '80' }, 'a number from 0 to 1'],
    ['TLS without certificate', { GRPC_SERVER_USE_TLS: 'true' }, 'GRPC_SERVER_TLS_CERT'],
    ['an unreadable file', { REDIS_URL: 'a:1', REDIS_AUTH_FILE: '/nowhere/pw' }, 'ENOENT'],
    ['a sentinel without hosts', { REDIS_TYPE: 'sentinel', REDIS_URL: 'm' }, 'then its sentinels'],
    ['a second Redis without address', { REDIS_PERSECOND: '1' }, 'REDIS_PERSECOND_URL is not set'],
    [
      'a cluster with a database',
      { REDIS_TYPE: 'CLUSTER', REDIS_URL: 'redis://a:1/2' },
      'database 0',
    ],
    ['a foreign scheme', { REDIS_URL: 'http://a' }, 'rediss://'],
    ['a map without colon', { CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: 'a' }, 'k1:v1'],
    ['a config type', { CONFIG_TYPE: 'HTTP' }, 'one of FILE, GRPC_XDS_SOTW'],
  ] as const) {
    it(`refuse ${what}`, () => {
      expect(problems(env).join('\n')).to.include(message);
    });
  }

  it('show no secret in an error', () => {
    const said = problems({
      REDIS_URL: 'redis://user:hush,hush@/pw@host:bad',
      CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: 'hush',
    }).join('\n');
    expect(said).to.include('REDIS_URL is "redis://***@host:bad"');
    expect(said).to.not.include('hush');
  });

  it('read credentials from a file, without its line end', () => {
    const directory = mkdtempSync(join(tmpdir(), 'weir-settings-'));
    try {
      const file = join(directory, 'auth');
      writeFileSync(file, 'app:pass:word \n');
      const { settings } = parseSettings({ REDIS_URL: 'a:1', REDIS_AUTH_FILE: file });
      expect(settings.redis?.username).to.equal('app');
      expect(settings.redis?.password).to.equal('pass:word ');
      expect(problems({ REDIS_URL: 'a:1', REDIS_AUTH_FILE: file, REDIS_AUTH: 'x' })).to.deep.equal([
        'REDIS_AUTH_FILE and REDIS_AUTH are both set; set one of them',
      ]);

      const second = { REDIS_URL: 'a:1', REDIS_PERSECOND: 'true', REDIS_PERSECOND_URL: 'b:2' };
      const files = {
        REDIS_PERSECOND_AUTH_FILE: file,
        REDIS_PERSECOND_SENTINEL_AUTH_FILE: file,
      };
      const { redis, redisPerSecond } = parseSettings({ ...second, ...files }).settings;
      expect(redisPerSecond).to.include({ username: 'app', password: 'pass:word ' });
      expect(redisPerSecond).to.include({
        sentinelUsername: 'app',
        sentinelPassword: 'pass:word ',
      });
      expect(redis).to.include({ password: undefined, sentinelPassword: undefined });
      expect(problems({ ...second, ...files, REDIS_PERSECOND_AUTH: 'x' })).to.deep.equal([
        'REDIS_PERSECOND_AUTH_FILE and REDIS_PERSECOND_AUTH are both set; set one of them',
      ]);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it('say what is accepted and ignored only when it asks for something', () => {
    expect(notices({ USE_STATSD: 'false', STATSD_HOST: 'localhost' })).to.deep.equal([]);
    expect(notices({ USE_STATSD: 'true', LOCAL_CACHE_SIZE_IN_BYTES: '1048576' })).to.deep.equal([
      'info: LOCAL_CACHE_SIZE_IN_BYTES is ignored: the deny cache is on by default; its size is DENY_CACHE_ENTRIES',
      'warn: USE_STATSD is ignored: metrics are for Prometheus only, on PORT',
    ]);
    expect(notices({ REDIS_URL: '/run/redis.sock', REDIS_SOCKET_TYPE: 'tcp' })).to.deep.equal([
      'info: REDIS_SOCKET_TYPE is ignored: the form of REDIS_URL, a socket, decides',
    ]);
  });

  it('name the nearest variable for a misspelt one, and leave foreign ones alone', () => {
    expect(notices({ REDIS_URI: 'x', GRPC_PROT: '1', LIMIT_RESET_HEADERS: 'a' })).to.deep.equal([
      'warn: REDIS_URI is not a setting; is REDIS_URL meant?',
      'warn: GRPC_PROT is not a setting; is GRPC_PORT meant?',
      'warn: LIMIT_RESET_HEADERS is not a setting; is LIMIT_RESET_HEADER meant?',
    ]);
    expect(
      notices({ REDIS_PORT: 'tcp://1', REDIS_PORT_6379_TCP: 'x', GRPC_VERBOSITY: 'x' }),
    ).to.deep.equal([]);
  });

  it('read xDS and listen settings', () => {
    const { settings } = parseSettings({
      CONFIG_TYPE: 'grpc_xds_sotw',
      CONFIG_GRPC_XDS_NODE_METADATA: 'a=b,c=d:e',
      CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: 'x-id:a:b',
      USE_PROMETHEUS: 'true',
      PROMETHEUS_ADDR: ':9091',
    });
    expect(settings.config.type).to.equal('GRPC_XDS_SOTW');
    expect(settings.xds.nodeMetadata).to.deep.equal({ a: 'b', c: 'd:e' });
    expect(settings.xds.headers).to.deep.equal({ 'x-id': 'a:b' });
    expect(settings.prometheus).to.deep.equal({ host: '::', port: 9091, path: '/metrics' });
  });

  it('have every variable in exactly one chapter', () => {
    const listed = CHAPTERS.flatMap((chapter) => Object.keys(chapter.variables));
    expect(listed.toSorted()).to.deep.equal(Object.keys(VARIABLES).toSorted());
  });
});
