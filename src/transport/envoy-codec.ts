/**
 * The bytes of Envoy's RateLimitRequest and RateLimitResponse, straight into and out of the model.
 * Written by hand because it runs once a request; the tests hold it against a generated codec. Knows
 * field numbers and bounds, and nothing of what they mean.
 */
import { RequestError } from '../limiter.js';
import {
  MAX_HITS,
  type Descriptor,
  type Entry,
  type JsonObject,
  type JsonValue,
  type LimitOverride,
  type Unit,
} from '../model.js';
import { BYTES, END_GROUP, malformed, Reader, VARINT, Writer } from './protobuf.js';

/** How much a request may hold. More is `invalid_argument`, naming the field. */
export interface RequestBounds {
  readonly maxDescriptors: number;
  readonly maxEntries: number;
  /** Of a key or a value, in bytes. */
  readonly maxValueBytes: number;
}

/** Entries a descriptor, and bytes a value, that any request may have. */
export const MAX_ENTRIES = 32;
export const MAX_VALUE_BYTES = 65_536;

/** A RateLimitRequest as it came, but for overrides without a valid unit, which are left out. */
export interface EnvoyRequest {
  readonly domain: string;
  readonly descriptors: readonly Descriptor[];
  /** 0 when not set. */
  readonly hitsAddend: number;
}

export const CODE_OK = 1;
export const CODE_OVER_LIMIT = 2;

/** `current_limit` of a status. */
export interface CurrentLimit {
  readonly requestsPerUnit: number;
  /** A number of RateLimitResponse.RateLimit.Unit. */
  readonly unit: number;
  readonly name: string;
}

/** One descriptor's status, in the units of the wire. */
export interface EnvoyStatus {
  readonly code: typeof CODE_OK | typeof CODE_OVER_LIMIT;
  readonly currentLimit: CurrentLimit | undefined;
  /** At most 2^32 - 1. */
  readonly limitRemaining: number;
  /** Whole seconds; 0 is "not set". */
  readonly secondsUntilReset: number;
}

export interface Header {
  readonly key: string;
  readonly value: string;
}

export interface EnvoyResponse {
  readonly overallCode: typeof CODE_OK | typeof CODE_OVER_LIMIT;
  readonly statuses: readonly EnvoyStatus[];
  readonly headers: readonly Header[];
  readonly dynamicMetadata: JsonObject | undefined;
}

/** Units by their number in both enums; 7 is in the response's only, and taken in requests too. */
const UNITS: readonly (Unit | undefined)[] = [
  undefined,
  'second',
  'minute',
  'hour',
  'day',
  'month',
  'year',
  'week',
];

/** The unit with this number in Envoy's enums; undefined for UNKNOWN and numbers they lack. */
export function unitOf(wire: number): Unit | undefined {
  return UNITS[wire];
}

/** The number of a unit in RateLimitResponse.RateLimit.Unit. */
export function unitNumber(unit: Unit): number {
  return UNITS.indexOf(unit);
}

/** Throws RequestError (`invalid_argument`) for bytes that are not a request, or beyond the bounds. */
export function decodeRequest(bytes: Buffer, bounds: RequestBounds): EnvoyRequest {
  const reader = new Reader(bytes);
  let domain = '';
  let hitsAddend = 0;
  let descriptors: Descriptor[] = [];
  while (reader.more()) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) domain = reader.name(bounds.maxValueBytes, 'domain');
    else if (tag === ((2 << 3) | BYTES)) {
      if (descriptors.length >= bounds.maxDescriptors) {
        throw new RequestError(
          'invalid_argument',
          `descriptors: more than ${String(bounds.maxDescriptors)}`,
        );
      }
      const outer = enter(reader);
      descriptors = append(descriptors, decodeDescriptor(reader, bounds));
      reader.end = outer;
    } else if (tag === ((3 << 3) | VARINT)) hitsAddend = reader.uint32();
    else skip(reader, tag);
  }
  return { domain, descriptors, hitsAddend };
}

function decodeDescriptor(reader: Reader, bounds: RequestBounds): Descriptor {
  let entries: Entry[] = [];
  let override: WireOverride | undefined;
  let hits: number | undefined;
  let giveBack = false;
  while (reader.more()) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) {
      if (entries.length >= bounds.maxEntries) {
        throw new RequestError(
          'invalid_argument',
          `descriptors.entries: more than ${String(bounds.maxEntries)}`,
        );
      }
      const outer = enter(reader);
      entries = append(entries, decodeEntry(reader, bounds));
      reader.end = outer;
    } else if (tag === ((2 << 3) | BYTES)) {
      const outer = enter(reader);
      override = decodeOverride(reader, override ?? { requests: 0, unit: 0 });
      reader.end = outer;
    } else if (tag === ((3 << 3) | BYTES)) {
      const outer = enter(reader);
      hits = decodeUInt64Value(reader, hits ?? 0);
      reader.end = outer;
    } else if (tag === ((4 << 3) | VARINT)) giveBack = reader.bool();
    else skip(reader, tag);
  }
  return { entries, override: override && toOverride(override), hits, giveBack };
}

