/**
 * The protobuf wire format, as much of it as three small messages need: a reader that is bounded by the
 * message it is in, and a writer that fills its buffer from the end. Knows no message.
 */
import { RequestError } from '../limiter.js';

export const VARINT = 0;
export const FIXED64 = 1;
export const BYTES = 2;
export const START_GROUP = 3;
export const END_GROUP = 4;
export const FIXED32 = 5;

const TWO_32 = 4294967296;
/** Deeper groups are refused; no message of ours nests so far. */
const MAX_GROUP_DEPTH = 32;

/** A message that is not protobuf; its sender has to mend it. */
export function malformed(what: string): RequestError {
  return new RequestError('invalid_argument', `malformed message: ${what}`);
}

/** Names that were met lately, each in the place that its length and its ends give it. */
const NAMES = 256;
const names = new Array<string>(NAMES).fill('');
/** Longer ones are not kept: a caller must not fill our memory with them. */
const MAX_NAME_LENGTH = 64;

function placeOf(buffer: Buffer, from: number, end: number): number {
  return (end - from + (buffer[from] ?? 0) * 7 + (buffer[end - 1] ?? 0) * 31) % NAMES;
}

/** Whether the text's characters are these bytes, each one byte. */
function reads(text: string, buffer: Buffer, from: number): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) !== buffer[from + i]) return false;
  return true;
}

/**
 * Reads one message after the other out of a buffer. Every method throws RequestError
 * (`invalid_argument`) where the bytes end too early or are not protobuf; none reads beyond `end`.
 */
export class Reader {
  at = 0;
  end: number;

  constructor(private readonly buffer: Buffer) {
    this.end = buffer.length;
  }

  /** Whether the message goes on. */
  more(): boolean {
    return this.at < this.end;
  }

  /** The next field's number and wire type: number << 3 | type. */
  tag(): number {
    const tag = this.uint32();
    if (tag >>> 3 === 0) throw malformed('field number 0');
    return tag;
  }

  /** A varint's low 32 bits. */
  uint32(): number {
    const first = this.byte();
    if (first < 128) return first;
    let low = first & 127;
    for (let shift = 7; shift < 70; shift += 7) {
      const byte = this.byte();
      // Beyond bit 31 the bits are dropped, as every protobuf library does.
      if (shift < 32) low |= (byte & 127) << shift;
      if (byte < 128) return low >>> 0;
    }
    throw malformed('a number of more than ten bytes');
  }

  /** A 64-bit varint; from 2^53 on rounded to what a number can hold. */
  uint64(): number {
    const first = this.byte();
    if (first < 128) return first;
    let low = first & 127;
    let high = 0;
    for (let shift = 7; shift < 70; shift += 7) {
      const byte = this.byte();
      const bits = byte & 127;
      if (shift < 28) low |= bits << shift;
      else if (shift === 28) {
        low |= bits << 28;
        high = bits >>> 4;
      } else if (shift < 64) high |= bits << (shift - 32);
      if (byte < 128) return (high >>> 0) * TWO_32 + (low >>> 0);
    }
    throw malformed('a number of more than ten bytes');
  }

  /** True for any number but 0. */
  bool(): boolean {
    return this.uint64() !== 0;
  }

  /** Reads a length and returns where the field of that length ends. */
  until(): number {
    const length = this.uint32();
    const end = this.at + length;
    if (end > this.end) throw malformed('it ends in the middle of a field');
    return end;
  }

  /** Bytes that are not UTF-8 become U+FFFD; never throws for them. `name` is for the error. */
  string(maxBytes: number, name: string): string {
    const start = this.at;
    const end = this.until();
    const from = this.at;
    if (end - from > maxBytes) {
      this.at = start;
      throw new RequestError('invalid_argument', `${name}: longer than ${String(maxBytes)} bytes`);
    }
    this.at = end;
    return from === end ? '' : this.buffer.toString('utf8', from, end);
  }

