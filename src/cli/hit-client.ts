/**
 * The client of `weir hit`: asks a server over gRPC, on Envoy's API or our own, and turns the answer
 * into one shape. Knows the wire's names; prints nothing.
 */
import { readFileSync } from 'node:fs';
import {
  credentials,
  makeGenericClientConstructor,
  Metadata,
  type ChannelCredentials,
  type ServiceDefinition,
  type ServiceError,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { protoRoot } from '../transport/reflection.js';
import { formatMs } from './terminal.js';

/** Where the server is, and how to talk to it. */
export interface Target {
  /** `host:port` or `unix:/path`. */
  readonly server: string;
  readonly timeoutMs: number;
  readonly tls: boolean;
  readonly caFile: string | undefined;
  readonly certFile: string | undefined;
  readonly keyFile: string | undefined;
}

/** What can be asked. */
export interface Question {
  readonly api: 'envoy' | 'native';
  readonly domain: string;
  /** One list per descriptor; the native API has exactly one. */
  readonly descriptors: readonly (readonly (readonly [key: string, value: string])[])[];
  /** Undefined: the server's default. */
  readonly hits: number | undefined;
  readonly mode: 'take' | 'peek' | 'record' | 'give_back';
}

/** One line of an answer. Times in ms. */
export interface Line {
  readonly name: string;
  readonly allowed: boolean;
  /** `100/minute`, or undefined when nothing is said of a limit. */
  readonly limit: string | undefined;
  readonly remaining: number | undefined;
  readonly resetMs: number | undefined;
}

/** What the server said. */
export interface Answer {
  readonly allowed: boolean;
  readonly lines: readonly Line[];
  /** As it came, in proto3 JSON's words. */
  readonly raw: object;
  readonly elapsedMs: number;
}

const SERVICES = {
  envoy: {
    name: 'envoy.service.ratelimit.v3.RateLimitService',
    file: 'envoy/service/ratelimit/v3/rls.proto',
  },
  native: { name: 'weir.v1.RateLimiter', file: 'weir/v1/rate_limiter.proto' },
} as const;
/** Names of the native descriptor; anything else is an attribute. */
const IDENTITIES = ['endpoint', 'user', 'ip', 'api_key'];

type Call = (
  request: object,
  metadata: Metadata,
  options: { deadline: number },
  done: (error: ServiceError | null, answer: object | undefined) => void,
) => void;

/** A connection to one server for one of its APIs. */
export class HitClient {
  private readonly client: InstanceType<ReturnType<typeof makeGenericClientConstructor>>;

  /** Throws when a certificate file cannot be read. Connects at the first question. */
  constructor(
    private readonly target: Target,
    private readonly api: Question['api'],
  ) {
    const { name, file } = SERVICES[api];
    const definition = loadSync(file, {
      includeDirs: [protoRoot()],
      keepCase: true,
      longs: Number,
      enums: String,
    });
    // proto-loader's type covers messages and enums too; under a service's name stands a service.
    const service = definition[name] as unknown as ServiceDefinition;
    const Client = makeGenericClientConstructor(service, name);
    this.client = new Client(target.server, channelCredentials(target), {
      'grpc.enable_http_proxy': 0,
    });
  }

  /** Rejects with a ServiceError when there is no answer. */
  async ask(question: Question): Promise<Answer> {
    const begunMs = performance.now();
    const request = this.api === 'envoy' ? toEnvoy(question) : toNative(question);
    const raw = await new Promise<object>((resolve, reject) => {
      // The generic client has its methods as properties of no particular type.
      const call = this.client.ShouldRateLimit as unknown as Call;
      const deadline = Date.now() + this.target.timeoutMs;
      call.call(this.client, request, new Metadata(), { deadline }, (error, answer) => {
        if (error === null) resolve(answer ?? {});
        else reject(error);
      });
    });
    const elapsedMs = performance.now() - begunMs;
    const read = this.api === 'envoy' ? fromEnvoy(raw, question) : fromNative(raw);
    return { ...read, raw, elapsedMs };
  }

  close(): void {
    this.client.close();
  }
}

function channelCredentials(target: Target): ChannelCredentials {
  if (!target.tls) return credentials.createInsecure();
  const read = (file: string | undefined): Buffer | null =>
    file === undefined ? null : readFileSync(file);
  return credentials.createSsl(read(target.caFile), read(target.keyFile), read(target.certFile));
}

function toEnvoy(question: Question): object {
  const { mode, hits } = question;
  // Envoy's API has no modes: hits that a descriptor itself names are charged afterwards.
  const own = mode === 'peek' ? 0 : mode === 'take' ? undefined : (hits ?? 1);
  return {
    domain: question.domain,
    hits_addend: mode === 'take' ? (hits ?? 0) : 0,
    descriptors: question.descriptors.map((entries) => ({
      entries: entries.map(([key, value]) => ({ key, value })),
      ...(own === undefined ? {} : { hits_addend: { value: own } }),
      is_negative_hits: mode === 'give_back',
    })),
  };
}

function toNative(question: Question): object {
  const pairs = question.descriptors.flat();
  const known = pairs.filter(([key]) => IDENTITIES.includes(key));
  const attributes = pairs.filter(([key]) => !IDENTITIES.includes(key));
  return {
    domain: question.domain,
    descriptor: { ...Object.fromEntries(known), attributes: Object.fromEntries(attributes) },
    ...(question.hits === undefined ? {} : { hits: question.hits }),
    mode: `MODE_${question.mode.toUpperCase()}`,
  };
}

interface Duration {
  readonly seconds?: number;
  readonly nanos?: number;
}

interface EnvoyAnswer {
  readonly overall_code?: string;
  readonly statuses?: readonly {
    readonly code?: string;
    readonly current_limit?: { readonly requests_per_unit?: number; readonly unit?: string } | null;
    readonly limit_remaining?: number;
    readonly duration_until_reset?: Duration | null;
  }[];
}

function fromEnvoy(raw: EnvoyAnswer, question: Question): Omit<Answer, 'raw' | 'elapsedMs'> {
  const lines = (raw.statuses ?? []).map((status, at): Line => {
    const limit = status.current_limit ?? undefined;
    const unit = limit?.unit?.toLowerCase() ?? 'unknown';
    const per = unit === 'unknown' ? '' : `/${unit}`;
    const isKnown = limit !== undefined;
    return {
      name: (question.descriptors[at] ?? []).map((pair) => pair.join('=')).join(','),
      allowed: status.code !== 'OVER_LIMIT',
      limit: isKnown ? `${String(limit.requests_per_unit ?? 0)}${per}` : undefined,
      remaining: isKnown ? (status.limit_remaining ?? 0) : undefined,
      resetMs: toMs(status.duration_until_reset),
    };
  });
  return { allowed: raw.overall_code !== 'OVER_LIMIT', lines };
}

interface NativeAnswer {
  readonly allowed?: boolean;
  readonly limits?: readonly {
    readonly name?: string;
    readonly allowed?: boolean;
    readonly enforced?: boolean;
    readonly window?: Duration | null;
    readonly limit?: number;
    readonly remaining?: number;
    readonly reset_after?: Duration | null;
    readonly retry_after?: Duration | null;
  }[];
}

function fromNative(raw: NativeAnswer): Omit<Answer, 'raw' | 'elapsedMs'> {
  const lines = (raw.limits ?? []).map((limit): Line => {
    const windowMs = toMs(limit.window);
    // One second is said as `/s`, as one would.
    const per = windowMs === undefined ? '' : `/${formatMs(windowMs).replace(/^1(\D)$/, '$1')}`;
    return {
      name: `${limit.name ?? ''}${limit.enforced === true ? '' : ' (shadow)'}`,
      allowed: limit.allowed ?? false,
      limit: limit.limit === undefined ? undefined : `${String(limit.limit)}${per}`,
      remaining: limit.remaining,
      resetMs: toMs(limit.retry_after) ?? toMs(limit.reset_after),
    };
  });
  return { allowed: raw.allowed ?? false, lines };
}

function toMs(duration: Duration | null | undefined): number | undefined {
  if (duration === undefined || duration === null) return undefined;
  return (duration.seconds ?? 0) * 1000 + (duration.nanos ?? 0) / 1e6;
}
