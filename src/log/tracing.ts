/**
 * Traces by OpenTelemetry: a span for each decision, within the caller's trace. Its packages are loaded
 * only when tracing is on; off, nothing here costs anything. Spans carry rules and outcomes, never values.
 */
import { randomUUID } from 'node:crypto';
import type { Span, SpanKind, SpanOptions, TextMapGetter } from '@opentelemetry/api';
import type { Decision, Logger } from '../model.js';
import type { Settings } from '../settings/settings.js';

/** One request on its way. Exactly one of the two is called, and ends it. */
export interface RequestSpan {
  decided(decision: Decision): void;
  /** The request was wrong, or we failed. */
  failed(error: unknown): void;
}

export interface Tracer {
  /**
   * A request has come; `header` gives the caller's headers by lower-case name. Undefined when it is not
   * sampled.
   */
  start(
    method: 'envoy' | 'native' | 'json',
    header: (name: string) => string | undefined,
  ): RequestSpan | undefined;
  /** Sends what waits; resolves when it is out, or could not be sent. Never rejects. */
  stop(): Promise<void>;
}

export interface TracingOptions {
  readonly settings: Settings['tracing'];
  readonly version: string;
  readonly logger: Logger;
}

const SERVICES = {
  envoy: 'envoy.service.ratelimit.v3.RateLimitService',
  native: 'weir.v1.RateLimiter',
  json: undefined,
} as const;

/** Rules that a span names at most. */
const MOST_RULES = 32;

/** Loads OpenTelemetry; where to send to is read from the OTEL_EXPORTER_OTLP_* variables. */
export async function createTracer(options: TracingOptions): Promise<Tracer> {
  const { settings, version, logger } = options;
  const [api, core, sdk, resources] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/core'),
    import('@opentelemetry/sdk-trace-node'),
    import('@opentelemetry/resources'),
  ]);
  const { OTLPTraceExporter } =
    settings.protocol === 'grpc'
      ? await import('@opentelemetry/exporter-trace-otlp-grpc')
      : await import('@opentelemetry/exporter-trace-otlp-http');
  api.diag.setLogger(diagnostics(logger), { logLevel: api.DiagLogLevel.WARN });

  const provider = new sdk.NodeTracerProvider({
    sampler: new sdk.ParentBasedSampler({
      root: new sdk.TraceIdRatioBasedSampler(settings.samplingRate),
    }),
    resource: resources.resourceFromAttributes({
      'service.name': settings.serviceName,
      ...(settings.serviceNamespace !== '' && { 'service.namespace': settings.serviceNamespace }),
      'service.instance.id': settings.instanceId ?? randomUUID(),
      'service.version': version,
    }),
    spanProcessors: [new sdk.BatchSpanProcessor(new OTLPTraceExporter())],
  });
  const tracer = provider.getTracer('weir', version);
  const propagator = new core.W3CTraceContextPropagator();
  const { ROOT_CONTEXT, SpanStatusCode } = api;
  const getter: TextMapGetter<(name: string) => string | undefined> = {
    keys: () => ['traceparent', 'tracestate'],
    get: (header, name) => header(name),
  };

  return {
    start(method, header) {
      const parent = propagator.extract(ROOT_CONTEXT, header, getter);
      const span = tracer.startSpan(
        'ShouldRateLimit',
        spanOptions(method, api.SpanKind.SERVER),
        parent,
      );
      if (!span.isRecording()) return undefined;
      return {
        decided(decision) {
          describe(span, decision);
          span.end();
        },
        failed(error) {
          // Its message may quote the request: only the kind of error is passed on.
          span.setAttribute('error.type', error instanceof Error ? error.name : 'unknown');
          span.setStatus({ code: SpanStatusCode.ERROR });
          span.end();
        },
      };
    },
    async stop() {
      try {
        await provider.shutdown();
      } catch (error) {
        logger.warn({ err: error }, 'the last traces could not be sent');
      }
    },
  };
}

function spanOptions(method: keyof typeof SERVICES, kind: SpanKind): SpanOptions {
  const service = SERVICES[method];
  return {
    kind,
    attributes: {
      'weir.method': method,
      ...(service !== undefined && {
        'rpc.system': 'grpc',
        'rpc.service': service,
        'rpc.method': 'ShouldRateLimit',
      }),
    },
  };
}

function describe(span: Span, decision: Decision): void {
  const matched = decision.descriptors.filter(({ rule }) => rule !== undefined);
  // The rule to look at: one that refuses, else the first.
  const telling = matched.find(({ overLimit }) => overLimit) ?? matched[0];
  span.setAttributes({
    'weir.domain': decision.domainKnown ? decision.request.domain : '(unknown)',
    'weir.outcome': outcomeOf(decision, matched.length > 0),
    'weir.degraded': decision.degraded,
    'weir.descriptors': decision.descriptors.length,
    'weir.config_generation': decision.snapshot.generation,
    'weir.rules': matched.slice(0, MOST_RULES).flatMap(({ rule }) => rule?.path ?? []),
    ...(telling?.rule !== undefined && { 'weir.rule': telling.rule.path }),
  });
}

function outcomeOf(decision: Decision, matched: boolean): string {
  if (!decision.domainKnown) return 'unknown_domain';
  if (!matched && decision.allowed) return 'unmatched';
  if (!decision.allowed) return decision.degraded ? 'refused_degraded' : 'refused';
  return decision.degraded ? 'allowed_degraded' : 'allowed';
}

/** What OpenTelemetry has to complain about, such as a collector that is away. */
function diagnostics(
  logger: Logger,
): Record<'error' | 'warn' | 'info' | 'debug' | 'verbose', (message: string) => void> {
  const complain = (message: string): void => {
    logger.warn({ reason: message.slice(0, 500) }, 'tracing has trouble');
  };
  const ignore = (): void => undefined;
  return { error: complain, warn: complain, info: ignore, debug: ignore, verbose: ignore };
}
