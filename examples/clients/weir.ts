/**
 * A client of Weir's own API, weir.v1.RateLimiter, to copy: this file, and proto/weir/ beside it. It
 * needs the packages @grpc/grpc-js and @grpc/proto-loader, and knows nothing of your service.
 */
import {
  credentials,
  makeGenericClientConstructor,
  type CallOptions,
  type ServiceDefinition,
  type ServiceError,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';

/** What is asked. The fields are explained in the proto file. */
export interface Question {
  /** The set of rules; left out it is `default`. */
  readonly domain?: string;
  readonly descriptor: {
    readonly endpoint?: string;
    readonly user?: string;
    readonly ip?: string;
    readonly api_key?: string;
    readonly attributes?: Readonly<Record<string, string>>;
  };
  /** What the request costs; 1 when left out. */
  readonly hits?: number;
  readonly mode?: 'MODE_TAKE' | 'MODE_PEEK' | 'MODE_RECORD' | 'MODE_GIVE_BACK';
}

/** The answer. Numbers that Weir leaves out are absent here too, messages are null. */
export interface Answer {
  readonly allowed: boolean;
  readonly limit?: number;
  readonly remaining?: number;
  readonly reset_after: Duration | null;
  /** On a refusal only; null when the request can never fit. */
  readonly retry_after: Duration | null;
  readonly limit_name: string;
  /** Answered by policy, as Redis was not there in time. */
  readonly degraded: boolean;
  readonly limits: readonly {
    readonly name: string;
    readonly allowed: boolean;
    readonly limit?: number;
    readonly remaining?: number;
  }[];
}

export interface Duration {
  readonly seconds: number;
  readonly nanos: number;
}

export interface Weir {
  /** Rejects with a ServiceError when there is no answer: what then may pass is for you to say. */
  shouldRateLimit(question: Question): Promise<Answer>;
  close(): void;
}

const SERVICE = 'weir.v1.RateLimiter';

type Call = (
  question: Question,
  options: CallOptions,
  done: (error: ServiceError | null, answer: Answer) => void,
) => void;

/** One connection carries all calls; make one client, not one a request. `protos`: the path of proto/. */
export function connectToWeir(address: string, protos: string, timeoutMs = 20): Weir {
  const definition = loadSync('weir/v1/rate_limiter.proto', {
    includeDirs: [protos],
    keepCase: true,
    longs: Number,
    enums: String,
    defaults: true,
  });
  // Under a service's name stands a service; the loader's type covers messages too.
  const Client = makeGenericClientConstructor(definition[SERVICE] as ServiceDefinition, SERVICE);
  const client = new Client(address, credentials.createInsecure());
  return {
    shouldRateLimit: (question) =>
      new Promise((resolve, reject) => {
        const call = client['ShouldRateLimit'] as unknown as Call;
        // The deadline travels with the call: Weir answers within three quarters of it.
        call.call(client, question, { deadline: Date.now() + timeoutMs }, (error, answer) => {
          if (error === null) resolve(answer);
          else reject(error);
        });
      }),
    close: () => {
      client.close();
    },
  };
}

/** Whole seconds, rounded up, as the header Retry-After wants them. */
export function toSeconds(duration: Duration): number {
  return duration.seconds + (duration.nanos > 0 ? 1 : 0);
}
