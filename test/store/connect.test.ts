import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Redis } from 'ioredis';
import { toRedisPlace } from '../../src/store/redis-place.js';
import { parseSettings } from '../../src/settings/settings.js';
import { askGate, startBackend, untilDecides } from '../support/ask-gate.js';
import type { TestBackend } from '../support/ask-gate.js';
import { CertificateAuthority } from '../support/certificates.js';
import { freePort, RedisServer } from '../support/redis-server.js';
import { listenArgs, MASTER_NAME, SentinelGroup } from '../support/redis-sentinel.js';
import { charge } from '../support/scripted-store.js';

/** What is written to stderr meanwhile. */
async function stderrOf(act: () => Promise<void>): Promise<string> {
  const { write } = process.stderr;
  let written = '';
  process.stderr.write = (chunk: string | Uint8Array) => {
    written += String(chunk);
    return true;
  };
  try {
    await act();
  } finally {
    process.stderr.write = write;
  }
  return written;
}

const PASSWORD = 'p:a@ss/#%';
const ENCODED = 'p%3Aa%40ss%2F%23%25';

describe('store/connect', function () {
  this.timeout(60_000);
  const started: TestBackend[] = [];
  const servers: RedisServer[] = [];
  const directory = mkdtempSync(join(tmpdir(), 'weir-connect-'));
  let authority: CertificateAuthority;
  let tls: { ca: string; cert: string; key: string };
  let byHost: { ca: string; cert: string; key: string };

  /** As the service does: from the environment to a backend. */
  const connect = (env: Record<string, string>): TestBackend => {
    const { redis } = parseSettings({ REDIS_TIMEOUT: '1s', ...env }).settings;
    if (redis === undefined) throw new Error('no Redis is configured');
    const tested = startBackend(toRedisPlace(redis));
    started.push(tested);
    return tested;
  };
  const decides = async (env: Record<string, string>): Promise<TestBackend> => {
    const tested = connect(env);
    await untilDecides(tested.backend.gate, charge());
    return tested;
  };
  /** What the first failure of a decision is, once there is more to say than "not connected yet". */
  const fails = async (env: Record<string, string>): Promise<[string, string]> => {
    const { backend } = connect(env);
    for (let i = 0; i < 100; i++) {
      const { request } = await askGate(backend.gate, [charge()]);
      if (request.failure === undefined) return ['', 'it decides'];
      const { kind, message } = request.failure;
      if (message !== 'not connected yet') return [kind, message];
      await sleep(50);
    }
    return ['', 'nothing but: not connected yet'];
  };
  const serve = async (...args: string[]): Promise<RedisServer> => {
    const server = await RedisServer.start({ args });
    servers.push(server);
    return server;
  };
  const serveTls = async (files: typeof tls, ...args: string[]): Promise<RedisServer> => {
    const port = await freePort();
    const server = await RedisServer.start({ port, args: [...listenArgs(port, files), ...args] });
    servers.push(server);
    return server;
  };
  const file = (name: string, text: string): string => {
    const path = join(directory, name);
    writeFileSync(path, text);
    return path;
  };

  before(() => {
    authority = new CertificateAuthority();
    const issued = authority.issue('redis', ['IP:127.0.0.1', 'DNS:localhost']);
    tls = { ca: authority.ca, ...issued };
    byHost = { ca: authority.ca, ...authority.issue('elsewhere', ['DNS:redis.example']) };
  });

  afterEach(async () => {
    const lines = started.flatMap(({ logger }) => logger.lines).join('\n');
    expect(lines).to.not.match(/p:a@ss|p%3Aa|sesame|Command|args/);
    await Promise.all(started.splice(0).map(({ backend }) => backend.stop()));
    await Promise.all(servers.splice(0).map((server) => server.stop()));
  });

  after(() => {
    authority.remove();
    rmSync(directory, { recursive: true, force: true });
  });

  it('takes a password with any character from a URL, a variable and a file, over TLS', async () => {
    const { port } = await serveTls(tls, '--requirepass', PASSWORD);
    const address = `127.0.0.1:${port}`;
    const ca = { REDIS_TLS_CACERT: authority.ca };
    await decides({ REDIS_URL: `rediss://:${ENCODED}@${address}`, ...ca });
    await decides({ REDIS_URL: address, REDIS_TLS: 'true', REDIS_AUTH: `:${PASSWORD}`, ...ca });
    const REDIS_AUTH_FILE = file('password', `:${PASSWORD}\n`);
    await decides({ REDIS_URL: address, REDIS_TLS: 'true', REDIS_AUTH_FILE, ...ca });
  });

  it('logs in as an ACL user, and tells a wrong password', async () => {
    const acl = `user weir on >${PASSWORD} ~* +@all\nuser default off\n`;
    const { port } = await serve('--aclfile', file('users.acl', acl));
    await decides({ REDIS_URL: `127.0.0.1:${port}`, REDIS_AUTH: `weir:${PASSWORD}` });
    const REDIS_URL = `redis://weir:sesame@127.0.0.1:${port}`;
    const [kind, message] = await fails({ REDIS_URL });
    expect(kind).to.equal('permission');
    expect(message).to.not.include('sesame');
  });

  it('trusts only the CA it is given, and checks the name unless told not to', async () => {
    const { port } = await serveTls(tls);
    const elsewhere = await serveTls(byHost);
    const REDIS_URL = `rediss://127.0.0.1:${port}`;
    await decides({ REDIS_URL, REDIS_TLS_CACERT: authority.ca });
    expect(await fails({ REDIS_URL })).to.deep.equal(['connection', 'SELF_SIGNED_CERT_IN_CHAIN']);

    const wrongName = { REDIS_URL: `rediss://127.0.0.1:${elsewhere.port}` };
    const REDIS_TLS_CACERT = authority.ca;
    expect(await fails({ ...wrongName, REDIS_TLS_CACERT })).to.deep.equal([
      ...['connection', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ]);
    const skip = { REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: 'true' };
    await decides({ ...wrongName, REDIS_TLS_CACERT, ...skip });
    expect((await fails({ ...wrongName, ...skip }))[0]).to.equal('connection');
  });

  it('shows a client certificate', async () => {
    const { port } = await serveTls(tls, '--tls-auth-clients', 'yes');
    const client = authority.issue('weir', []);
    const env = { REDIS_URL: `rediss://127.0.0.1:${port}`, REDIS_TLS_CACERT: authority.ca };
    await decides({ ...env, REDIS_TLS_CLIENT_CERT: client.cert, REDIS_TLS_CLIENT_KEY: client.key });
    expect((await fails(env))[0]).to.equal('connection');
  });

  it('speaks through a unix socket, and uses the database that the URL names', async () => {
    const path = join(directory, 'redis.sock');
    const { port } = await serve('--unixsocket', path);
    const { backend } = await decides({ REDIS_URL: `unix://${path}?db=3` });
    await askGate(backend.gate, [charge({ key: 'f60|socket' })]);
    const redis = new Redis(port, '127.0.0.1', { db: 3 });
    expect(await redis.exists('f60|socket')).to.equal(1);
    redis.disconnect();
  });

  it('counts nowhere when it cannot have the database that the URL names', async () => {
    const acl = 'user weir on >sesame ~* +@all -select\nuser default on nopass ~* +@all\n';
    const server = await serve('--databases', '4', '--aclfile', file('select.acl', acl));
    const address = `127.0.0.1:${server.port}`;
    expect(await fails({ REDIS_URL: `redis://${address}/9` })).to.deep.equal([
      ...['connection', 'Redis answers: ERR DB index is out of range'],
    ]);
    const [refused] = started;
    expect(refused?.backend.connected).to.equal(false);
    const [kind] = await fails({ REDIS_URL: `redis://weir:sesame@${address}/3` });
    expect(kind).to.equal('permission');

    const admin = new Redis(server.port, '127.0.0.1');
    expect(await admin.dbsize()).to.equal(0);
    await admin.acl('SETUSER', 'weir', '+select');
    const permitted = started[1]?.backend;
    if (permitted !== undefined) await untilDecides(permitted.gate, charge());
    await admin.select(3);
    expect(await admin.dbsize()).to.be.greaterThan(0);
    admin.disconnect();
  });

  it('needs no password that is asked for by nobody, and says so once, in the log alone', async () => {
    const written = await stderrOf(async () => {
      const { port } = await serve();
      const { backend, logger } = await decides({ REDIS_URL: `redis://:sesame@127.0.0.1:${port}` });
      const admin = new Redis(port, '127.0.0.1');
      await admin.call('CLIENT', 'KILL', 'TYPE', 'normal');
      await sleep(100);
      await untilDecides(backend.gate, charge());
      admin.disconnect();
      expect(logger.lines.filter((line) => line.includes('asks for none'))).to.have.length(1);
    });
    expect(written).to.equal('');
  });

  for (const secured of [false, true]) {
    describe(`sentinels${secured ? ' with TLS and a password of their own' : ''}`, () => {
      let group: SentinelGroup;

      before(async () => {
        group = await SentinelGroup.start(
          secured ? { password: PASSWORD, sentinelPassword: 'open sesame', tls } : {},
        );
      });
      after(() => group.stop());

      const env = (): Record<string, string> => ({
        REDIS_TYPE: 'SENTINEL',
        REDIS_URL: [MASTER_NAME, ...group.sentinelPorts.map((port) => `127.0.0.1:${port}`)].join(
          ',',
        ),
        ...(secured && {
          REDIS_TLS: 'true',
          REDIS_TLS_CACERT: authority.ca,
          REDIS_AUTH: `:${PASSWORD}`,
          REDIS_SENTINEL_AUTH: 'open sesame',
        }),
      });

      it('finds the master, and the new one after a failover', async () => {
        const { backend } = await decides(env());
        await group.failOver();
        const promotedMs = performance.now();
        let counted = 0;
        for (let i = 0; counted === 0; i++) {
          const key = `f60|failover|${i}`;
          await askGate(backend.gate, [charge({ key })], 20);
          counted = Number(await group.ask(await group.masterPort(), 'exists', key));
          expect(performance.now() - promotedMs).to.be.lessThan(2000);
          await sleep(10);
        }
      });

      it('writes nothing past the log while a sentinel is away', async () => {
        const gone = await freePort();
        const contacts = env()['REDIS_URL']?.split(',') ?? [];
        const written = await stderrOf(async () => {
          const REDIS_URL = [...contacts, `127.0.0.1:${gone}`].join(',');
          await decides({
            ...env(),
            REDIS_URL,
            ...(!secured && { REDIS_SENTINEL_AUTH: 'sesame' }),
          });
          await sleep(300);
        });
        expect(written).to.equal('');
      });

      if (!secured) {
        it('needs no more permissions of a sentinel than the manual says', async () => {
          const rules = ['+sentinel|get-master-addr-by-name', '+subscribe', '&+switch-master'];
          for (const port of group.sentinelPorts) {
            const user = ['watcher', 'reset', 'resetchannels', 'on', '>sesame'];
            await group.ask(port, 'acl', 'setuser', ...user, ...rules);
          }
          const { backend } = await decides({ ...env(), REDIS_SENTINEL_AUTH: 'watcher:sesame' });
          await sleep(200);
          await group.failOver();
          const master = await group.masterPort();
          let counted = 0;
          for (let i = 0; counted === 0 && i < 200; i++) {
            const key = `f60|permitted|${i}`;
            await askGate(backend.gate, [charge({ key })], 20);
            counted = Number(await group.ask(master, 'exists', key));
            await sleep(10);
          }
          expect(counted).to.equal(1);
        });
      }

      if (secured) {
        it('says so when the password of the sentinels is wrong', async () => {
          const wrong = { ...env(), REDIS_SENTINEL_AUTH: 'sesame' };
          expect(await fails(wrong)).to.deep.equal([
            ...['permission', 'sentinel authentication failed'],
          ]);
        });
      }
    });
  }
});
