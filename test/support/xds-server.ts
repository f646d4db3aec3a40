/** A management server for tests: speaks aggregated discovery and sends exactly what it is told. */
import {
  Server,
  ServerCredentials,
  type MethodDefinition,
  type ServerDuplexStream,
} from '@grpc/grpc-js';
import {
  loadSync,
  type MessageTypeDefinition,
  type PackageDefinition,
  type ServiceDefinition,
} from '@grpc/proto-loader';

export const TYPE_URL = 'type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig';

export interface ReceivedRequest {
  readonly version_info: string;
  readonly type_url: string;
  readonly response_nonce: string;
  readonly resource_names: readonly string[];
  readonly node: {
    readonly id: string;
    readonly metadata: { readonly fields: Record<string, { readonly stringValue?: string }> };
  };
  readonly error_detail: { readonly code: number; readonly message: string } | null;
  /** The headers of the stream that it came on. */
  readonly headers: Readonly<Record<string, unknown>>;
}

type Answers = ServerDuplexStream<Omit<ReceivedRequest, 'headers'>, object>;

const WAIT_MS = 3000;

export const definitions: PackageDefinition = loadSync(
  ['envoy/service/discovery/v3/ads.proto', 'ratelimit/config/ratelimit/v3/rls_conf.proto'],
  { includeDirs: ['proto'], keepCase: true, enums: String, longs: Number, defaults: true },
);

/** Any resource by the type's full name, encoded as a server sends it. */
export function pack(message: object, type = 'ratelimit.config.ratelimit.v3.RateLimitConfig') {
  const definition = definitions[type] as MessageTypeDefinition<object, object>;
  return { type_url: `type.googleapis.com/${type}`, value: definition.serialize(message) };
}

export class XdsTestServer {
  readonly requests: ReceivedRequest[] = [];
  private consumed = 0;
  private nonces = 0;
  private readonly streams = new Set<Answers>();
  private wake: (() => void) | undefined;

  private constructor(
    private readonly server: Server,
    public port: number,
    /** Answers each request by itself; otherwise only `send` answers. */
    public onRequest: ((request: ReceivedRequest) => void) | undefined,
  ) {}

  static async start(options?: {
    readonly port?: number;
    readonly credentials?: ServerCredentials;
  }): Promise<XdsTestServer> {
    const server = new Server({ 'grpc.max_send_message_length': -1 });
    const started = new XdsTestServer(server, 0, undefined);
    const service = definitions[
      'envoy.service.discovery.v3.AggregatedDiscoveryService'
    ] as ServiceDefinition as Record<string, MethodDefinition<object, object>>;
    server.addService(service, {
      StreamAggregatedResources: (stream: Answers) => {
        started.accept(stream);
      },
    });
    started.port = await new Promise<number>((resolve, reject) => {
      server.bindAsync(
        `127.0.0.1:${options?.port ?? 0}`,
        options?.credentials ?? ServerCredentials.createInsecure(),
        (error, port) => {
          if (error === null) resolve(port);
          else reject(error);
        },
      );
    });
    return started;
  }

  /** The next request that was not looked at yet. */
  async request(): Promise<ReceivedRequest> {
    const deadline = Date.now() + WAIT_MS;
    for (;;) {
      const next = this.requests[this.consumed];
      if (next !== undefined) {
        this.consumed++;
        return next;
      }
      const leftMs = deadline - Date.now();
      if (leftMs <= 0) throw new Error(`no request within ${WAIT_MS} ms`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  /** Sends to every stream; returns the nonce. */
  send(version: string, resources: readonly object[], typeUrl = TYPE_URL): string {
    const nonce = `n${++this.nonces}`;
    for (const stream of this.streams) {
      stream.write({ version_info: version, resources, type_url: typeUrl, nonce });
    }
    return nonce;
  }

  /** Ends every stream as a server does that is told to; the server stays. */
  endStreams(): void {
    for (const stream of this.streams) stream.end();
    this.streams.clear();
  }

  /** Gone at once, connections and all. */
  stop(): void {
    this.server.forceShutdown();
    this.streams.clear();
  }

  private accept(stream: Answers): void {
    this.streams.add(stream);
    const headers = stream.metadata.getMap();
    stream.on('data', (message: Omit<ReceivedRequest, 'headers'>) => {
      const request = { ...message, headers };
      this.requests.push(request);
      this.wake?.();
      this.onRequest?.(request);
    });
    const forget = (): void => {
      this.streams.delete(stream);
    };
    stream.on('end', forget);
    stream.on('error', forget);
    stream.on('cancelled', forget);
  }
}
