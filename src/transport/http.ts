/**
 * The HTTP port: decisions as JSON, health for probes, metrics for scrapes. Owns methods, status codes,
 * time-outs and the size of a body; what requests and answers mean is in `envoy` and `envoy-json`.
 */
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import { performance } from 'node:perf_hooks';
import { RequestError, type Limiter } from '../limiter.js';
import type { Decision, Logger } from '../model.js';
import { MAX_ENTRIES, MAX_VALUE_BYTES, type EnvoyRequest } from './envoy-codec.js';
import { parseJsonRequest, toJsonResponse } from './envoy-json.js';
import { retryAfterSeconds, toDecisionRequest, toResponse, type EnvoyOptions } from './envoy.js';
import {
  decisionDeadlineMs,
  type HealthSource,
  type RequestTracer,
  type TransportObserver,
} from './front-door.js';
import {
  closeServer,
  createHttpServer,
  listen,
  readBody,
  READING,
  send,
  sendError,
  sendJson,
  sendText,
  type Handler,
  type Route,
} from './http-paths.js';

export interface HttpOptions {
  readonly host: string;
  readonly port: number;
  /** Longest that a decision may take. */
  readonly decisionTimeoutMs: number;
  readonly maxDescriptors: number;
  readonly maxBodyBytes: number;
  readonly envoy: EnvoyOptions;
  /** A request that has not come in whole by then is answered 408; default 10 s. */
  readonly requestTimeoutMs?: number;
}

export interface HttpDependencies {
  readonly limiter: Limiter;
  readonly observer: TransportObserver;
  /** Undefined when tracing is off. */
  readonly tracer?: RequestTracer | undefined;
  readonly health: HealthSource;
  readonly logger: Logger;
}

const REQUEST_TIMEOUT_MS = 10_000;
const NO_HEADERS = {};

export class HttpServer {
  private readonly server: Server;
  private readonly routes: ReadonlyMap<string, Route>;
  private draining = false;

  /** Starts nothing. */
  constructor(
    private readonly options: HttpOptions,
    private readonly dependencies: HttpDependencies,
  ) {
    this.routes = new Map<string, Route>([
      ['/json', { methods: ['POST'], handle: this.json.bind(this) }],
      ['/healthcheck', { methods: READING, handle: this.healthcheck.bind(this) }],
      [
        '/healthz',
        {
          methods: READING,
          handle: (_, response) => {
            sendText(response, 200, 'OK');
          },
        },
      ],
      ['/readyz', { methods: READING, handle: this.readyz.bind(this) }],
      ['/metrics', { methods: READING, handle: metricsHandler(dependencies) }],
    ]);
    this.server = createHttpServer(this.routes, options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS);
  }

  /** Resolves with the port once it listens; rejects when it cannot. */
  async start(): Promise<number> {
    return listen(this.server, this.options.host, this.options.port);
  }

  /** From now on health and readiness say no; everything is still answered. */
  drain(): void {
    this.draining = true;
  }

  /** Takes no more connections; resolves when requests in flight are answered, or cut after the time-out. */
  async stop(timeoutMs: number): Promise<void> {
    this.draining = true;
    await closeServer(this.server, timeoutMs);
  }

  /** As gRPC's health: 500 is what probes of this kind of service expect when it is ill. */
  private healthcheck(_request: IncomingMessage, response: ServerResponse): void {
    if (!this.draining && this.dependencies.health.serving()) sendText(response, 200, 'OK');
    else
      sendText(response, 500, this.draining ? 'draining' : this.dependencies.health.ready().reason);
  }

  private readyz(_request: IncomingMessage, response: ServerResponse): void {
    const { ok, reason } = this.dependencies.health.ready();
    if (this.draining) sendText(response, 503, 'draining');
    else sendText(response, ok ? 200 : 503, reason);
  }

