/**
 * Unary calls straight on Node's HTTP/2 streams, beside the gRPC library, which costs half of what a
 * decision does. Takes only what is plain: a known path, no compression, a time-out that makes sense.
 * All else, and the connections themselves, stay the library's. Knows no message.
 */
import type {
  Http2Server,
  IncomingHttpHeaders,
  ServerHttp2Stream,
  ServerStreamResponseOptions,
} from 'node:http2';
import { status } from '@grpc/grpc-js';

/** A unary call, whoever carries it. One of `answer` and `fail` is called, once. */
export interface UnaryCall {
  readonly message: Buffer;
  /** What the caller has left, in ms; Infinity when it named no deadline. */
  readonly patienceMs: number;
  /** One of the call's headers, by its lower-case name. */
  header(name: string): string | undefined;
  /** The caller has gone: nobody waits for an answer. */
  readonly cancelled: boolean;
  answer(message: Buffer): void;
  /** `code` is not OK. */
  fail(code: status, details: string): void;
}

export interface DirectOptions {
  /** By path: what answers the calls. */
  readonly methods: ReadonlyMap<string, (call: UnaryCall) => void>;
  readonly maxMessageBytes: number;
  /** Told of every call that is taken; the library counts by it which connections are idle. */
  readonly opened: (stream: ServerHttp2Stream) => void;
}

/** One byte that says whether the message is compressed, four of its length. */
const PREFIX_BYTES = 5;
const NOTHING = Buffer.alloc(0);

const HEAD = { ':status': 200, 'content-type': 'application/grpc' } as const;
/** Without a `date`, which costs more than all else here; Node takes the option, its types do not. */
const HEAD_OPTIONS = { waitForTrailers: true, sendDate: false } as ServerStreamResponseOptions;
const FAILED_OPTIONS = { endStream: true, sendDate: false } as ServerStreamResponseOptions;
const TRAILERS = { 'grpc-status': '0' } as const;

/** To be called when the library has set up this server: its listeners get what is not taken. */
export function answerDirectly(server: Http2Server, options: DirectOptions): void {
  const library = server.listeners('stream');
  server.removeAllListeners('stream');
  server.on('stream', (stream, headers, ...rest: unknown[]) => {
    const method = options.methods.get(headers[':path'] ?? '');
    const patienceMs = patienceOf(headers);
    if (method === undefined || patienceMs === undefined || !isPlain(headers)) {
      for (const listener of library) Reflect.apply(listener, server, [stream, headers, ...rest]);
      return;
    }
    options.opened(stream);
    new DirectCall(stream, headers, patienceMs, method, options.maxMessageBytes);
  });
}

class DirectCall implements UnaryCall {
  message: Buffer = NOTHING;
  /** What has come so far; with room to grow once it comes in more than one piece. */
  private received: Buffer = NOTHING;
  private size = 0;
  private begun = false;

  constructor(
    private readonly stream: ServerHttp2Stream,
    private readonly headers: IncomingHttpHeaders,
    readonly patienceMs: number,
    private readonly method: (call: UnaryCall) => void,
    private readonly maxMessageBytes: number,
  ) {
    // A reset is the caller's business; without a listener it would end the process.
    stream.on('error', ignore);
    stream.on('data', (chunk: Buffer) => {
      this.read(chunk);
    });
    stream.on('end', () => {
      if (!this.begun) this.fail(status.INTERNAL, 'the request ended before its message did');
    });
  }

  header(name: string): string | undefined {
    return this.headers[name]?.toString();
  }

  get cancelled(): boolean {
    return isOver(this.stream);
  }

  answer(message: Buffer): void {
    const { stream } = this;
    if (isOver(stream)) return;
    const frame = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
    frame[0] = 0;
    frame.writeUInt32BE(message.length, 1);
    message.copy(frame, PREFIX_BYTES);
    stream.respond(HEAD, HEAD_OPTIONS);
    stream.once('wantTrailers', sendTrailers);
    stream.end(frame);
  }

  fail(code: status, details: string): void {
    this.begun = true;
    const { stream } = this;
    if (isOver(stream) || stream.headersSent) return;
    const status = { 'grpc-status': String(code), 'grpc-message': percentEncode(details) };
    stream.respond({ ...HEAD, ...status }, FAILED_OPTIONS);
  }

  private read(chunk: Buffer): void {
    if (this.begun) return;
    const bytes = this.append(chunk);
    if (bytes.length < PREFIX_BYTES) return;
    const length = bytes.readUInt32BE(1);
    if (length > this.maxMessageBytes) {
      const most = String(this.maxMessageBytes);
      this.fail(status.RESOURCE_EXHAUSTED, `a message of more than ${most} bytes`);
    } else if (bytes[0] !== 0) {
      this.fail(status.INTERNAL, 'a compressed message, and no header that says how');
    } else if (bytes.length >= PREFIX_BYTES + length) {
      this.begun = true;
      this.message = bytes.subarray(PREFIX_BYTES, PREFIX_BYTES + length);
      this.method(this);
    }
  }

  /** All that has come. The room doubles: a message in pieces of one byte must not cost its square. */
  private append(chunk: Buffer): Buffer {
    const before = this.size;
    this.size += chunk.length;
    if (before === 0) this.received = chunk;
    else {
      if (this.size > this.received.length) {
        const larger = Buffer.allocUnsafe(this.size * 2);
        this.received.copy(larger, 0, 0, before);
        this.received = larger;
      }
      chunk.copy(this.received, before);
    }
    return this.received.subarray(0, this.size);
  }
}

function sendTrailers(this: ServerHttp2Stream): void {
  if (!isOver(this)) this.sendTrailers(TRAILERS);
}

/**
 * Nothing more can be sent; to try would end the process. A stream that its client has reset without an
 * error is closed, and destroyed only when what has come of it is read.
 */
function isOver(stream: ServerHttp2Stream): boolean {
  return stream.closed || stream.destroyed;
}

function ignore(): void {
  // see where it is used
}

function isPlain(headers: IncomingHttpHeaders): boolean {
  const encoding = headers['grpc-encoding'];
  return (
    headers[':method'] === 'POST' &&
    (encoding === undefined || encoding === 'identity') &&
    headers['content-type']?.startsWith('application/grpc') === true
  );
}

const UNIT_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
};

/** Of `grpc-timeout`: Infinity without one, undefined for what is no time. */
function patienceOf(headers: IncomingHttpHeaders): number | undefined {
  const timeout = headers['grpc-timeout'];
  if (timeout === undefined) return Infinity;
  if (typeof timeout !== 'string' || !/^\d{1,8}[HMSmun]$/.test(timeout)) return undefined;
  return Number(timeout.slice(0, -1)) * (UNIT_MS[timeout.slice(-1)] ?? Infinity);
}

/** As the protocol wants a status's message: printable ASCII but for the percent sign. */
function percentEncode(text: string): string {
  return encodeURIComponent(text).replace(/%(2[0-46-9A-F]|3[A-F]|40|5[B-F]|60|7[B-E])/g, (code) =>
    decodeURIComponent(code),
  );
}
