/**
 * The gRPC server: Envoy's API and the native one, health and reflection, on one port. Owns calls,
 * statuses, connection limits and the drain; what requests and answers mean is in `envoy` and `native`.
 */
import { performance } from 'node:perf_hooks';
import { status } from '@grpc/grpc-js';
import { RequestError, type Limiter } from '../limiter.js';
import type { Decision, DecisionRequest, Logger } from '../model.js';
import {
  decodeRequest,
  encodeResponse,
  MAX_ENTRIES,
  MAX_VALUE_BYTES,
  type EnvoyRequest,
} from './envoy-codec.js';
import type { CallServer, StreamingMethod, UnaryCall, UnaryMethod } from './calls.js';
import * as envoy from './envoy.js';
import {
  decisionDeadlineMs,
  type FrontDoorName,
  type HealthSource,
  type RequestTracer,
  type TransportObserver,
} from './front-door.js';
import {
  decodeHealthRequest,
  encodeHealth,
  encodeHealthList,
  Health,
  SERVICE_UNKNOWN,
} from './health.js';
import { Http2Server } from './http2/http2-server.js';
import { LibraryServer } from './library-server.js';
import { Listener, type ListenAddress } from './listener.js';
import { decodeNativeRequest, encodeNativeResponse, type NativeRequest } from './native-codec.js';
import * as native from './native.js';
import { reflectionMethods } from './reflection.js';
import type { TlsFiles } from './tls.js';

export interface GrpcOptions {
  readonly address: ListenAddress;
  readonly tls: TlsFiles | undefined;
  /** Longest that a decision may take, whatever the caller's deadline. */
  readonly decisionTimeoutMs: number;
  readonly maxDescriptors: number;
  readonly maxMessageBytes: number;
  readonly maxConcurrentStreams: number;
  /** After this age, give or take a tenth, a connection is asked to go. */
  readonly maxConnectionAgeMs: number;
  /** After this much more it is ended. */
  readonly maxConnectionAgeGraceMs: number;
  /** How many bits of an IPv6 address count. */
  readonly ipv6Prefix: number;
  readonly envoy: envoy.EnvoyOptions;
  /** Calls are carried by our own HTTP/2 server; without, by the gRPC library. */
  readonly direct?: boolean;
  /** A connection without calls for so long is closed; default a quarter of an hour. */
  readonly maxConnectionIdleMs?: number;
  /** A connection is pinged so often; default one minute. */
  readonly keepaliveTimeMs?: number;
  /** Without answer to a ping for so long it is dead; default 20 s. */
  readonly keepaliveTimeoutMs?: number;
  /** How often certificate files are looked at; default 5 s. */
  readonly certificateIntervalMs?: number;
}

export interface GrpcDependencies {
  readonly limiter: Limiter;
  readonly observer: TransportObserver;
  /** Undefined when tracing is off. */
  readonly tracer?: RequestTracer | undefined;
  readonly health: HealthSource;
  readonly logger: Logger;
}

/** One API: bytes → request → bytes. `Wire` is the request as it came. */
interface Door<Wire> {
  readonly name: FrontDoorName;
  readonly decode: (bytes: Buffer) => Wire;
  readonly toRequest: (wire: Wire) => DecisionRequest;
  readonly encode: (decision: Decision, wire: Wire) => Buffer;
}

/** After the last call, so long for its answer to leave and for peers to close. */
const QUIET_MS = 300;

export class GrpcServer {
  private readonly server: CallServer;
  private readonly listener: Listener;
  private readonly health: Health;
  private readonly unary = new Map<string, UnaryMethod>();
  private readonly streaming = new Map<string, StreamingMethod>();
  private draining: Promise<void> | undefined;
  private hurry: (() => void) | undefined;
  private inFlight = 0;
  /** While draining: ends the wait when nothing has been in flight for so long. */
  private quiet: NodeJS.Timeout | undefined;

  /** Starts nothing. Throws when certificate files cannot be used. */
  constructor(
    private readonly options: GrpcOptions,
    private readonly dependencies: GrpcDependencies,
  ) {
    this.health = new Health(dependencies.health);
    this.addServices();
    const Carrier = (options.direct ?? false) ? Http2Server : LibraryServer;
    const { unary, streaming } = this;
    const limits = {
      ...options,
      maxConnectionIdleMs: options.maxConnectionIdleMs ?? 900_000,
      keepaliveTimeMs: options.keepaliveTimeMs ?? 60_000,
      keepaliveTimeoutMs: options.keepaliveTimeoutMs ?? 20_000,
    };
    this.server = new Carrier({ unary, streaming }, limits, dependencies.logger);
    this.listener = new Listener(
      {
        address: options.address,
        tls: options.tls,
        logger: dependencies.logger,
        ...(options.certificateIntervalMs !== undefined && {
          certificateIntervalMs: options.certificateIntervalMs,
        }),
      },
      (connection) => {
        this.server.accept(connection);
      },
    );
  }

  /** Resolves with the port (0 for a unix socket) once it listens. */
  async start(): Promise<number> {
    return this.listener.listen();
  }

  /** Connections that are open now. */
  get connections(): number {
    return this.listener.connections;
  }

  /**
   * Health goes NOT_SERVING, and after `delayMs`, when load balancers have seen it, every connection
   * gets a GOAWAY. Resolves when all calls have ended, at the latest `timeoutMs` later, when what is
   * left is cut. A second call shortens: no more delay and, if already waiting for calls, no more wait.
   */
  async drain(times: { delayMs: number; timeoutMs: number }): Promise<void> {
    if (this.draining === undefined) this.draining = this.runDrain(times);
    else this.hurry?.();
    return this.draining;
  }

