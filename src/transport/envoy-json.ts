/**
 * Envoy's request and response in proto3 JSON. Stricter than the bytes, as the format demands: a field
 * that the message lacks, or a value of another type, is an error that names where it is.
 */
import { RequestError } from '../limiter.js';
import { MAX_HITS, type Descriptor, type Entry, type LimitOverride } from '../model.js';
import {
  CODE_OVER_LIMIT,
  unitOf,
  type EnvoyRequest,
  type EnvoyResponse,
  type EnvoyStatus,
  type RequestBounds,
} from './envoy-codec.js';

/** Names of both Unit enums by number. */
const UNIT_NAMES = ['UNKNOWN', 'SECOND', 'MINUTE', 'HOUR', 'DAY', 'MONTH', 'YEAR', 'WEEK'];

const MAX_UINT32 = 4294967295;
const MAX_UINT64 = 18446744073709551615n;

const LONE_SURROGATE = /\p{Surrogate}/u;
const UTF8 = new TextDecoder('utf-8', { fatal: true });

/** Throws RequestError (`invalid_argument`) for bytes that are not JSON, or not this message. */
export function parseJsonRequest(body: Buffer, bounds: RequestBounds): EnvoyRequest {
  let parsed: unknown;
  try {
    parsed = JSON.parse(UTF8.decode(body));
  } catch (error) {
    // The parser's message quotes the text, which may hold anything.
    throw new RequestError('invalid_argument', 'body: is not JSON', { cause: error });
  }
  const fields = fieldsOf(parsed, 'body', ['domain', 'descriptors', 'hits_addend']);
  return {
    domain: textOf(fields.get('domain'), 'domain', bounds),
    descriptors: listOf(fields.get('descriptors'), 'descriptors', bounds.maxDescriptors).map(
      (item, i) => parseDescriptor(item, `descriptors[${String(i)}]`, bounds),
    ),
    hitsAddend: uint32(fields.get('hits_addend'), 'hits_addend') ?? 0,
  };
}

function parseDescriptor(value: unknown, at: string, bounds: RequestBounds): Descriptor {
  const names = ['entries', 'limit', 'hits_addend', 'is_negative_hits'];
  const fields = fieldsOf(value, at, names);
  return {
    entries: listOf(fields.get('entries'), `${at}.entries`, bounds.maxEntries).map((item, i) =>
      parseEntry(item, `${at}.entries[${String(i)}]`, bounds),
    ),
    override: parseOverride(fields.get('limit'), `${at}.limit`),
    hits: uint64(fields.get('hits_addend'), `${at}.hits_addend`),
    giveBack: bool(fields.get('is_negative_hits'), `${at}.is_negative_hits`),
  };
}

function parseEntry(value: unknown, at: string, bounds: RequestBounds): Entry {
  const fields = fieldsOf(value, at, ['key', 'value']);
  return {
    key: textOf(fields.get('key'), `${at}.key`, bounds),
    value: textOf(fields.get('value'), `${at}.value`, bounds),
  };
}

/** As on the wire: without a valid unit there is no override. */
function parseOverride(value: unknown, at: string): LimitOverride | undefined {
  if (value === undefined) return undefined;
  const fields = fieldsOf(value, at, ['requests_per_unit', 'unit']);
  const requests = uint32(fields.get('requests_per_unit'), `${at}.requests_per_unit`) ?? 0;
  const unit = unitOf(unitNumberOf(fields.get('unit'), `${at}.unit`));
  return unit && { requests, unit };
}

function unitNumberOf(value: unknown, at: string): number {
  if (value === undefined) return 0;
  if (typeof value === 'number' && Number.isInteger(value)) return value;
  const number = typeof value === 'string' ? UNIT_NAMES.indexOf(value) : -1;
  if (number < 0) invalid(at, `is none of ${UNIT_NAMES.join(', ')}`);
  return number;
}

