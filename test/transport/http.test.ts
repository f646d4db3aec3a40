import { connect } from 'node:net';
import { expect } from 'chai';
import { RequestError } from '../../src/limiter.js';
import { HttpServer, MetricsServer, type HttpOptions } from '../../src/transport/http.js';
import {
  CountingObserver,
  decisionOf,
  descriptorDecision,
  FixedLimiter,
  limitDecision,
  limitOf,
  quietLogger,
  SwitchedHealth,
} from './fixtures.js';

const BODY = { domain: 'shop', descriptors: [{ entries: [{ key: 'user', value: '42' }] }] };

describe('HTTP port', () => {
  let limiter: FixedLimiter;
  let observer: CountingObserver;
  let health: SwitchedHealth;
  let logger: ReturnType<typeof quietLogger>;
  let server: HttpServer;
  let port: number;

  async function start(options: Partial<HttpOptions> = {}): Promise<void> {
    server = new HttpServer(
      {
        host: '127.0.0.1',
        port: 0,
        decisionTimeoutMs: 100,
        maxDescriptors: 128,
        maxBodyBytes: 1_048_576,
        envoy: { headers: undefined, dynamicMetadata: false },
        ...options,
      },
      { limiter, observer, health, logger },
    );
    port = await server.start();
  }

  beforeEach(() => {
    limiter = new FixedLimiter();
    observer = new CountingObserver();
    health = new SwitchedHealth();
    logger = quietLogger();
  });

  afterEach(async () => {
    await server.stop(0);
  });

  async function ask(path: string, init: RequestInit = {}): Promise<Response> {
    return fetch(`http://127.0.0.1:${String(port)}${path}`, init);
  }

  async function post(body: unknown): Promise<Response> {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return ask('/json', { method: 'POST', body: text });
  }

  describe('/json', () => {
    beforeEach(() => start());

    it('answers 200 with the response, zero fields left out', async () => {
      limiter.answer = () =>
        decisionOf([descriptorDecision({ limits: [limitDecision()] }), descriptorDecision()]);
      const response = await post(BODY);
      expect(response.status).to.equal(200);
      expect(response.headers.get('content-type')).to.equal('application/json');
      expect(await response.json()).to.deep.equal({
        overallCode: 'OK',
        statuses: [
          {
            code: 'OK',
            currentLimit: { requestsPerUnit: 10, unit: 'MINUTE' },
            limitRemaining: 9,
            durationUntilReset: '30s',
          },
          { code: 'OK' },
        ],
      });
      expect(observer).to.include({ decisions: 1, invalid: 0 });
      expect(observer.requests).to.deep.equal(['json']);
    });

    it('answers 429 with Retry-After', async () => {
      const limits = [
        limitDecision({ outcome: { fits: false, retryAfterUs: 1_000_001 }, limit: limitOf() }),
      ];
      limiter.answer = () => decisionOf([descriptorDecision({ limits })]);
      const response = await post(BODY);
      expect(response.status).to.equal(429);
      expect(response.headers.get('retry-after')).to.equal('2');
      expect(await response.json()).to.have.property('overallCode', 'OVER_LIMIT');
    });

    it('takes both spellings of names, and numbers as strings', async () => {
      const descriptors = [
        {
          entries: [{ key: 'a', value: 'b' }],
          hits_addend: '7',
          isNegativeHits: true,
          limit: { requestsPerUnit: 3, unit: 'HOUR' },
        },
        { entries: [], hitsAddend: 0, limit: { requests_per_unit: '3', unit: 7 } },
        { limit: { requestsPerUnit: 3, unit: 'UNKNOWN' }, hitsAddend: '18446744073709551615' },
      ];
      await post({ domain: 'shop', descriptors, hitsAddend: 2 });
      expect(limiter.last()).to.deep.equal({
        domain: 'shop',
        descriptors: [
          {
            entries: [{ key: 'a', value: 'b' }],
            hits: 7,
            giveBack: true,
            override: { requests: 3, unit: 'hour' },
          },
          { entries: [], hits: 0, giveBack: false, override: { requests: 3, unit: 'week' } },
          { entries: [], hits: Number.MAX_SAFE_INTEGER, giveBack: false, override: undefined },
        ],
        hits: 2,
        mode: undefined,
      });
    });

    const wrong: readonly [string, unknown, string][] = [
      ['no JSON', '{"domain":', 'body: is not JSON'],
      ['nothing', '', 'body: is not JSON'],
      ['a list', [], 'body: must be an object'],
      [
        'an unknown field',
        { ...BODY, burst: 1 },
        'body: has a field that is none of domain, descriptors, hits_addend',
      ],
      ['no domain', { descriptors: BODY.descriptors }, 'domain: must not be empty'],
      ['no descriptors', { domain: 'shop' }, 'descriptors: at least one is needed'],
      ['a number as domain', { ...BODY, domain: 1 }, 'domain: must be a string'],
      [
        'half a surrogate pair',
        { domain: 'shop', descriptors: [{ entries: [{ key: 'user', value: 'a\ud800' }] }] },
        'descriptors[0].entries[0].value: is not valid Unicode',
      ],
      ['negative hits', { ...BODY, hitsAddend: -1 }, 'hits_addend: must be a whole number from 0'],
      ['a fraction', { ...BODY, hitsAddend: 1.5 }, 'hits_addend: must be a whole number from 0'],
      ['hits above 32 bits', { ...BODY, hitsAddend: 4294967296 }, 'hits_addend: above 2^32 - 1'],
      ['a name twice', { ...BODY, hitsAddend: 1, hits_addend: 1 }, 'body: has hits_addend twice'],
      [
        'hits above 64 bits',
        { domain: 'shop', descriptors: [{ hitsAddend: '18446744073709551616' }] },
        'descriptors[0].hits_addend: above 2^64 - 1',
      ],
      [
        'an unknown unit',
        { domain: 'shop', descriptors: [{ limit: { unit: 'FORTNIGHT' } }] },
        'descriptors[0].limit.unit: is none of UNKNOWN, SECOND, MINUTE, HOUR, DAY, MONTH, YEAR, WEEK',
      ],
      [
        'too many entries',
        { domain: 'shop', descriptors: [{ entries: new Array(33).fill({ key: 'a' }) }] },
        'descriptors[0].entries: more than 32',
      ],
    ];
    for (const [what, body, message] of wrong) {
      it(`answers 400 to ${what}`, async () => {
        const response = await post(body);
        expect(response.status).to.equal(400);
        expect(await response.json()).to.deep.equal({ error: message });
        expect(observer.invalid).to.equal(1);
      });
    }

    it('answers 400 to bytes that are not UTF-8', async () => {
      const body = Buffer.from([0x7b, 0xff, 0x7d]);
      expect((await ask('/json', { method: 'POST', body })).status).to.equal(400);
    });

    it('keeps `__proto__` for a field that the message lacks', async () => {
      const response = await post('{"__proto__": {"domain": "shop"}}');
      expect(response.status).to.equal(400);
    });

    it('answers 413 to a longer body, and goes on', async () => {
      const response = await post('x'.repeat(1_048_577));
      expect(response.status).to.equal(413);
      expect((await post(BODY)).status).to.equal(200);
    });

    it('answers 415 to a compressed body', async () => {
      const init = { method: 'POST', body: 'x', headers: { 'content-encoding': 'gzip' } };
      expect((await ask('/json', init)).status).to.equal(415);
    });

    it('answers 405 to other methods, and names the right one', async () => {
      const response = await ask('/json');
      expect(response.status).to.equal(405);
      expect(response.headers.get('allow')).to.equal('POST');
    });

    it('answers 503 while nothing is loaded', async () => {
      limiter.answer = () => {
        throw new RequestError('failed_precondition', 'no configuration is loaded');
      };
      expect((await post(BODY)).status).to.equal(503);
      expect(observer.invalid).to.equal(0);
    });

    it('answers 500 without details when the limiter fails', async () => {
      limiter.answer = () => {
        throw new Error('secret');
      };
      const response = await post(BODY);
      expect(response.status).to.equal(500);
      expect(await response.json()).to.deep.equal({ error: 'internal error' });
      expect(logger.lines).to.deep.equal(['request failed']);
    });

    it('shows dynamic metadata as JSON', async () => {
      await server.stop(0);
      await start({ envoy: { headers: undefined, dynamicMetadata: true } });
      expect(await (await post(BODY)).json()).to.deep.include({
        dynamicMetadata: { domain: 'shop', descriptors: [{ entries: ['user=42'] }] },
      });
    });
  });

  it('says how it is', async () => {
    await start();
    const seen = async (): Promise<unknown[]> =>
      Promise.all(
        ['/healthcheck', '/healthz', '/readyz'].map(async (path) => {
          const response = await ask(path);
          return [response.status, await response.text()];
        }),
      );
    expect(await seen()).to.deep.equal([
      [200, 'OK'],
      [200, 'OK'],
      [200, 'configuration 1 is loaded'],
    ]);
    health.set(false, 'no configuration is loaded');
    expect(await seen()).to.deep.equal([
      [500, 'no configuration is loaded'],
      [200, 'OK'],
      [503, 'no configuration is loaded'],
    ]);
    health.set(true, 'configuration 2 is loaded');
    server.drain();
    expect(await seen()).to.deep.equal([
      [500, 'draining'],
      [200, 'OK'],
      [503, 'draining'],
    ]);
  });

  it('shows the metrics in the format asked for', async () => {
    await start();
    const response = await ask('/metrics', { headers: { accept: 'text/plain' } });
    expect(await response.text()).to.equal('accept text/plain\n');
  });

  it('answers 404 elsewhere', async () => {
    await start();
    expect((await ask('/')).status).to.equal(404);
    expect((await ask('/json/../../etc/passwd')).status).to.equal(404);
  });

  it('cuts off a client that does not finish its request', async function () {
    this.timeout(5000);
    await start({ requestTimeoutMs: 100 });
    const socket = connect(port, '127.0.0.1');
    socket.write('POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{');
    const text = await new Promise<string>((resolve) => {
      let received = '';
      socket.on('data', (data) => (received += data.toString()));
      socket.on('close', () => {
        resolve(received);
      });
    });
    expect(text).to.match(/^HTTP\/1\.1 408/);
  });

  it('stops within its time-out while a client holds a request open', async () => {
    await start();
    limiter.decide = () => undefined;
    const held = post(BODY).catch(() => 'cut');
    await new Promise((resolve) => setTimeout(resolve, 30));
    const before = performance.now();
    await server.stop(50);
    expect(performance.now() - before).to.be.lessThan(1000);
    expect(await held).to.equal('cut');
  });

  it('serves metrics alone on a port of their own', async () => {
    await start();
    const metrics = new MetricsServer(
      { host: '127.0.0.1', port: 0, path: '/prom' },
      { observer, logger },
    );
    const metricsPort = await metrics.start();
    const at = `http://127.0.0.1:${String(metricsPort)}`;
    expect((await fetch(`${at}/prom`)).status).to.equal(200);
    expect((await fetch(`${at}/json`, { method: 'POST', body: '{}' })).status).to.equal(404);
    await metrics.stop(0);
  });
});