  private json(request: IncomingMessage, response: ServerResponse): void {
    const receivedMs = performance.now();
    const { maxBodyBytes } = this.options;
    const fail = (status: number, message: string): void => {
      if (status < 500) this.dependencies.observer.invalidRequest();
      this.dependencies.observer.observeRequest('json', (performance.now() - receivedMs) / 1000);
      sendError(response, status, message);
    };
    const encoding = request.headers['content-encoding'] ?? 'identity';
    if (encoding !== 'identity') {
      fail(415, 'content-encoding: only identity is understood');
      return;
    }
    readBody(request, maxBodyBytes, (body) => {
      if (body === undefined) fail(413, `body: longer than ${String(maxBodyBytes)} bytes`);
      else this.decideJson(body, receivedMs, request.headers, response, fail);
    });
  }

  private decideJson(
    body: Buffer,
    receivedMs: number,
    headers: IncomingHttpHeaders,
    response: ServerResponse,
    fail: (status: number, message: string) => void,
  ): void {
    const { limiter, observer, tracer, logger } = this.dependencies;
    const { maxDescriptors, decisionTimeoutMs } = this.options;
    const span = tracer?.start('json', (name) => headers[name]?.toString());
    const failWith = (error: unknown): void => {
      span?.failed(error);
      if (error instanceof RequestError) {
        fail(error.code === 'invalid_argument' ? 400 : 503, error.message);
        return;
      }
      logger.error({ err: error, method: 'json' }, 'request failed');
      fail(500, 'internal error');
    };
    try {
      const wire = parseJsonRequest(body, {
        maxDescriptors,
        maxEntries: MAX_ENTRIES,
        maxValueBytes: MAX_VALUE_BYTES,
      });
      const request = toDecisionRequest(wire);
      const deadlineMs = decisionDeadlineMs(receivedMs, Infinity, decisionTimeoutMs);
      limiter.decide(request, deadlineMs, (decision) => {
        try {
          observer.observeDecision(decision);
          this.answer(decision, wire, response);
          observer.observeRequest('json', (performance.now() - receivedMs) / 1000);
          span?.decided(decision);
        } catch (error) {
          failWith(error);
        }
      });
    } catch (error) {
      failWith(error);
    }
  }

  private answer(decision: Decision, wire: EnvoyRequest, response: ServerResponse): void {
    const envoy = toResponse(decision, wire, this.options.envoy);
    // Retry-After even where LIMIT_RESPONSE_HEADERS_ENABLED is off: a 429 needs it.
    const headers = decision.allowed
      ? NO_HEADERS
      : { 'retry-after': retryAfterSeconds(decision, envoy.statuses) };
    sendJson(response, decision.allowed ? 200 : 429, toJsonResponse(envoy), headers);
  }
}

export interface MetricsServerOptions {
  readonly host: string;
  readonly port: number;
  /** Where the metrics are: `/metrics`. */
  readonly path: string;
}

/** A port of its own for metrics alone, for scrapes that are set up that way. */
export class MetricsServer {
  private readonly server: Server;

  /** Starts nothing. */
  constructor(
    private readonly options: MetricsServerOptions,
    dependencies: Pick<HttpDependencies, 'observer' | 'logger'>,
  ) {
    const route = { methods: READING, handle: metricsHandler(dependencies) };
    this.server = createHttpServer(new Map([[options.path, route]]), REQUEST_TIMEOUT_MS);
  }

  /** Resolves with the port once it listens; rejects when it cannot. */
  async start(): Promise<number> {
    return listen(this.server, this.options.host, this.options.port);
  }

  /** Resolves when it is closed, after the time-out at the latest. */
  async stop(timeoutMs: number): Promise<void> {
    await closeServer(this.server, timeoutMs);
  }
}

function metricsHandler(dependencies: Pick<HttpDependencies, 'observer' | 'logger'>): Handler {
  const { observer, logger } = dependencies;
  return (request, response) => {
    observer.exposition(request.headers.accept).then(
      ({ contentType, body }) => {
        send(response, 200, contentType, body);
      },
      (error: unknown) => {
        logger.error({ err: error }, 'metrics could not be written');
        sendError(response, 500, 'internal error');
      },
    );
  };
}
