/**
 * HTTP/2's frames (RFC 9113): their numbers, and the bytes of those that we send. Knows no stream's
 * state and no gRPC but the two header blocks of an answer.
 */

export const DATA = 0;
export const HEADERS = 1;
export const PRIORITY = 2;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const PUSH_PROMISE = 5;
export const PING = 6;
export const GOAWAY = 7;
export const WINDOW_UPDATE = 8;
export const CONTINUATION = 9;

export const ACK = 0x1;
export const END_STREAM = 0x1;
export const END_HEADERS = 0x4;
export const PADDED = 0x8;
export const WITH_PRIORITY = 0x20;

export const SETTING = {
  headerTableSize: 1,
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindowSize: 4,
  maxFrameSize: 5,
  maxHeaderListSize: 6,
} as const;

export const ERROR = {
  none: 0,
  protocol: 1,
  internal: 2,
  flowControl: 3,
  streamClosed: 5,
  frameSize: 6,
  refusedStream: 7,
  cancel: 8,
  compression: 9,
  enhanceYourCalm: 11,
} as const;

/** Length, type, flags and stream. */
export const FRAME_HEAD_BYTES = 9;
/** What a frame may hold as long as neither side says otherwise; we do not. */
export const MAX_FRAME_BYTES = 16_384;
/** A window before anybody says otherwise. */
export const DEFAULT_WINDOW = 65_535;
export const MAX_WINDOW = 2_147_483_647;
export const MAX_STREAM_ID = 2_147_483_647;

/** What a client sends first. */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/** gRPC's own head of a message: whether it is compressed, and its length. */
export const PREFIX_BYTES = 5;

/** A buffer that has become larger is not kept: most connections are idle most of the time. */
const RETAINED_BYTES = 16_384;

/** A header block of literals that neither side remembers, so that it is the same bytes each time. */
export function headerBlock(fields: readonly (readonly [name: string, value: string])[]): Buffer {
  // By way of a string: to put many small buffers together takes 5 µs, and calls that fail are cheap to make.
  let block = '';
  for (const [name, value] of fields)
    block += `\0${lengthOf(name)}${name}${lengthOf(value)}${value}`;
  return Buffer.from(block, 'latin1');
}

/** What stands before a text: a number with a prefix of seven bits (RFC 7541, 5.1). */
function lengthOf(text: string): string {
  const { length } = text;
  if (length < 127) return String.fromCharCode(length);
  let bytes = '\x7f';
  let rest = length - 127;
  for (; rest > 127; rest >>>= 7) bytes += String.fromCharCode((rest & 127) | 128);
  return bytes + String.fromCharCode(rest);
}

export const CONTENT_TYPE = 'application/grpc';

/** `:status: 200` of the static table, then a literal with a name of the static table: content-type. */
const RESPONSE_BLOCK = Buffer.from(
  `\x88\x0f\x10${lengthOf(CONTENT_TYPE)}${CONTENT_TYPE}`,
  'latin1',
);
const TRAILER_BLOCK = headerBlock([['grpc-status', '0']]);

/** The frames around a message that fits one frame, with zeros where its length and stream go. */
const ANSWER_HEAD = Buffer.concat([
  frameHead(RESPONSE_BLOCK.length, HEADERS, END_HEADERS),
  RESPONSE_BLOCK,
  frameHead(0, DATA, 0),
  Buffer.alloc(PREFIX_BYTES),
]);
const ANSWER_TAIL = Buffer.concat([
  frameHead(TRAILER_BLOCK.length, HEADERS, END_HEADERS | END_STREAM),
  TRAILER_BLOCK,
]);
const DATA_AT = FRAME_HEAD_BYTES + RESPONSE_BLOCK.length;
/** Of the stream's number in a frame's head. */
const STREAM_AT = 5;

function frameHead(length: number, type: number, flags: number): Buffer {
  return Buffer.from([length >>> 16, length >>> 8, length, type, flags, 0, 0, 0, 0]);
}

/** Frames on their way out, until `take`. */
export class FrameWriter {
  private bytes = Buffer.allocUnsafeSlow(4096);
  private size = 0;

  /** Of the frames since the last `take`, in bytes. */
  get length(): number {
    return this.size;
  }

