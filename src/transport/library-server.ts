/**
 * Carries calls by the gRPC library, and closes what it leaves open in HTTP/2: how large headers may be, how
 * often a client may cancel, time-outs that overflow, how much unfinished calls may hold, and how old a
 * connection may be without leaving something behind. For that it reaches into two of the library's
 * fields, with care: without them nothing is changed, and the tests say so.
 */
import {
  constants,
  type Http2Server,
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import {
  Server,
  ServerCredentials,
  type status,
  type ConnectionInjector,
  type handleBidiStreamingCall,
  type handleUnaryCall,
  type MethodDefinition,
} from '@grpc/grpc-js';
import {
  jitteredAgeMs,
  MAX_HEADER_LIST_BYTES,
  MAX_TIMER_MS,
  MAX_UNFINISHED_BYTES,
  RESET_BURST,
  RESETS_PER_SECOND,
  type CallLimits,
  type CallServer,
  type Methods,
  type StreamingMethod,
  type UnaryMethod,
} from './calls.js';

/** Memory that one HTTP/2 session may hold, in MB. */
const MAX_SESSION_MEMORY_MB = 16;
const MAX_STREAM_ID = 2_147_483_647;
/** Units of `grpc-timeout` that can overflow. */
const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000 };

export class LibraryServer implements CallServer {
  /** The library does not tell. */
  readonly isAnswering = false;
  private readonly server: Server;
  private readonly injector: ConnectionInjector;
  private connections = 0;
  private done: (() => void) | undefined;

  constructor(methods: Methods, limits: CallLimits) {
    this.server = new Server({
      'grpc.max_receive_message_length': limits.maxMessageBytes,
      'grpc.max_concurrent_streams': limits.maxConcurrentStreams,
      'grpc.max_connection_idle_ms': limits.maxConnectionIdleMs,
      'grpc.keepalive_time_ms': limits.keepaliveTimeMs,
      'grpc.keepalive_timeout_ms': limits.keepaliveTimeoutMs,
      'grpc-node.max_session_memory': MAX_SESSION_MEMORY_MB,
      // Bookkeeping of every call that nobody reads.
      'grpc.enable_channelz': 0,
    });
    limitHttp2(this.server);
    addMethods(this.server, methods);
    this.injector = this.server.createConnectionInjector(ServerCredentials.createInsecure());
    watchHttp2(this.server, limits);
  }

  accept(socket: Socket): void {
    this.connections++;
    socket.once('close', () => {
      this.connections--;
      if (this.connections === 0) this.done?.();
    });
    this.injector.injectConnection(socket);
  }

  shutdown(done: () => void): void {
    // On Node 24 the library comes back at once, whatever is still being answered or on its way here.
    this.done = done;
    this.server.tryShutdown(() => {
      if (this.connections === 0) done();
    });
  }

  destroy(): void {
    this.server.forceShutdown();
  }
}

/** All messages pass as bytes: a codec that throws inside the library would become INTERNAL. */
const bytes = (message: Buffer): Buffer => message;

function addMethods(server: Server, methods: Methods): void {
  for (const [path, method] of methods.unary) {
    const definition = definitionOf(path, false);
    server.addService({ [path]: definition }, { [path]: unaryHandler(method) });
  }
  for (const [path, method] of methods.streaming) {
    const definition = definitionOf(path, true);
    server.addService({ [path]: definition }, { [path]: streamingHandler(method) });
  }
}

function definitionOf(path: string, stream: boolean): MethodDefinition<Buffer, Buffer> {
  return {
    path,
    requestStream: stream,
    responseStream: stream,
    requestSerialize: bytes,
    requestDeserialize: bytes,
    responseSerialize: bytes,
    responseDeserialize: bytes,
  };
}

