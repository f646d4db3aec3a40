import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { compileRules } from '../../src/rules/rules.js';
import { createTracer, type Tracer } from '../../src/log/tracing.js';
import { decided, limitOf, ruleDefinition, snapshotOf } from '../support/decided.js';

interface OtlpSpan {
  readonly traceId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly status: { readonly code?: number };
  readonly attributes: readonly { readonly key: string; readonly value: unknown }[];
}
interface OtlpBody {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: OtlpSpan['attributes'] };
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[];
  }[];
}

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const CALLER = 'b7ad6b7169203331';
const quiet = { debug: ignore, info: ignore, warn: ignore, error: ignore };
const snapshot = snapshotOf(
  compileRules([
    { name: 'shop', rules: [ruleDefinition('user', undefined, [limitOf(5, 'minute')])] },
  ]),
  7,
);

describe('tracing', () => {
  let collector: Server;
  let received: OtlpBody[];
  let before: string | undefined;

  beforeEach(async () => {
    received = [];
    collector = createServer((request, response) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => {
        received.push(JSON.parse(body) as OtlpBody); // OTLP's own form
        response.setHeader('content-type', 'application/json').end('{}');
      });
    });
    collector.listen(0, '127.0.0.1');
    await once(collector, 'listening');
    const { port } = collector.address() as AddressInfo; // it listens on TCP
    before = process.env['OTEL_EXPORTER_OTLP_ENDPOINT'];
    process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = `http://127.0.0.1:${port}`;
  });
  afterEach(() => {
    if (before === undefined) delete process.env['OTEL_EXPORTER_OTLP_ENDPOINT'];
    else process.env['OTEL_EXPORTER_OTLP_ENDPOINT'] = before;
    collector.closeAllConnections();
    collector.close();
  });

  function create(samplingRate = 1): Promise<Tracer> {
    return createTracer({
      settings: {
        enabled: true,
        serviceName: 'RateLimit',
        serviceNamespace: 'edge',
        instanceId: 'weir-1',
        protocol: 'http',
        samplingRate,
      },
      version: '1.2.3',
      logger: quiet,
    });
  }

  function spans(): readonly OtlpSpan[] {
    return received
      .flatMap(({ resourceSpans }) => resourceSpans)
      .flatMap(({ scopeSpans }) => scopeSpans)
      .flatMap((scope) => scope.spans);
  }

  const attributesOf = (attributes: OtlpSpan['attributes']): Record<string, unknown> =>
    Object.fromEntries(attributes.map(({ key, value }) => [key, value]));
  const nobody = (): undefined => undefined;

  it("puts a span for each decision into the caller's trace, with rule and outcome", async () => {
    const tracer = await create();
    const headers: Record<string, string> = { traceparent: `00-${TRACE}-${CALLER}-01` };
    tracer
      .start('envoy', (name) => headers[name])
      ?.decided(decided(snapshot, 'shop', 'user=alice', { fits: false }));
    await tracer.stop();
    const [span] = spans();
    expect(span).to.deep.include({
      traceId: TRACE,
      parentSpanId: CALLER,
      name: 'ShouldRateLimit',
      kind: 2,
    });
    expect(attributesOf(span?.attributes ?? [])).to.deep.equal({
      'weir.method': { stringValue: 'envoy' },
      'rpc.system': { stringValue: 'grpc' },
      'rpc.service': { stringValue: 'envoy.service.ratelimit.v3.RateLimitService' },
      'rpc.method': { stringValue: 'ShouldRateLimit' },
      'weir.domain': { stringValue: 'shop' },
      'weir.outcome': { stringValue: 'refused' },
      'weir.degraded': { boolValue: false },
      'weir.descriptors': { intValue: 1 },
      'weir.config_generation': { intValue: 7 },
      'weir.rules': { arrayValue: { values: [{ stringValue: 'user' }] } },
      'weir.rule': { stringValue: 'user' },
    });
    expect(JSON.stringify(received)).not.to.contain('alice');
    const [{ resource } = { resource: { attributes: [] } }] = received[0]?.resourceSpans ?? [];
    expect(attributesOf(resource.attributes)).to.deep.equal({
      'service.name': { stringValue: 'RateLimit' },
      'service.namespace': { stringValue: 'edge' },
      'service.instance.id': { stringValue: 'weir-1' },
      'service.version': { stringValue: '1.2.3' },
    });
  });

  it('says what came of requests that nothing limits, and of those answered by policy', async () => {
    const tracer = await create();
    const outcome = (domain: string, entries: string, source: 'store' | 'allow' | 'deny'): void => {
      const fits = source !== 'deny';
      tracer.start('json', nobody)?.decided(decided(snapshot, domain, entries, { fits, source }));
    };
    outcome('shop', 'nobody=1', 'store');
    outcome('shpo', 'user=1', 'store');
    outcome('shop', 'user=1', 'allow');
    outcome('shop', 'user=1', 'deny');
    await tracer.stop();
    expect(spans().map(({ attributes }) => attributesOf(attributes)['weir.outcome'])).to.deep.equal(
      [
        { stringValue: 'unmatched' },
        { stringValue: 'unknown_domain' },
        { stringValue: 'allowed_degraded' },
        { stringValue: 'refused_degraded' },
      ],
    );
  });

  it('marks a failed request without its message', async () => {
    const tracer = await create();
    tracer.start('native', nobody)?.failed(new RangeError('user=alice is too much'));
    await tracer.stop();
    const [span] = spans();
    expect(span?.status).to.deep.equal({ code: 2 });
    expect(attributesOf(span?.attributes ?? [])).to.deep.include({
      'error.type': { stringValue: 'RangeError' },
    });
    expect(JSON.stringify(received)).not.to.contain('alice');
  });

  it('follows the caller on whether to sample, and the rate where there is no caller', async () => {
    const tracer = await create(0);
    const parent = (flags: string) => (name: string) =>
      name === 'traceparent' ? `00-${TRACE}-${CALLER}-${flags}` : undefined;
    expect(tracer.start('envoy', nobody)).to.equal(undefined);
    expect(tracer.start('envoy', parent('00'))).to.equal(undefined);
    expect(tracer.start('envoy', parent('01'))).not.to.equal(undefined);
    await tracer.stop();
  });

  it('ends without a collector too', async () => {
    collector.closeAllConnections();
    collector.close();
    process.env['OTEL_EXPORTER_OTLP_TIMEOUT'] = '500';
    try {
      const tracer = await create();
      tracer.start('json', nobody)?.decided(decided(snapshot, 'shop', 'user=1', { fits: true }));
      await tracer.stop();
    } finally {
      delete process.env['OTEL_EXPORTER_OTLP_TIMEOUT'];
    }
  });
});

function ignore(): void {
  // a log that nobody reads
}
