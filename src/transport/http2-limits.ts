/**
 * What the gRPC library leaves open in HTTP/2: how large headers may be, how often a client may cancel,
 * time-outs that overflow, how much unfinished calls may hold, and how old a connection may be without
 * leaving something behind. This reaches into two of its fields, with care: without them nothing is
 * changed, and the tests say so.
 */
import {
  constants,
  type Http2Server,
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';

/** Of all headers of a call, as HTTP/2 counts them. Larger: the stream is reset. */
const MAX_HEADER_LIST_BYTES = 16_384;

/**
 * So many cancelled calls at once, and so many more a second, before a connection is taken for an attack
 * and cut with all its calls. Envoy cancels whenever its client goes: the default of 1000 and 33 is low.
 * Node 20 does not know these options and has the default built in.
 */
const RESETS = { streamResetBurst: 10_000, streamResetRate: 5000 };

/** Units of `grpc-timeout` that can overflow. */
const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000 };
/** The longest that a timer can run. */
const MAX_TIMER_MS = 2_147_483_647;

/** To be called before the server has a listener or an injector. */
export function limitHttp2(server: object): void {
  const options: unknown = Reflect.get(server, 'commonServerOptions');
  if (!isRecord(options)) return;
  const settings = isRecord(options['settings']) ? options['settings'] : {};
  Object.assign(options, RESETS, {
    settings: { ...settings, maxHeaderListSize: MAX_HEADER_LIST_BYTES },
  });
}

/** How old a connection may get. */
export interface ConnectionAge {
  /** After this, give or take a tenth, it is asked to go: clients spread over new replicas. */
  readonly maxAgeMs: number;
  /** After this much more it is ended. */
  readonly graceMs: number;
}

/** To be called once the server has a listener or an injector. */
export function watchHttp2(server: object, age: ConnectionAge): void {
  for (const http2Server of http2ServersOf(server)) {
    http2Server.prependListener('stream', (_stream, headers) => {
      dropEndlessTimeout(headers);
    });
    http2Server.on('session', (session) => {
      retire(session, age);
      boundUnanswered(session);
    });
  }
}

/** What the open calls of one connection may have sent, in bytes. */
const MAX_UNANSWERED_BYTES = 16_777_216;

/**
 * A message is kept until it is whole, and Node's own bound does not count what has been read: a thousand
 * calls that never finish theirs would hold a gigabyte a connection. The call that goes beyond is reset.
 */
function boundUnanswered(session: Http2Session): void {
  let total = 0;
  session.on('stream', (stream: ServerHttp2Stream) => {
    let own = 0;
    stream.on('data', (chunk: Buffer) => {
      own += chunk.length;
      total += chunk.length;
      if (total > MAX_UNANSWERED_BYTES) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    });
    stream.once('close', () => {
      total -= own;
    });
  });
}

/**
 * The library's own option draws a new duration for each connection, and Node keeps a list for each
 * duration that it has seen until it would have ended: 160 bytes a connection for a day. Hence steps.
 */
const JITTER_STEPS = 32;

function retire(session: Http2Session, { maxAgeMs, graceMs }: ConnectionAge): void {
  const step = Math.floor(Math.random() * (JITTER_STEPS + 1)) - JITTER_STEPS / 2;
  const jitterMs = Math.round((maxAgeMs / 10) * (step / (JITTER_STEPS / 2)));
  let timer = setTimeout(
    () => {
      // First the GOAWAY that still takes what is on its way, then the one that does not.
      if (!session.destroyed) session.goaway(constants.NGHTTP2_NO_ERROR, MAX_STREAM_ID);
      session.close();
      timer = setTimeout(
        () => {
          session.destroy();
        },
        Math.min(graceMs, MAX_TIMER_MS),
      ).unref();
    },
    Math.min(maxAgeMs + jitterMs, MAX_TIMER_MS),
  ).unref();
  session.once('close', () => {
    clearTimeout(timer);
  });
}

const MAX_STREAM_ID = 2_147_483_647;

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

/** The library's own HTTP/2 servers, of which there is one to each listener and injector. */
export function http2ServersOf(server: object): readonly Http2Server[] {
  const servers: unknown = Reflect.get(server, 'http2Servers');
  return servers instanceof Map ? [...(servers as Map<Http2Server, unknown>).keys()] : [];
}
