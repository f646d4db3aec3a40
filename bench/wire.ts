/**
 * The bytes that a load is made of: requests of Envoy's API, and as much of HTTP/2 (RFC 9113) as a client
 * needs that sends one kind of call. Knows no sockets.
 */

/** Kinds of frames that a client meets. */
export const FRAME = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  window: 8,
} as const;

/** Flags; `ack` is of settings and pings, `endStream` of data and headers. */
export const FLAG = { ack: 1, endStream: 1, endHeaders: 4 } as const;

const FRAME_HEAD_BYTES = 9;

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Buffer.from([...bytes, rest]);
}

function field(number: number, ...parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([varint(number * 8 + 2), varint(body.length), body]);
}

function encodeEntries(entries: Entries): Buffer[] {
  return entries.map(([key, value]) =>
    field(1, field(1, Buffer.from(key)), field(2, Buffer.from(value))),
  );
}

/** A descriptor's entries: keys and values. */
export type Entries = readonly (readonly [string, string])[];

/** A RateLimitRequest of the domain `bench`. */
export function encodeRequest(...descriptors: readonly Entries[]): Buffer {
  const parts = descriptors.map((entries) => field(2, ...encodeEntries(entries)));
  return Buffer.concat([field(1, Buffer.from('bench')), ...parts]);
}

/** With two descriptors: (endpoint) and (endpoint, user). */
export function encodeTwo(endpoint: string, user: string): Buffer {
  const byEndpoint = ['endpoint', endpoint] as const;
  return encodeRequest([byEndpoint], [byEndpoint, ['user', user]]);
}

/**
 * A RateLimitRequest of the domain `bench` with one descriptor, (endpoint, user), and `hits` of its own, if
 * given; at most 127.
 */
export function encodeOne(endpoint: string, user: string, hits?: number): Buffer {
  const entries = encodeEntries([
    ['endpoint', endpoint],
    ['user', user],
  ]);
  const own = hits === undefined ? [] : [field(3, Buffer.from([8, hits]))];
  return Buffer.concat([field(1, Buffer.from('bench')), field(2, ...entries, ...own)]);
}

/** What a RateLimitResponse says of its first descriptor: who decided, and what is left. */
export function decodeStatus(message: Buffer): { byStore: boolean; remaining: number } {
  const status = fieldOf(message, 2);
  if (!(status instanceof Buffer)) return { byStore: false, remaining: 0 };
  // Only a decision of the store tells its limit.
  return { byStore: fieldOf(status, 2) !== undefined, remaining: Number(fieldOf(status, 3) ?? 0) };
}

/** The first field of that number, as far as there are varints and bytes only. */
function fieldOf(message: Buffer, wanted: number): number | Buffer | undefined {
  let at = 0;
  const varintHere = (): number => {
    let value = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = message[at++] ?? 0;
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = varintHere();
    const value = varintHere();
    if ((tag & 7) === 0 && tag >>> 3 === wanted) return value;
    if ((tag & 7) === 0) continue;
    if (tag >>> 3 === wanted) return message.subarray(at, at + value);
    at += value;
  }
  return undefined;
}

/** One frame. `payload` is at most what every peer takes, 16 KiB. */
export function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const bytes = Buffer.alloc(FRAME_HEAD_BYTES + payload.length);
  bytes.writeUIntBE(payload.length, 0, 3);
  bytes.writeUInt8(type, 3);
  bytes.writeUInt8(flags, 4);
  bytes.writeUInt32BE(stream, 5);
  payload.copy(bytes, FRAME_HEAD_BYTES);
  return bytes;
}

/** What a connection begins with: no pushes, and windows so large that no answer ever waits. */
export function preface(): Buffer {
  const settings = Buffer.from('000200000000000400400000', 'hex');
  return Buffer.concat([
    Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
    frame(FRAME.settings, 0, 0, settings),
    windowUpdate(0x3fffffff),
  ]);
}

export function windowUpdate(bytes: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(bytes);
  return frame(FRAME.window, 0, 0, payload);
}

/** HPACK (RFC 7541) without a table of its own: literals, names from the static table where it has them. */
function literal(name: number | string, value: string): Buffer {
  const text = (raw: string): Buffer =>
    Buffer.concat([Buffer.from([raw.length]), Buffer.from(raw)]);
  const head =
    typeof name === 'number' ? indexed(name) : Buffer.concat([Buffer.from([0]), text(name)]);
  return Buffer.concat([head, text(value)]);
}

/** An index of the static table in a literal: four bits, and a second byte from 15 on. */
function indexed(index: number): Buffer {
  return Buffer.from(index < 15 ? [index] : [15, index - 15]);
}

/** The headers of every call, for stream 0: write the stream's number at byte 5. */
export function callHeaders(authority: string, timeoutMs?: number): Buffer {
  const path = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit';
  const block = Buffer.concat([
    Buffer.from([0x83, 0x86]), // :method POST, :scheme http
    literal(4, path),
    literal(1, authority),
    literal(31, 'application/grpc'),
    literal('te', 'trailers'),
    ...(timeoutMs === undefined ? [] : [literal('grpc-timeout', `${timeoutMs}m`)]),
  ]);
  return frame(FRAME.headers, FLAG.endHeaders, 0, block);
}

/** The data frame of a call, its message framed as gRPC does. */
export function callData(stream: number, message: Buffer): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return frame(FRAME.data, FLAG.endStream, stream, Buffer.concat([prefix, message]));
}

/** Frames out of a stream of bytes; what is incomplete waits for the rest. */
export class FrameReader {
  private rest: Buffer = Buffer.alloc(0);

  read(
    bytes: Buffer,
    seen: (type: number, flags: number, stream: number, payload: Buffer) => void,
  ): void {
    const all = this.rest.length === 0 ? bytes : Buffer.concat([this.rest, bytes]);
    let at = 0;
    while (all.length - at >= FRAME_HEAD_BYTES) {
      const end = at + FRAME_HEAD_BYTES + all.readUIntBE(at, 3);
      if (all.length < end) break;
      const stream = all.readUInt32BE(at + 5) & 0x7fffffff;
      seen(all.readUInt8(at + 3), all.readUInt8(at + 4), stream, all.subarray(at + 9, end));
      at = end;
    }
    this.rest = all.subarray(at);
  }
}