/** To an empty list `push` gives room for 17; most have one item or two. */
function append<Item>(list: Item[], item: Item): Item[] {
  const first = list[0];
  if (first === undefined) return [item];
  if (list.length === 1) return [first, item];
  list.push(item);
  return list;
}

function decodeEntry(reader: Reader, bounds: RequestBounds): Entry {
  let key = '';
  let value = '';
  while (reader.more()) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) {
      key = reader.name(bounds.maxValueBytes, 'descriptors.entries.key');
    } else if (tag === ((2 << 3) | BYTES)) {
      value = reader.string(bounds.maxValueBytes, 'descriptors.entries.value');
    } else skip(reader, tag);
  }
  return { key, value };
}

interface WireOverride {
  readonly requests: number;
  readonly unit: number;
}

/** A second occurrence of a message field adds to the first, hence what there was before. */
function decodeOverride(reader: Reader, before: WireOverride): WireOverride {
  let { requests, unit } = before;
  while (reader.more()) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | VARINT)) requests = reader.uint32();
    else if (tag === ((2 << 3) | VARINT)) unit = reader.uint32();
    else skip(reader, tag);
  }
  return { requests, unit };
}

/** Without a valid unit there is no override: the configured limit holds, and the call is answered. */
function toOverride(wire: WireOverride): LimitOverride | undefined {
  const unit = unitOf(wire.unit);
  return unit && { requests: wire.requests, unit };
}

function decodeUInt64Value(reader: Reader, before: number): number {
  let value = before;
  while (reader.more()) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | VARINT)) value = reader.uint64();
    else skip(reader, tag);
  }
  return Math.min(value, MAX_HITS);
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
export function encodeResponse(response: EnvoyResponse): Buffer {
  writer.reset();
  const { statuses, headers, dynamicMetadata } = response;
  if (dynamicMetadata !== undefined) {
    const mark = writer.mark();
    writeStruct(dynamicMetadata);
    writer.message(6, mark);
  }
  for (let i = headers.length - 1; i >= 0; i--) {
    const header = headers[i];
    if (header === undefined) continue;
    const mark = writer.mark();
    writer.string(2, header.value);
    writer.string(1, header.key);
    writer.message(3, mark);
  }
  for (let i = statuses.length - 1; i >= 0; i--) {
    const status = statuses[i];
    if (status !== undefined) writeStatus(status);
  }
  writer.uint(1, response.overallCode);
  return writer.finish();
}

function writeStatus(status: EnvoyStatus): void {
  const mark = writer.mark();
  if (status.secondsUntilReset !== 0) {
    const duration = writer.mark();
    writer.uint(1, status.secondsUntilReset);
    writer.message(4, duration);
  }
  if (status.limitRemaining !== 0) writer.uint(3, status.limitRemaining);
  const limit = status.currentLimit;
  if (limit !== undefined) {
    const inner = writer.mark();
    if (limit.name !== '') writer.string(3, limit.name);
    if (limit.unit !== 0) writer.uint(2, limit.unit);
    if (limit.requestsPerUnit !== 0) writer.uint(1, limit.requestsPerUnit);
    writer.message(2, inner);
  }
  writer.uint(1, status.code);
  writer.message(2, mark);
}

/** google.protobuf.Struct: a map is a repeated message of key and value. */
function writeStruct(object: JsonObject): void {
  const entries = Object.entries(object);
  for (let i = entries.length - 1; i >= 0; i--) {
    const entry = entries[i];
    if (entry === undefined) continue;
    const mark = writer.mark();
    const value = writer.mark();
    writeValue(entry[1]);
    writer.message(2, value);
    writer.string(1, entry[0]);
    writer.message(1, mark);
  }
}

function writeValue(value: JsonValue): void {
  if (value === null) writer.uint(1, 0);
  else if (typeof value === 'number') writer.double(2, value);
  else if (typeof value === 'string') writer.string(3, value);
  else if (typeof value === 'boolean') writer.bool(4, value);
  else if (isList(value)) {
    const list = writer.mark();
    for (let i = value.length - 1; i >= 0; i--) {
      const mark = writer.mark();
      writeValue(value[i] ?? null);
      writer.message(1, mark);
    }
    writer.message(6, list);
  } else {
    const mark = writer.mark();
    writeStruct(value);
    writer.message(5, mark);
  }
}

function isList(value: JsonValue): value is readonly JsonValue[] {
  return Array.isArray(value);
}
