import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ServerCredentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import { loadConfig } from '../../src/config/load.js';
import { readResources } from '../../src/config/xds-resource.js';
import { loadXdsWire } from '../../src/config/xds-wire.js';
import { XdsConfigSource } from '../../src/config/xds.js';
import type { Logger, Snapshot } from '../../src/model.js';
import type { XdsSettings } from '../../src/settings/settings.js';
import { pack, TYPE_URL, XdsTestServer } from '../support/xds-server.js';

const USERS = {
  name: 'users',
  domain: 'users',
  descriptors: [{ key: 'user', rate_limit: { unit: 'MINUTE', requests_per_unit: 5 } }],
};
const SHOP = {
  name: 'shop',
  domain: 'shop',
  descriptors: [{ key: 'till', value: '1', rate_limit: { unit: 'WEEK', requests_per_unit: 7 } }],
};
const WITHOUT_UNIT = {
  name: 'shop',
  domain: 'shop',
  descriptors: [{ key: 'till', rate_limit: { requests_per_unit: 7 } }],
};

const THREAD = new URL('../support/reading-thread.mjs', import.meta.url);

/** A configuration that is too large to be loaded at once. */
function largeOf(domain: string, rules = 400) {
  const descriptors = Array.from({ length: rules }, (_, index) => ({
    key: 'endpoint',
    value: `/path/${index}`,
    rate_limit: { unit: 'MINUTE', requests_per_unit: index + 1 },
  }));
  return { name: domain, domain, descriptors };
}

/** A source with what it reported, in order. */
class Harness {
  readonly events: string[] = [];
  readonly logged: string[] = [];
  readonly source: XdsConfigSource;
  private wake: (() => void) | undefined;
  private began = 0;

  constructor(settings: Partial<XdsSettings> & { server: string }, thread: URL) {
    const log = (_fields: object, message: string): void => {
      this.logged.push(`${message} ${JSON.stringify(_fields)}`);
    };
    const logger: Logger = { debug: log, info: log, warn: log, error: log };
    this.source = new XdsConfigSource({
      settings: {
        nodeId: 'default',
        nodeMetadata: {},
        headers: {},
        tls: undefined,
        backoffInitialMs: 20,
        backoffMaxMs: 80,
        maxMessageBytes: undefined,
        ...settings,
      },
      load: { mergeDomains: false, defaultOnStoreError: 'allow' },
      now: () => {
        this.began++;
        this.wake?.();
        return 1_700_000_000_000;
      },
      thread,
      onLoaded: ({ generation, domains }) => {
        this.note(`loaded ${generation}: ${[...domains].join(' ')}`);
      },
      onRejected: ({ problems }) => {
        this.note(`rejected: ${problems.length}`);
      },
      logger,
    });
  }

  /** Resolves when so many events have been reported. */
  async reported(count: number): Promise<void> {
    await this.until(() => this.events.length >= count);
  }

  /** Resolves when it has begun to load so many answers. */
  async hasBegun(count: number): Promise<void> {
    await this.until(() => this.began >= count);
  }

  private async until(claim: () => boolean): Promise<void> {
    while (!claim()) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }

  private note(event: string): void {
    this.events.push(event);
    this.wake?.();
  }
}