/** The fields by their snake_case name; null is absent. */
function fieldsOf(value: unknown, at: string, names: readonly string[]): Map<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    invalid(at, 'must be an object');
  }
  const fields = new Map<string, unknown>();
  for (const [key, field] of Object.entries(value)) {
    const name = names.find((candidate) => candidate === key || camelCase(candidate) === key);
    if (name === undefined) invalid(at, `has a field that is none of ${names.join(', ')}`);
    if (fields.has(name)) invalid(at, `has ${name} twice`);
    fields.set(name, field ?? undefined);
  }
  return fields;
}

function camelCase(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function listOf(value: unknown, at: string, most: number): readonly unknown[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) invalid(at, 'must be a list');
  if (value.length > most) invalid(at, `more than ${String(most)}`);
  return value as readonly unknown[];
}

function textOf(value: unknown, at: string, bounds: RequestBounds): string {
  if (value === undefined) return '';
  if (typeof value !== 'string') invalid(at, 'must be a string');
  // Half a surrogate pair cannot be sent to Redis: all such values would share one counter.
  if (LONE_SURROGATE.test(value)) invalid(at, 'is not valid Unicode');
  if (Buffer.byteLength(value) > bounds.maxValueBytes) {
    invalid(at, `longer than ${String(bounds.maxValueBytes)} bytes`);
  }
  return value;
}

function bool(value: unknown, at: string): boolean {
  if (value === undefined) return false;
  if (typeof value !== 'boolean') invalid(at, 'must be true or false');
  return value;
}

function uint32(value: unknown, at: string): number | undefined {
  const number = whole(value, at);
  if (number !== undefined && number > MAX_UINT32) invalid(at, 'above 2^32 - 1');
  return number === undefined ? undefined : Number(number);
}

/** Saturates at MAX_HITS. */
function uint64(value: unknown, at: string): number | undefined {
  const number = whole(value, at);
  // A JSON number cannot tell the largest from the one after it.
  if (number !== undefined && number > MAX_UINT64 + (typeof value === 'number' ? 1n : 0n)) {
    invalid(at, 'above 2^64 - 1');
  }
  return number === undefined ? undefined : Math.min(Number(number), MAX_HITS);
}

/** A whole number from 0, written as a number or as a string. */
function whole(value: unknown, at: string): bigint | undefined {
  if (value === undefined) return undefined;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0) return BigInt(value);
  if (typeof value === 'string' && /^\d{1,20}$/.test(value)) return BigInt(value);
  return invalid(at, 'must be a whole number from 0');
}

function invalid(at: string, what: string): never {
  throw new RequestError('invalid_argument', `${at}: ${what}`);
}

/** The response as proto3 JSON: lowerCamelCase, and what is 0 or empty left out. */
export function toJsonResponse(response: EnvoyResponse): object {
  const { statuses, headers, dynamicMetadata } = response;
  return {
    overallCode: codeName(response.overallCode),
    ...(statuses.length > 0 && { statuses: statuses.map(toJsonStatus) }),
    ...(headers.length > 0 && { responseHeadersToAdd: headers }),
    ...(dynamicMetadata !== undefined && { dynamicMetadata }),
  };
}

function toJsonStatus(status: EnvoyStatus): object {
  const { currentLimit, limitRemaining, secondsUntilReset } = status;
  return {
    code: codeName(status.code),
    ...(currentLimit !== undefined && {
      currentLimit: {
        ...(currentLimit.requestsPerUnit > 0 && { requestsPerUnit: currentLimit.requestsPerUnit }),
        ...(currentLimit.unit > 0 && { unit: UNIT_NAMES[currentLimit.unit] }),
        ...(currentLimit.name !== '' && { name: currentLimit.name }),
      },
    }),
    ...(limitRemaining > 0 && { limitRemaining }),
    ...(secondsUntilReset > 0 && { durationUntilReset: `${String(secondsUntilReset)}s` }),
  };
}

function codeName(code: number): string {
  return code === CODE_OVER_LIMIT ? 'OVER_LIMIT' : 'OK';
}