  private async runDrain(times: { delayMs: number; timeoutMs: number }): Promise<void> {
    this.health.drain();
    await this.pause(times.delayMs);
    this.listener.close();
    this.health.endWatches();
    await this.pause(times.timeoutMs, (done) => {
      this.server.shutdown(done);
      // It waits for peers that do not answer, too: without a call they are not worth waiting for.
      this.quiet = setTimeout(() => {
        if (this.inFlight === 0 && !this.server.isAnswering) done();
        else this.quiet?.refresh();
      }, QUIET_MS);
    });
    clearTimeout(this.quiet);
    this.quiet = undefined;
    this.server.destroy();
    // Connections that are not HTTP/2 yet, or no longer, may be known here only.
    this.listener.destroyConnections();
  }

  /** Waits so long, or until `begin` says that it is done, or until someone is in a hurry. */
  private async pause(ms: number, begin?: (done: () => void) => void): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, ms);
      function done(): void {
        clearTimeout(timer);
        resolve();
      }
      this.hurry = done;
      begin?.(done);
    });
    this.hurry = undefined;
  }

  private callEnded(): void {
    this.inFlight--;
    if (this.inFlight === 0) this.quiet?.refresh();
  }

  private addServices(): void {
    const { options } = this;
    const bounds = {
      maxDescriptors: options.maxDescriptors,
      maxEntries: MAX_ENTRIES,
      maxValueBytes: MAX_VALUE_BYTES,
    };
    this.addDoor<EnvoyRequest>('envoy.service.ratelimit.v3.RateLimitService', {
      name: 'envoy',
      decode: (message) => decodeRequest(message, bounds),
      toRequest: envoy.toDecisionRequest,
      encode: (decision, wire) => encodeResponse(envoy.toResponse(decision, wire, options.envoy)),
    });
    this.addDoor<NativeRequest>('weir.v1.RateLimiter', {
      name: 'native',
      decode: decodeNativeRequest,
      toRequest: (wire) => native.toDecisionRequest(wire, options.ipv6Prefix),
      encode: (decision) => encodeNativeResponse(native.toNativeResponse(decision)),
    });
    this.addHealth();
    for (const [path, method] of reflectionMethods()) this.streaming.set(path, method);
  }

  private addDoor<Wire>(service: string, door: Door<Wire>): void {
    this.unary.set(`/${service}/ShouldRateLimit`, this.serve(door));
  }

  private serve<Wire>(door: Door<Wire>): UnaryMethod {
    const { limiter, observer, tracer, logger } = this.dependencies;
    const { decisionTimeoutMs } = this.options;
    return (call, message) => {
      const receivedMs = performance.now();
      const span = tracer?.start(door.name, (name) => call.header(name));
      this.inFlight++;
      const fail = (error: unknown): void => {
        span?.failed(error);
        observer.observeRequest(door.name, (performance.now() - receivedMs) / 1000);
        if (!(error instanceof RequestError)) {
          logger.error({ err: error, method: door.name }, 'request failed');
        } else if (error.code === 'invalid_argument') observer.invalidRequest();
        failWith(call, error);
        this.callEnded();
      };
      try {
        const wire = door.decode(message);
        const request = door.toRequest(wire);
        const deadlineMs = decisionDeadlineMs(receivedMs, call.patienceMs, decisionTimeoutMs);
        limiter.decide(request, deadlineMs, (decision) => {
          try {
            observer.observeDecision(decision);
            const elapsedMs = performance.now() - receivedMs;
            if (elapsedMs > call.patienceMs) observer.deadlineExceeded();
            // Envoy cancels when its client goes or its time-out ends: there is nobody to answer.
            if (!call.cancelled) call.answer(door.encode(decision, wire));
            observer.observeRequest(door.name, elapsedMs / 1000);
            span?.decided(decision);
            this.callEnded();
          } catch (error) {
            fail(error);
          }
        });
      } catch (error) {
        fail(error);
      }
    };
  }

  private addHealth(): void {
    const { health } = this;
    const service = 'grpc.health.v1.Health';
    this.unary.set(`/${service}/Check`, (call, message) => {
      try {
        const state = health.status(decodeHealthRequest(message));
        if (state === SERVICE_UNKNOWN) call.fail(status.NOT_FOUND, 'unknown service');
        else call.answer(encodeHealth(state));
      } catch (error) {
        failWith(call, error);
      }
    });
    this.unary.set(`/${service}/List`, (call) => {
      call.answer(encodeHealthList(health));
    });
    this.streaming.set(`/${service}/Watch`, (call) => {
      let asked = false;
      return {
        message: (message) => {
          // Only the first says what is watched.
          if (asked) return;
          asked = true;
          try {
            health.watch(decodeHealthRequest(message), call);
          } catch (error) {
            failWith(call, error);
          }
        },
        ended: () => {
          if (!asked) call.fail(status.INTERNAL, 'the request ended before its message did');
        },
        closed: () => {
          health.unwatch(call);
        },
      };
    });
  }
}

function failWith(call: Pick<UnaryCall, 'fail'>, error: unknown): void {
  const { code, details } = toStatus(error);
  call.fail(code, details);
}

/** Envoy lets the request pass on any of these, and logs the message at most. */
function toStatus(error: unknown): { code: status; details: string } {
  if (!(error instanceof RequestError)) {
    return { code: status.INTERNAL, details: 'internal error' };
  }
  const code =
    error.code === 'invalid_argument' ? status.INVALID_ARGUMENT : status.FAILED_PRECONDITION;
  return { code, details: error.message };
}