  /** As `string`, for texts of which there are few: one that was met lately is not made anew. */
  name(maxBytes: number, name: string): string {
    const start = this.at;
    const end = this.until();
    const from = this.at;
    const place = placeOf(this.buffer, from, end);
    const known = names[place] ?? '';
    if (known.length === end - from && end - from <= maxBytes && reads(known, this.buffer, from)) {
      this.at = end;
      return known;
    }
    this.at = start;
    const text = this.string(maxBytes, name);
    // As many units as bytes: it is ASCII, or holds U+FFFD, which is no byte. Of others `reads` is not true.
    if (text.length === end - from && text.length <= MAX_NAME_LENGTH) names[place] = text;
    return text;
  }

  /** Skips the value of a field with this tag. */
  skip(tag: number, depth = 0): void {
    switch (tag & 7) {
      case VARINT:
        this.uint64();
        return;
      case FIXED64:
        this.advance(8);
        return;
      case BYTES:
        this.at = this.until();
        return;
      case START_GROUP:
        this.skipGroup(tag, depth);
        return;
      case FIXED32:
        this.advance(4);
        return;
      default:
        throw malformed(`wire type ${String(tag & 7)}`);
    }
  }

  private skipGroup(start: number, depth: number): void {
    if (depth >= MAX_GROUP_DEPTH) throw malformed('groups nested too deeply');
    for (;;) {
      const tag = this.tag();
      if ((tag & 7) === END_GROUP) {
        if (tag >>> 3 !== start >>> 3) throw malformed('a group ends that did not begin');
        return;
      }
      this.skip(tag, depth + 1);
    }
  }

  private byte(): number {
    if (this.at >= this.end) throw malformed('it ends in the middle of a field');
    return this.buffer[this.at++] ?? 0;
  }

  private advance(bytes: number): void {
    this.at += bytes;
    if (this.at > this.end) throw malformed('it ends in the middle of a field');
  }
}

/**
 * Writes a message from its last field to its first, so that a length is known when it is due and
 * nothing is measured twice. Call the methods in the reverse of the wire's order; repeated fields too.
 * One writer serves many messages: `finish` copies the bytes out and starts over.
 */
export class Writer {
  private buffer: Buffer;
  private at: number;

  constructor(size = 1024) {
    this.buffer = Buffer.allocUnsafe(size);
    this.at = size;
  }

  /** Bytes written so far: what `message` needs to know of where its fields end. */
  mark(): number {
    return this.buffer.length - this.at;
  }

  /** The finished message, and a writer as new. */
  finish(): Buffer {
    const bytes = Buffer.allocUnsafe(this.buffer.length - this.at);
    this.buffer.copy(bytes, 0, this.at);
    this.at = this.buffer.length;
    return bytes;
  }

  /** Forgets what has been written; for a message that failed half-way. */
  reset(): void {
    this.at = this.buffer.length;
  }

  /** A whole number from 0 to 2^53 - 1. */
  uint(field: number, value: number): void {
    this.varint(value);
    this.varint((field << 3) | VARINT);
  }

  bool(field: number, value: boolean): void {
    this.uint(field, value ? 1 : 0);
  }

  double(field: number, value: number): void {
    this.reserve(8);
    this.at -= 8;
    this.buffer.writeDoubleLE(value, this.at);
    this.varint((field << 3) | FIXED64);
  }

  string(field: number, value: string): void {
    const length = Buffer.byteLength(value);
    this.reserve(length);
    this.at -= length;
    this.buffer.write(value, this.at, 'utf8');
    this.varint(length);
    this.varint((field << 3) | BYTES);
  }

  /** Heads what was written since `mark` as a message in this field. */
  message(field: number, mark: number): void {
    this.varint(this.buffer.length - this.at - mark);
    this.varint((field << 3) | BYTES);
  }

  private varint(value: number): void {
    if (value < 128) {
      if (this.at === 0) this.reserve(1);
      this.buffer[--this.at] = value;
      return;
    }
    let bytes = 1;
    for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) bytes++;
    this.reserve(bytes);
    this.at -= bytes;
    let at = this.at;
    let rest = value;
    while (rest >= 128) {
      this.buffer[at++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.buffer[at] = rest;
  }

  private reserve(bytes: number): void {
    if (bytes <= this.at) return;
    const used = this.buffer.length - this.at;
    const larger = Buffer.allocUnsafe(Math.max(this.buffer.length * 2, used + bytes + 64));
    const at = larger.length - used;
    this.buffer.copy(larger, at, this.at);
    this.buffer = larger;
    this.at = at;
  }
}
