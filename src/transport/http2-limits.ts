/**
 * What the gRPC library leaves open in HTTP/2: how large headers may be, how often a client may cancel,
 * and time-outs that overflow. It has no options for these, so this reaches into two of its fields, with
 * care: without them nothing is changed, and the tests say so.
 */
import type { Http2Server, IncomingHttpHeaders } from 'node:http2';

/** Of all headers of a call, as HTTP/2 counts them. Larger: the stream is reset. */
const MAX_HEADER_LIST_BYTES = 16_384;

/**
 * So many cancelled calls at once, and so many more a second, before a connection is taken for an attack
 * and cut with all its calls. Envoy cancels whenever its client goes: the default of 1000 and 33 is low.
 * Node 20 does not know these options and has the default built in.
 */
const RESETS = { streamResetBurst: 10_000, streamResetRate: 5000 };

/** To be called before the server has a listener or an injector. */
export function limitHttp2(server: object): void {
  const options: unknown = Reflect.get(server, 'commonServerOptions');
  if (!isRecord(options)) return;
  const settings = isRecord(options['settings']) ? options['settings'] : {};
  Object.assign(options, RESETS, {
    settings: { ...settings, maxHeaderListSize: MAX_HEADER_LIST_BYTES },
  });
}

/**
 * To be called after that. The library counts a time-out in milliseconds of 32 bits, so that one of 25
 * days or more has passed at once; such a one is taken for none.
 */
export function mendTimeouts(server: object): void {
  const servers: unknown = Reflect.get(server, 'http2Servers');
  if (!(servers instanceof Map)) return;
  for (const http2Server of (servers as Map<Http2Server, unknown>).keys()) {
    http2Server.prependListener('stream', (_stream, headers) => {
      dropEndlessTimeout(headers);
    });
  }
}

const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000 };
const MAX_TIMER_MS = 2_147_483_647;

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