describe('configuration from an xDS server', () => {
  const ends: (() => unknown)[] = [];

  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });

  async function startServer(options?: Parameters<typeof XdsTestServer.start>[0]) {
    const server = await XdsTestServer.start(options);
    ends.push(() => {
      server.stop();
    });
    return server;
  }

  async function startSource(
    server: string,
    settings: Partial<XdsSettings> = {},
    thread = THREAD,
  ): Promise<Harness> {
    const harness = new Harness({ server, ...settings }, thread);
    ends.push(() => harness.source.stop());
    await harness.source.start();
    return harness;
  }

  async function startBoth(settings: Partial<XdsSettings> = {}) {
    const server = await startServer();
    const harness = await startSource(`127.0.0.1:${server.port}`, settings);
    const subscription = await server.request();
    return { server, harness, subscription };
  }

  it('subscribes to all rules, naming its node and sending the headers', async () => {
    const { subscription } = await startBoth({
      nodeId: 'edge-7',
      nodeMetadata: { zone: 'b' },
      headers: { authorization: 'Bearer x', 'Trace-Bin': 'ab' },
    });
    expect(subscription.type_url).to.equal(TYPE_URL);
    expect(subscription.resource_names).to.deep.equal([]);
    expect(subscription.version_info).to.equal('');
    expect(subscription.response_nonce).to.equal('');
    expect(subscription.error_detail).to.equal(null);
    expect(subscription.node.id).to.equal('edge-7');
    expect(subscription.node.metadata.fields).to.deep.equal({ zone: { stringValue: 'b' } });
    expect(subscription.headers).to.include({ authorization: 'Bearer x' });
    expect(subscription.headers['trace-bin']).to.deep.equal(Buffer.from('ab'));
  });

  it('puts the rules into force and accepts their version', async () => {
    const { server, harness } = await startBoth();
    expect(harness.source.current()).to.equal(undefined);
    const nonce = server.send('v1', [pack(USERS), pack(SHOP)]);
    const answer = await server.request();
    expect(answer).to.include({ version_info: 'v1', response_nonce: nonce, error_detail: null });
    expect(harness.events).to.deep.equal(['loaded 1: shop users']);
    const rule = harness.source.current()?.match('shop', [{ key: 'till', value: '1' }]);
    expect(rule?.limits[0]).to.include({ requests: 7, unit: 'week', windowUs: 604_800_000_000 });
    expect(harness.source.current()?.files).to.deep.equal(['xds:shop', 'xds:users']);
  });

  it('takes each answer as the whole: what it leaves out is gone', async () => {
    const { server, harness } = await startBoth();
    server.send('1', [pack(USERS), pack(SHOP)]);
    await server.request();
    server.send('2', [pack(SHOP)]);
    expect((await server.request()).version_info).to.equal('2');
    server.send('3', []);
    expect((await server.request()).version_info).to.equal('3');
    expect(harness.events).to.deep.equal(['loaded 1: shop users', 'loaded 2: shop', 'loaded 3: ']);
  });

  it('refuses bad rules with every problem, keeps the last good ones, and takes the next', async () => {
    const { server, harness } = await startBoth();
    server.send('1', [pack(USERS)]);
    await server.request();
    const nonce = server.send('2', [pack(WITHOUT_UNIT), pack({ name: 'none' })]);
    const refusal = await server.request();
    expect(refusal).to.include({ version_info: '1', response_nonce: nonce });
    expect(refusal.error_detail?.code).to.equal(3);
    expect(refusal.error_detail?.message.split('\n')).to.deep.equal([
      'xds:none:1:1: the domain is missing or empty: the file needs a `domain`',
      'xds:shop:5:7 shop.till.rate_limit: needs a `unit`: one of second, minute, hour, day, week, month, year',
    ]);
    expect(harness.source.lastProblems).to.have.length(2);
    expect([...(harness.source.current()?.domains ?? [])]).to.deep.equal(['users']);

    server.send('3', [pack(SHOP)]);
    expect(await server.request()).to.include({ version_info: '3', error_detail: null });
    expect(harness.source.lastProblems).to.deep.equal([]);
    expect(harness.events).to.deep.equal(['loaded 1: users', 'rejected: 2', 'loaded 2: shop']);
  });

  it('refuses the first rules when they are bad, and heals', async () => {
    const { server, harness } = await startBoth();
    server.send('1', [pack(WITHOUT_UNIT)]);
    expect(await server.request()).to.include({ version_info: '' });
    expect(harness.source.current()).to.equal(undefined);
    server.send('2', [pack(SHOP)]);
    expect(await server.request()).to.include({ version_info: '2' });
    expect(harness.events).to.deep.equal(['rejected: 1', 'loaded 1: shop']);
  });

  it('is back in force with the same snapshot when the server takes a bad change back', async () => {
    const { server, harness } = await startBoth();
    server.send('1', [pack(USERS)]);
    await server.request();
    const before = harness.source.current();
    server.send('2', [pack(WITHOUT_UNIT)]);
    await server.request();
    server.send('3', [pack(USERS)]);
    expect(await server.request()).to.include({ version_info: '3', error_detail: null });
    expect(harness.source.current()).to.equal(before);
    expect(harness.source.lastProblems).to.deep.equal([]);
    expect(harness.events).to.deep.equal(['loaded 1: users', 'rejected: 1', 'loaded 1: users']);
  });

  it('accepts the same rules under a new version, or in another order, without loading them again', async () => {
    const { server, harness } = await startBoth();
    server.send('1', [pack(USERS), pack(SHOP)]);
    await server.request();
    server.send('2', [pack(SHOP), pack(USERS)]);
    expect(await server.request()).to.include({ version_info: '2', error_detail: null });
    expect(harness.events).to.deep.equal(['loaded 1: shop users']);
  });

  it('does not spin with a server that answers a refusal with the same rules', async () => {
    const { server, harness } = await startBoth();
    server.onRequest = () => {
      server.send('1', [pack(WITHOUT_UNIT)]);
    };
    server.send('1', [pack(WITHOUT_UNIT)]);
    await server.request();
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(server.requests).to.have.length(2);
    expect(harness.events).to.deep.equal(['rejected: 1']);
    server.onRequest = undefined;
    const nonce = server.send('2', [pack(SHOP)]);
    expect(await server.request()).to.include({ version_info: '2', response_nonce: nonce });
  });

  it('refuses what it cannot decode, by the place in the answer', async () => {
    const { server } = await startBoth();
    server.send('1', [
      pack(USERS),
      { type_url: TYPE_URL, value: Buffer.from([0x1a, 0x7f, 0x0a]) },
      { type_url: 'type.googleapis.com/envoy.config.cluster.v3.Cluster', value: Buffer.alloc(0) },
    ]);
    const lines = (await server.request()).error_detail?.message.split('\n');
    expect(lines?.[0]).to.match(/^xds:#2:1:1: cannot be decoded as .*RateLimitConfig: /);
    expect(lines?.[1]).to.equal(
      'xds:#3:1:1: has the type envoy.config.cluster.v3.Cluster, which is not ratelimit.config.ratelimit.v3.RateLimitConfig',
    );
  });

  it('passes over an answer of another type without a word', async () => {
    const { server, harness } = await startBoth();
    server.send('9', [], 'type.googleapis.com/envoy.config.cluster.v3.Cluster');
    server.send('1', [pack(USERS)]);
    expect(await server.request()).to.include({ version_info: '1', type_url: TYPE_URL });
    expect(harness.events).to.deep.equal(['loaded 1: users']);
  });

  it('names at most 20 problems and counts the rest', async () => {
    const { server } = await startBoth();
    const nameless = Array.from({ length: 50 }, (_, index) => pack({ name: `c${index}` }));
    server.send('1', nameless);
    const lines = (await server.request()).error_detail?.message.split('\n');
    expect(lines).to.have.length(21);
    expect(lines?.[20]).to.equal('and 30 more');
  });

  it('waits for a server that is not there yet', async () => {
    const port = await freePort();
    const harness = await startSource(`127.0.0.1:${port}`);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(harness.source.connectionFailure).to.match(/^UNAVAILABLE: /);
    const server = await startServer({ port });
    await server.request();
    server.send('1', [pack(USERS)]);
    await harness.reported(1);
    expect(harness.source.connectionFailure).to.equal(undefined);
    expect(harness.events).to.deep.equal(['loaded 1: users']);
  });

  it('keeps its rules while the server is away, and asks the next one for everything', async () => {
    const { server, harness } = await startBoth();
    server.send('41', [pack(USERS)]);
    await server.request();
    server.stop();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect([...(harness.source.current()?.domains ?? [])]).to.deep.equal(['users']);

    const next = await startServer({ port: server.port });
    // Were the old version named here, a server that counts from 1 again might keep silent.
    expect(await next.request()).to.include({ version_info: '', response_nonce: '' });
    const nonce = next.send('1', [pack(SHOP)]);
    expect(await next.request()).to.include({ version_info: '1', response_nonce: nonce });
    expect(harness.events).to.deep.equal(['loaded 1: users', 'loaded 2: shop']);
  });

  it('comes back when the server ends the stream', async () => {
    const { server, harness } = await startBoth();
    server.send('1', [pack(USERS)]);
    await server.request();
    server.endStreams();
    expect(await server.request()).to.include({ version_info: '', response_nonce: '' });
    server.send('1', [pack(USERS)]);
    expect(await server.request()).to.include({ version_info: '1', error_detail: null });
    expect(harness.events).to.deep.equal(['loaded 1: users']);
  });

  it('takes an answer up to the largest message, and says which setting is too small', async () => {
    const many = {
      name: 'many',
      domain: 'many',
      descriptors: Array.from({ length: 2000 }, (_, index) => ({
        key: 'user',
        value: `u${index}`.padEnd(100, 'x'),
        rate_limit: { unit: 'SECOND', requests_per_unit: index },
      })),
    };
    const { server, harness } = await startBoth({ maxMessageBytes: 1_000_000 });
    server.send('1', [pack(many)]);
    await server.request();
    expect(harness.source.current()?.rules).to.have.length(2000);

    const small = await startBoth({ maxMessageBytes: 10_000 });
    small.server.send('1', [pack(many)]);
    await small.server.request();
    expect(small.harness.events).to.deep.equal([]);
    expect(small.harness.logged.join('\n')).to.match(
      /RESOURCE_EXHAUSTED: .*XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES/,
    );
  });

  describe('that is large', () => {
    it('is in force once it has been read aside, and what comes after it too', async () => {
      const { server, harness } = await startBoth();
      const first = server.send('1', [pack(largeOf('one')), pack(USERS)]);
      await harness.hasBegun(1);
      expect(harness.source.current()).to.equal(undefined);
      expect(await server.request()).to.include({ version_info: '1', response_nonce: first });
      const entries = [{ key: 'endpoint', value: '/path/399' }];
      expect(harness.source.current()?.match('one', entries)?.limits[0]?.requests).to.equal(400);
      const second = server.send('2', [pack(largeOf('two'))]);
      expect(await server.request()).to.include({ version_info: '2', response_nonce: second });
      expect(harness.source.current()?.files).to.deep.equal(['xds:two']);
      expect(harness.events).to.deep.equal(['loaded 1: one users', 'loaded 2: two']);
    });

    it('holds nothing up: no turn takes as long as a tenth of the loading', async () => {
      const { server, harness } = await startBoth();
      const resources = [pack(largeOf('one', 10_000))];
      server.send('1', [pack(largeOf('warm'))]);
      await harness.reported(1);
      let longestMs = 0;
      let lastMs = performance.now();
      const watch = setInterval(() => {
        longestMs = Math.max(longestMs, performance.now() - lastMs);
        lastMs = performance.now();
      }, 1);
      server.send('2', resources);
      await harness.reported(2);
      clearInterval(watch);
      const startMs = performance.now();
      const { files } = readResources(loadXdsWire(), resources);
      loadConfig(files, {
        mergeDomains: false,
        defaultOnStoreError: 'allow',
        generation: 1,
        nowMs: 0,
      });
      expect(longestMs).to.be.lessThan((performance.now() - startMs) / 10);
    }).timeout(20_000);

    it('gives way to a newer one, of which alone the server hears', async () => {
      const { server, harness } = await startBoth();
      server.send('1', [pack(largeOf('one'))]);
      server.send('2', [pack(largeOf('two'))]);
      const nonce = server.send('3', [pack(largeOf('three'))]);
      expect(await server.request()).to.include({ version_info: '3', response_nonce: nonce });
      await harness.source.stop();
      expect(harness.events).to.deep.equal(['loaded 1: three']);
      expect(server.requests).to.have.length(2);
    });

    it('gives way to a small one that comes while it is read', async () => {
      const { server, harness } = await startBoth();
      server.send('1', [pack(largeOf('one'))]);
      await harness.hasBegun(1);
      const nonce = server.send('2', [pack(USERS)]);
      expect(await server.request()).to.include({ version_info: '2', response_nonce: nonce });
      server.send('3', [pack(largeOf('three'))]);
      expect(await server.request()).to.include({ version_info: '3' });
      expect(harness.events).to.deep.equal(['loaded 1: users', 'loaded 2: three']);
    });

    it('gives way to what is in force, when the server is back to that', async () => {
      const { server, harness } = await startBoth();
      server.send('1', [pack(largeOf('one'))]);
      await server.request();
      server.send('2', [pack(largeOf('two'))]);
      await harness.hasBegun(2);
      const nonce = server.send('3', [pack(largeOf('one'))]);
      expect(await server.request()).to.include({ version_info: '3', response_nonce: nonce });
      await harness.source.stop();
      expect(harness.events).to.deep.equal(['loaded 1: one']);
    });

    it('does not give way to an answer of another type', async () => {
      const { server, harness } = await startBoth();
      const nonce = server.send('1', [pack(largeOf('one'))]);
      await harness.hasBegun(1);
      server.send('9', [], 'type.googleapis.com/envoy.config.cluster.v3.Cluster');
      expect(await server.request()).to.include({ version_info: '1', response_nonce: nonce });
      expect(harness.events).to.deep.equal(['loaded 1: one']);
    });

    it('is refused with every problem, and held back when it comes again', async () => {
      const { server, harness } = await startBoth();
      server.send('1', [pack(USERS)]);
      await server.request();
      const bad = [
        pack(largeOf('one')),
        pack(WITHOUT_UNIT),
        { type_url: 'x/y', value: Buffer.of() },
      ];
      const nonce = server.send('2', bad);
      const refusal = await server.request();
      expect(refusal).to.include({ version_info: '1', response_nonce: nonce });
      expect(refusal.error_detail?.message.split('\n')).to.deep.equal([
        'xds:#3:1:1: has the type y, which is not ratelimit.config.ratelimit.v3.RateLimitConfig',
        'xds:shop:5:7 shop.till.rate_limit: needs a `unit`: one of second, minute, hour, day, week, month, year',
      ]);
      const sentMs = performance.now();
      const again = server.send('2', bad);
      const repeated = await server.request();
      expect(repeated).to.include({ response_nonce: again });
      expect(repeated.error_detail).to.deep.equal(refusal.error_detail);
      expect(performance.now() - sentMs).to.be.greaterThan(990);
      expect(harness.events).to.deep.equal(['loaded 1: users', 'rejected: 2']);
    });

    it('is accepted under a new version, or in another order, without being loaded again', async () => {
      const { server, harness } = await startBoth();
      server.send('1', [pack(largeOf('one')), pack(SHOP)]);
      await server.request();
      const before = harness.source.current();
      server.send('2', [pack(SHOP), pack(largeOf('one'))]);
      expect(await server.request()).to.include({ version_info: '2', error_detail: null });
      expect(harness.source.current()).to.equal(before);
      expect(harness.events).to.deep.equal(['loaded 1: one shop']);
    });

    it('comes into force when the stream is lost meanwhile, and the next stream hears nothing of it', async () => {
      const { server, harness } = await startBoth();
      server.send('1', [pack(largeOf('one'))]);
      await harness.hasBegun(1);
      server.endStreams();
      expect(await server.request()).to.include({ version_info: '', response_nonce: '' });
      await harness.reported(1);
      const nonce = server.send('7', [pack(largeOf('one'))]);
      expect(await server.request()).to.include({ version_info: '7', response_nonce: nonce });
      expect(server.requests).to.have.length(3);
      expect(harness.events).to.deep.equal(['loaded 1: one']);
    });

    it('gives way to what the next stream brings', async () => {
      const { server, harness } = await startBoth();
      server.send('1', [pack(largeOf('one', 10_000))]);
      await harness.hasBegun(1);
      server.endStreams();
      await server.request();
      const nonce = server.send('1', [pack(SHOP)]);
      expect(await server.request()).to.include({ version_info: '1', response_nonce: nonce });
      await harness.source.stop();
      expect(harness.events).to.deep.equal(['loaded 1: shop']);
      expect(server.requests).to.have.length(3);
    });

    it('is dropped when the source is stopped meanwhile', async () => {
      const { server, harness } = await startBoth();
      server.send('1', [pack(largeOf('one'))]);
      server.send('2', [pack(largeOf('two'))]);
      await harness.hasBegun(2);
      await harness.source.stop();
      expect(harness.source.current()).to.equal(undefined);
      expect(harness.source.lastProblems).to.deep.equal([]);
      expect(harness.logged.join('\n')).not.to.contain('could not');
      expect(server.requests).to.have.length(1);
    });

    it('is loaded at once where no thread can be had', async () => {
      const server = await startServer();
      const nowhere = new URL('nowhere.mjs', THREAD);
      const harness = await startSource(`127.0.0.1:${server.port}`, {}, nowhere);
      await server.request();
      const nonce = server.send('1', [pack(largeOf('one'))]);
      expect(await server.request()).to.include({ version_info: '1', response_nonce: nonce });
      expect(harness.events).to.deep.equal(['loaded 1: one']);
    });
  });

  it('says nothing more once it is stopped', async () => {
    const { server, harness } = await startBoth();
    await harness.source.stop();
    server.send('1', [pack(USERS)]);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(server.requests).to.have.length(1);
    expect(harness.events).to.deep.equal([]);
  });

  it('outlives a user of the configuration that throws', async () => {
    const server = await startServer();
    const taken: Snapshot[] = [];
    const source = new XdsConfigSource({
      settings: {
        nodeId: 'default',
        nodeMetadata: {},
        headers: {},
        tls: undefined,
        server: `127.0.0.1:${server.port}`,
        backoffInitialMs: 20,
        backoffMaxMs: 20,
        maxMessageBytes: undefined,
      },
      load: { mergeDomains: false, defaultOnStoreError: 'allow' },
      now: () => 0,
      onLoaded: (snapshot) => {
        taken.push(snapshot);
        throw new Error('a user of the configuration');
      },
      onRejected: () => {
        throw new Error('a user of the configuration');
      },
      logger: { debug: quiet, info: quiet, warn: quiet, error: quiet },
    });
    ends.push(() => source.stop());
    await source.start();
    await server.request();
    server.send('1', [pack(USERS)]);
    expect(await server.request()).to.include({ version_info: '1' });
    server.send('2', [pack(WITHOUT_UNIT)]);
    expect((await server.request()).error_detail).not.to.equal(null);
    expect(taken).to.have.length(1);
  });

  it('goes on trying when a header or a certificate file is no good', async () => {
    const header = await startSource('127.0.0.1:1', { headers: { 'no header': 'x' } });
    expect(header.source.connectionFailure).to.contain('no header');
    const file = await startSource('127.0.0.1:1', {
      tls: {
        caFile: '/nowhere/ca.pem',
        certFile: undefined,
        keyFile: undefined,
        serverName: undefined,
      },
    });
    expect(file.source.connectionFailure).to.contain('/nowhere/ca.pem');
  });

  describe('over TLS', () => {
    let directory: string;

    before(() => {
      directory = mkdtempSync(join(tmpdir(), 'weir-xds-'));
      makeCertificates(directory);
    });

    after(() => {
      rmSync(directory, { recursive: true });
    });

    function file(name: string): string {
      return join(directory, name);
    }

    async function startTlsServer(): Promise<XdsTestServer> {
      const pair = {
        private_key: readFileSync(file('server.key')),
        cert_chain: readFileSync(file('server.pem')),
      };
      const ca = readFileSync(file('ca.pem'));
      return startServer({ credentials: ServerCredentials.createSsl(ca, [pair], true) });
    }

    it('shows its certificate and checks the name that it is told to expect', async () => {
      const server = await startTlsServer();
      const harness = await startSource(`127.0.0.1:${server.port}`, {
        tls: {
          caFile: file('ca.pem'),
          certFile: file('client.pem'),
          keyFile: file('client.key'),
          serverName: 'xds.example',
        },
      });
      await server.request();
      server.send('1', [pack(USERS)]);
      await harness.reported(1);
      expect(harness.events).to.deep.equal(['loaded 1: users']);
    });

    it('does not talk to a server of another name', async () => {
      const server = await startTlsServer();
      const harness = await startSource(`127.0.0.1:${server.port}`, {
        tls: {
          caFile: file('ca.pem'),
          certFile: file('client.pem'),
          keyFile: file('client.key'),
          serverName: 'other.example',
        },
      });
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect(harness.source.connectionFailure).to.match(/other\.example/);
      expect(server.requests).to.deep.equal([]);
    });
  });
});

function quiet(): void {
  // Nobody reads it.
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A CA, and one certificate for each side. */
function makeCertificates(directory: string): void {
  const openssl = (...args: string[]): void => {
    execFileSync('openssl', args, { cwd: directory, stdio: 'pipe' });
  };
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  openssl('req', '-x509', ...key, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=ca');
  for (const [name, host] of [
    ['server', 'xds.example'],
    ['client', 'weir.example'],
  ] as const) {
    const san = ['-addext', `subjectAltName=DNS:${host}`];
    const signed = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-subj', `/CN=${host}`];
    openssl(
      'req',
      '-x509',
      ...key,
      '-keyout',
      `${name}.key`,
      '-out',
      `${name}.pem`,
      ...signed,
      ...san,
    );
  }
}
