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

function descriptor(...entries: readonly (readonly [string, string])[]): Buffer {
  const parts = entries.map(([key, value]) =>
    field(1, field(1, Buffer.from(key)), field(2, Buffer.from(value))),
  );
  return field(2, ...parts);
}

/** A RateLimitRequest of the domain `bench` with two descriptors: (endpoint) and (endpoint, user). */
export function encodeTwo(endpoint: string, user: string): Buffer {
  return Buffer.concat([
    field(1, Buffer.from('bench')),
    descriptor(['endpoint', endpoint]),
    descriptor(['endpoint', endpoint], ['user', user]),
  ]);
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
export function callHeaders(authority: string): Buffer {
  const path = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit';
  const block = Buffer.concat([
    Buffer.from([0x83, 0x86]), // :method POST, :scheme http
    literal(4, path),
    literal(1, authority),
    literal(31, 'application/grpc'),
    literal('te', 'trailers'),
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