function unaryHandler(method: UnaryMethod): handleUnaryCall<Buffer, Buffer> {
  return (call, callback) => {
    const unary = {
      // Milliseconds since the epoch, or Infinity; counted by the library from the call's headers.
      patienceMs: Number(call.getDeadline()) - Date.now(),
      header: (name: string) => call.metadata.get(name)[0]?.toString(),
      get cancelled() {
        return call.cancelled;
      },
      answer: (message: Buffer) => {
        callback(null, message);
      },
      fail: (code: status, details: string) => {
        callback({ code, details });
      },
    };
    method(unary, call.request);
  };
}

function streamingHandler(method: StreamingMethod): handleBidiStreamingCall<Buffer, Buffer> {
  return (call) => {
    const listener = method({
      write: (message) => {
        call.write(message);
      },
      end: () => {
        call.end();
      },
      fail: (code, details) => {
        call.emit('error', { code, details });
      },
    });
    call.on('data', (message: Buffer) => {
      listener.message(message);
    });
    call.on('end', () => {
      listener.ended();
    });
    call.on('close', () => {
      listener.closed();
    });
  };
}

/** To be called before the server has an injector. */
function limitHttp2(server: object): void {
  const options: unknown = Reflect.get(server, 'commonServerOptions');
  if (!isRecord(options)) return;
  const settings = isRecord(options['settings']) ? options['settings'] : {};
  Object.assign(options, {
    // Node 20 does not know these two and has 1000 and 33 built in.
    streamResetBurst: RESET_BURST,
    streamResetRate: RESETS_PER_SECOND,
    settings: { ...settings, maxHeaderListSize: MAX_HEADER_LIST_BYTES },
  });
}

/** To be called once the server has an injector. */
function watchHttp2(server: object, limits: CallLimits): void {
  const servers: unknown = Reflect.get(server, 'http2Servers');
  if (!(servers instanceof Map)) return;
  for (const http2Server of (servers as Map<Http2Server, unknown>).keys()) {
    http2Server.prependListener('stream', (_stream, headers) => {
      dropEndlessTimeout(headers);
    });
    http2Server.on('session', (session) => {
      retire(session, limits);
      boundUnfinished(session);
    });
  }
}

/**
 * A message is kept until it is whole, and Node's own bound does not count what has been read: a thousand
 * calls that never finish theirs would hold a gigabyte a connection. The call that goes beyond is reset.
 */
function boundUnfinished(session: Http2Session): void {
  let total = 0;
  session.on('stream', (stream: ServerHttp2Stream) => {
    let own = 0;
    stream.on('data', (chunk: Buffer) => {
      own += chunk.length;
      total += chunk.length;
      if (total > MAX_UNFINISHED_BYTES) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    });
    stream.once('close', () => {
      total -= own;
    });
  });
}

/** The library's own option draws a new duration for each connection, which Node would keep. */
function retire(session: Http2Session, limits: CallLimits): void {
  let timer = setTimeout(() => {
    // First the GOAWAY that still takes what is on its way, then the one that does not.
    if (!session.destroyed) session.goaway(constants.NGHTTP2_NO_ERROR, MAX_STREAM_ID);
    session.close();
    timer = setTimeout(
      () => {
        session.destroy();
      },
      Math.min(limits.maxConnectionAgeGraceMs, MAX_TIMER_MS),
    ).unref();
  }, jitteredAgeMs(limits.maxConnectionAgeMs)).unref();
  session.once('close', () => {
    clearTimeout(timer);
  });
}

/**
 * The library counts a time-out in milliseconds of 32 bits, so that one of 25 days or more has passed at
 * once; such a one is taken for none.
 */
function dropEndlessTimeout(headers: IncomingHttpHeaders): void {
  const timeout = headers['grpc-timeout'];
  if (typeof timeout !== 'string') return;
  const unitMs = UNIT_MS[timeout.slice(-1)];
  if (unitMs !== undefined && Number.parseInt(timeout, 10) * unitMs > MAX_TIMER_MS) {
    delete headers['grpc-timeout'];
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
