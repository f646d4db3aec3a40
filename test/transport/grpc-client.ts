/** A generated client of all services, from the .proto files. */
import {
  credentials,
  loadPackageDefinition,
  Metadata,
  type CallOptions,
  type ChannelCredentials,
  type ClientReadableStream,
  type ServiceError,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { makeGenericClientConstructor, type Client, type ServiceDefinition } from '@grpc/grpc-js';
import { protoRoot } from '../../src/transport/reflection.js';
import { GrpcServer, type GrpcDependencies, type GrpcOptions } from '../../src/transport/grpc.js';
import { CountingObserver, FixedLimiter, quietLogger, SwitchedHealth } from './fixtures.js';

const definition = loadSync(
  [
    'envoy/service/ratelimit/v3/rls.proto',
    'weir/v1/rate_limiter.proto',
    'grpc/health/v1/health.proto',
  ],
  { includeDirs: [protoRoot()], keepCase: true, longs: Number, enums: String, defaults: true },
);
loadPackageDefinition(definition);

export const ENVOY = 'envoy.service.ratelimit.v3.RateLimitService';
export const NATIVE = 'weir.v1.RateLimiter';
export const HEALTH = 'grpc.health.v1.Health';

type Answer = Record<string, unknown>;
type Callback = (error: ServiceError | null, answer: Answer | undefined) => void;

export interface Caller {
  readonly client: Client;
  /** Resolves with the answer, rejects with the ServiceError. */
  call(method: string, request: object, options?: CallOptions): Promise<Answer>;
  watch(request: object): ClientReadableStream<Answer>;
  close(): void;
}

export function callerOf(
  service: string,
  target: string,
  channel: ChannelCredentials = credentials.createInsecure(),
): Caller {
  const serviceDefinition = definition[service] as unknown as ServiceDefinition;
  const Constructor = makeGenericClientConstructor(serviceDefinition, service);
  const client = new Constructor(target, channel, {
    'grpc.enable_http_proxy': 0,
    'grpc.use_local_subchannel_pool': 1,
  });
  const methods = client as unknown as Record<string, (...args: unknown[]) => unknown>;
  const invoke = (name: string, ...args: unknown[]): unknown => {
    const found = methods[name];
    if (found === undefined) throw new Error(`no method ${name}`);
    return found.apply(client, args);
  };
  return {
    client,
    call: (name, request, options = { deadline: Date.now() + 5000 }) =>
      new Promise((resolve, reject) => {
        const done: Callback = (error, answer) => {
          if (error === null) resolve(answer ?? {});
          else reject(error);
        };
        invoke(name, request, new Metadata(), options, done);
      }),
    watch: (request) => invoke('Watch', request) as ClientReadableStream<Answer>,
    close: () => {
      client.close();
    },
  };
}

/** What a call failed with. */
export async function failureOf(
  call: Promise<unknown>,
): Promise<{ code: number; details: string }> {
  try {
    await call;
  } catch (error) {
    const { code, details } = error as ServiceError;
    return { code, details };
  }
  throw new Error('the call was answered');
}

/** Who answers decisions; every suite that asks for some runs over both. */
export const SERVERS = [
  { server: 'the gRPC library', direct: false },
  { server: 'HTTP/2 streams', direct: true },
] as const;

export const OPTIONS: GrpcOptions = {
  address: { host: '127.0.0.1', port: 0 },
  tls: undefined,
  decisionTimeoutMs: 100,
  maxDescriptors: 128,
  maxMessageBytes: 1_048_576,
  maxConcurrentStreams: 1000,
  maxConnectionAgeMs: 86_400_000,
  maxConnectionAgeGraceMs: 3_600_000,
  ipv6Prefix: 64,
  envoy: { headers: undefined, dynamicMetadata: false },
};

/** A running server with everything that it tells, and callers that are closed with it. */
export class Bench {
  readonly observer = new CountingObserver();
  readonly health = new SwitchedHealth();
  readonly logger = quietLogger();
  readonly server: GrpcServer;
  port = 0;
  private readonly callers: Caller[] = [];

  constructor(
    readonly limiter: FixedLimiter = new FixedLimiter(),
    options: Partial<GrpcOptions> = {},
    dependencies: Partial<GrpcDependencies> = {},
  ) {
    const { observer, health, logger } = this;
    this.server = new GrpcServer(
      { ...OPTIONS, ...options },
      { limiter, observer, health, logger, ...dependencies },
    );
  }

  async start(): Promise<this> {
    this.port = await this.server.start();
    return this;
  }

  caller(service: string, channel?: ChannelCredentials, host = '127.0.0.1'): Caller {
    const caller = callerOf(service, `${host}:${String(this.port)}`, channel);
    this.callers.push(caller);
    return caller;
  }

  async stop(): Promise<void> {
    for (const caller of this.callers) caller.close();
    await this.server.drain({ delayMs: 0, timeoutMs: 0 });
  }
}