  /** All frames since the last time. */
  take(): Buffer {
    const { bytes, size } = this;
    this.size = 0;
    if (bytes.length > RETAINED_BYTES) {
      this.bytes = Buffer.allocUnsafeSlow(4096);
      return bytes.subarray(0, size);
    }
    const taken = Buffer.allocUnsafe(size);
    bytes.copy(taken, 0, 0, size);
    return taken;
  }

  /** A whole answer in one frame of data; the message is at most MAX_FRAME_BYTES less its prefix. */
  answer(stream: number, message: Buffer): void {
    const { length } = message;
    const at = this.reserve(ANSWER_HEAD.length + length + ANSWER_TAIL.length);
    const { bytes } = this;
    bytes.set(ANSWER_HEAD, at);
    write32(bytes, at + STREAM_AT, stream);
    const data = at + DATA_AT;
    write24(bytes, data, PREFIX_BYTES + length);
    write32(bytes, data + STREAM_AT, stream);
    write32(bytes, data + FRAME_HEAD_BYTES + 1, length);
    bytes.set(message, at + ANSWER_HEAD.length);
    const tail = at + ANSWER_HEAD.length + length;
    bytes.set(ANSWER_TAIL, tail);
    write32(bytes, tail + STREAM_AT, stream);
  }

  /** The head of an answer whose data follow in frames of their own. */
  response(stream: number): void {
    this.frame(HEADERS, END_HEADERS, stream, RESPONSE_BLOCK);
  }

  /** The end of an answer: status OK. */
  trailers(stream: number): void {
    this.frame(HEADERS, END_HEADERS | END_STREAM, stream, TRAILER_BLOCK);
  }

  reset(stream: number, code: number): void {
    const at = this.open(RST_STREAM, 0, stream, 4);
    write32(this.bytes, at, code);
  }

  goAway(lastStream: number, code: number): void {
    const at = this.open(GOAWAY, 0, 0, 8);
    write32(this.bytes, at, lastStream);
    write32(this.bytes, at + 4, code);
  }

  windowUpdate(stream: number, increment: number): void {
    const at = this.open(WINDOW_UPDATE, 0, stream, 4);
    write32(this.bytes, at, increment);
  }

  settings(values: readonly (readonly [setting: number, value: number])[]): void {
    let at = this.open(SETTINGS, 0, 0, values.length * 6);
    for (const [setting, value] of values) {
      this.bytes[at] = 0;
      this.bytes[at + 1] = setting;
      write32(this.bytes, at + 2, value);
      at += 6;
    }
  }

  /** Any frame; the payload is at most MAX_FRAME_BYTES. */
  frame(type: number, flags: number, stream: number, payload: Buffer): void {
    const at = this.open(type, flags, stream, payload.length);
    this.bytes.set(payload, at);
  }

  /** Writes a frame's head and returns where its payload goes; `bytes` may be others afterwards. */
  private open(type: number, flags: number, stream: number, length: number): number {
    const at = this.reserve(FRAME_HEAD_BYTES + length);
    write24(this.bytes, at, length);
    this.bytes[at + 3] = type;
    this.bytes[at + 4] = flags;
    write32(this.bytes, at + STREAM_AT, stream);
    return at + FRAME_HEAD_BYTES;
  }

  private reserve(length: number): number {
    const at = this.size;
    this.size += length;
    if (this.size > this.bytes.length) {
      const larger = Buffer.allocUnsafeSlow(this.size * 2);
      this.bytes.copy(larger, 0, 0, at);
      this.bytes = larger;
    }
    return at;
  }
}

function write24(bytes: Buffer, at: number, value: number): void {
  bytes[at] = value >>> 16;
  bytes[at + 1] = value >>> 8;
  bytes[at + 2] = value;
}

function write32(bytes: Buffer, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

/** Of four bytes, without the bit that HTTP/2 reserves. */
export function read31(bytes: Buffer, at: number): number {
  return read32(bytes, at) & MAX_WINDOW;
}

export function read32(bytes: Buffer, at: number): number {
  return (
    (((bytes[at] ?? 0) << 24) |
      ((bytes[at + 1] ?? 0) << 16) |
      ((bytes[at + 2] ?? 0) << 8) |
      (bytes[at + 3] ?? 0)) >>>
    0
  );
}
