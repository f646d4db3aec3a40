/**
 * The bytes of weir.v1's ShouldRateLimitRequest and ShouldRateLimitResponse. Knows field numbers, and
 * nothing of what they mean.
 */
import { RequestError } from '../limiter.js';
import { BYTES, END_GROUP, malformed, Reader, VARINT, Writer } from './protobuf.js';

/** A longer field of a descriptor is refused, in bytes. */
const MAX_FIELD_BYTES = 65_536;
/** More attributes are refused. */
const MAX_ATTRIBUTES = 16;

/** A ShouldRateLimitRequest as it came. */
export interface NativeRequest {
  readonly domain: string;
  readonly descriptor: NativeDescriptor | undefined;
  /** From 2^53 on rounded. Undefined when not set. */
  readonly hits: number | undefined;
  readonly mode: number;
}

export interface NativeDescriptor {
  readonly endpoint: string;
  readonly user: string;
  readonly ip: string;
  readonly apiKey: string;
  readonly attributes: ReadonlyMap<string, string>;
}

/** Undefined leaves a field out. Times in µs. */
export interface NativeResponse {
  readonly allowed: boolean;
  readonly limit: number | undefined;
  readonly remaining: number | undefined;
  /** µs since the epoch. */
  readonly resetTimeUs: number | undefined;
  readonly resetAfterUs: number | undefined;
  readonly retryAfterUs: number | undefined;
  readonly limitName: string;
  readonly degraded: boolean;
  readonly limits: readonly NativeLimitResult[];
}

export interface NativeLimitResult {
  readonly name: string;
  readonly allowed: boolean;
  readonly enforced: boolean;
  readonly degraded: boolean;
  /** A number of weir.v1.Algorithm; 0 when not disclosed. */
  readonly algorithm: number;
  readonly windowUs: number | undefined;
  readonly limit: number | undefined;
  readonly burst: number | undefined;
  readonly remaining: number | undefined;
  readonly resetAfterUs: number | undefined;
  readonly retryAfterUs: number | undefined;
}

/** Throws RequestError (`invalid_argument`) for bytes that are not a request, or beyond the bounds. */
export function decodeNativeRequest(bytes: Buffer): NativeRequest {
  const reader = new Reader(bytes);
  let domain = '';
  let descriptor: MutableDescriptor | undefined;
  let hits: number | undefined;
  let mode = 0;
  while (reader.more()) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) domain = reader.string(MAX_FIELD_BYTES, 'domain');
    else if (tag === ((2 << 3) | BYTES)) {
      descriptor ??= { endpoint: '', user: '', ip: '', apiKey: '', attributes: new Map() };
      const outer = enter(reader);
      decodeDescriptor(reader, descriptor);
      reader.end = outer;
    } else if (tag === ((3 << 3) | VARINT)) hits = reader.uint64();
    else if (tag === ((4 << 3) | VARINT)) mode = reader.uint32();
    else skip(reader, tag);
  }
  return { domain, descriptor, hits, mode };
}

interface MutableDescriptor {
  endpoint: string;
  user: string;
  ip: string;
  apiKey: string;
  attributes: Map<string, string>;
}

function decodeDescriptor(reader: Reader, into: MutableDescriptor): void {
  while (reader.more()) {
    const tag = reader.tag();
    switch (tag) {
      case (1 << 3) | BYTES:
        into.endpoint = reader.string(MAX_FIELD_BYTES, 'descriptor.endpoint');
        break;
      case (2 << 3) | BYTES:
        into.user = reader.string(MAX_FIELD_BYTES, 'descriptor.user');
        break;
      case (3 << 3) | BYTES:
        into.ip = reader.string(MAX_FIELD_BYTES, 'descriptor.ip');
        break;
      case (4 << 3) | BYTES:
        into.apiKey = reader.string(MAX_FIELD_BYTES, 'descriptor.api_key');
        break;
      case (5 << 3) | BYTES: {
        const outer = enter(reader);
        decodeAttribute(reader, into.attributes);
        reader.end = outer;
        break;
      }
      default:
        skip(reader, tag);
    }
  }
}

function decodeAttribute(reader: Reader, into: Map<string, string>): void {
  let key = '';
  let value = '';
  while (reader.more()) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) key = reader.string(MAX_FIELD_BYTES, 'descriptor.attributes');
    else if (tag === ((2 << 3) | BYTES)) {
      value = reader.string(MAX_FIELD_BYTES, 'descriptor.attributes');
    } else skip(reader, tag);
  }
  into.set(key, value);
  if (into.size > MAX_ATTRIBUTES) {
    throw new RequestError(
      'invalid_argument',
      `descriptor.attributes: more than ${String(MAX_ATTRIBUTES)}`,
    );
  }
}

/** Narrows the reader to the message that begins here; returns the end to go back to. */
function enter(reader: Reader): number {
  const outer = reader.end;
  reader.end = reader.until();
  return outer;
}

function skip(reader: Reader, tag: number): void {
  if ((tag & 7) === END_GROUP) throw malformed('a group ends that did not begin');
  reader.skip(tag);
}

const writer = new Writer(4096);

/** The bytes of a response. Does not throw for a response of this module's type. */
export function encodeNativeResponse(response: NativeResponse): Buffer {
  writer.reset();
  const { limits } = response;
  for (let i = limits.length - 1; i >= 0; i--) {
    const limit = limits[i];
    if (limit !== undefined) writeLimit(limit);
  }
  if (response.degraded) writer.bool(8, true);
  if (response.limitName !== '') writer.string(7, response.limitName);
  writeTime(6, response.retryAfterUs);
  writeTime(5, response.resetAfterUs);
  writeTime(4, response.resetTimeUs);
  if (response.remaining !== undefined) writer.uint(3, response.remaining);
  if (response.limit !== undefined) writer.uint(2, response.limit);
  if (response.allowed) writer.bool(1, true);
  return writer.finish();
}

function writeLimit(limit: NativeLimitResult): void {
  const mark = writer.mark();
  writeTime(11, limit.retryAfterUs);
  writeTime(10, limit.resetAfterUs);
  if (limit.remaining !== undefined) writer.uint(9, limit.remaining);
  if (limit.burst !== undefined) writer.uint(8, limit.burst);
  if (limit.limit !== undefined) writer.uint(7, limit.limit);
  writeTime(6, limit.windowUs);
  if (limit.algorithm !== 0) writer.uint(5, limit.algorithm);
  if (limit.degraded) writer.bool(4, true);
  if (limit.enforced) writer.bool(3, true);
  if (limit.allowed) writer.bool(2, true);
  if (limit.name !== '') writer.string(1, limit.name);
  writer.message(9, mark);
}

/** google.protobuf.Duration and Timestamp are alike: whole seconds, and the rest in nanoseconds. */
function writeTime(field: number, us: number | undefined): void {
  if (us === undefined) return;
  const mark = writer.mark();
  const seconds = Math.floor(us / 1_000_000);
  const nanos = (us - seconds * 1_000_000) * 1000;
  if (nanos !== 0) writer.uint(2, nanos);
  if (seconds !== 0) writer.uint(1, seconds);
  writer.message(field, mark);
}
