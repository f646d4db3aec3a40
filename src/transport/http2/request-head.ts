/**
 * What the headers of a request say: which method is called, how long the caller waits, and whether
 * this is gRPC at all. What is forwarded nowhere is not looked at: odd bytes in fields, and content-length,
 * as gRPC's own framing says where a message ends. Knows no connection.
 */
import { status } from '@grpc/grpc-js';
import type { Methods, StreamingMethod, UnaryMethod } from '../calls.js';
import type { HeaderField } from './hpack.js';

/** Why a call is not taken: a status of HTTP for what is not gRPC, else one of gRPC. */
export type Refusal =
  { readonly httpStatus: number } | { readonly code: status; readonly details: string };

export interface RequestHead {
  readonly fields: readonly HeaderField[];
  readonly unary: UnaryMethod | undefined;
  readonly streaming: StreamingMethod | undefined;
  /** Infinity without a `grpc-timeout`. */
  readonly patienceMs: number;
  /** Of messages that say that they are compressed. */
  readonly encoding: Encoding;
  readonly refusal: Refusal | undefined;
}

/** Encodings of messages that are understood. */
export const ENCODINGS = ['identity', 'deflate', 'gzip'] as const;
type Encoding = (typeof ENCODINGS)[number];

/** Headers that HTTP/2 has no use for, and forbids. */
const FORBIDDEN = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
]);

/** Undefined for headers that are no request (RFC 9113, 8.1.1: a stream error). */
export function parseHead(
  fields: readonly HeaderField[],
  methods: Methods,
): RequestHead | undefined {
  let method: string | undefined;
  let path: string | undefined;
  let scheme: string | undefined;
  let contentType = '';
  let timeout: string | undefined;
  let encoding = 'identity';
  let pseudoOver = false;
  for (const { name, value } of fields) {
    if (name.startsWith(':')) {
      if (pseudoOver) return undefined;
      if (name === ':method' && method === undefined) method = value;
      else if (name === ':path' && path === undefined) path = value;
      else if (name === ':scheme' && scheme === undefined) scheme = value;
      else if (name !== ':authority') return undefined;
      continue;
    }
    pseudoOver = true;
    if (name === 'grpc-timeout') timeout = value;
    else if (name === 'content-type') contentType = value;
    else if (name === 'grpc-encoding') encoding = value;
    else if (name === 'te') {
      if (value !== 'trailers') return undefined;
    } else if (FORBIDDEN.has(name) || hasUpperCase(name)) return undefined;
  }
  if (method === undefined || scheme === undefined || !path) return undefined;
  const patienceMs = timeout === undefined ? Infinity : parseTimeoutMs(timeout);
  return {
    fields,
    unary: methods.unary.get(path),
    streaming: methods.streaming.get(path),
    patienceMs: patienceMs ?? 0,
    // With any other the call is refused.
    encoding: ENCODINGS.find((known) => known === encoding) ?? 'identity',
    refusal: refusalOf(method, path, contentType, encoding, patienceMs, methods),
  };
}

function refusalOf(
  method: string,
  path: string,
  contentType: string,
  encoding: string,
  patienceMs: number | undefined,
  methods: Methods,
): Refusal | undefined {
  if (!contentType.startsWith('application/grpc')) return { httpStatus: 415 };
  if (method !== 'POST') return { httpStatus: 405 };
  if (!methods.unary.has(path) && !methods.streaming.has(path)) {
    return { code: status.UNIMPLEMENTED, details: 'there is no such method' };
  }
  if (patienceMs === undefined) {
    return { code: status.INTERNAL, details: 'grpc-timeout is no time' };
  }
  if (!ENCODINGS.some((known) => known === encoding)) {
    return { code: status.UNIMPLEMENTED, details: 'messages can be compressed by gzip or deflate' };
  }
  return undefined;
}

/** Trailers of a request: fields that must not be pseudo-headers. */
export function areTrailers(fields: readonly HeaderField[]): boolean {
  return !fields.some(({ name }) => name.startsWith(':') || hasUpperCase(name));
}

function hasUpperCase(name: string): boolean {
  for (let i = 0; i < name.length; i++) {
    const code = name.charCodeAt(i);
    if (code >= 65 && code <= 90) return true;
  }
  return false;
}

const UNIT_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
};

/** A `grpc-timeout`: at most eight digits and a unit. Undefined for what is none. */
function parseTimeoutMs(text: string): number | undefined {
  const digits = text.length - 1;
  const unitMs = UNIT_MS[text.charAt(digits)];
  if (digits < 1 || digits > 8 || unitMs === undefined) return undefined;
  let count = 0;
  for (let i = 0; i < digits; i++) {
    const digit = text.charCodeAt(i) - 48;
    if (digit < 0 || digit > 9) return undefined;
    count = count * 10 + digit;
  }
  return count * unitMs;
}
