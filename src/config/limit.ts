/**
 * Reads one `rate_limit` and says what is wrong with it: which fields go together, within which
 * bounds, and what is left out. Knows nothing of rules.
 */
import {
  ALGORITHM_NAMES,
  DEFAULT_PRECISIONS,
  DISCLOSURES,
  MAX_SLIDING_WINDOW_LIMIT,
  STORE_ERROR_POLICIES,
  UNIT_SECONDS,
  type AlgorithmName,
  type Limit,
  type StoreErrorPolicy,
} from '../model.js';
import { keyHead } from '../store/keys.js';
import type { FieldReader } from './fields.js';
import { MAX_WINDOW_SECONDS, RATE_LIMIT_FIELDS, REPLACES_FIELDS, UNITS } from './schema.js';

/** One name in `replaces`, with what reports on it. */
export interface ReplacedName {
  readonly name: string;
  readonly warn: (message: string) => void;
}

/** What a `rate_limit` says. `limit` is undefined when it is unlimited, or wrong. */
export interface ReadLimit {
  readonly limit: Limit | undefined;
  readonly unlimited: boolean;
  readonly name: string;
  readonly replaces: readonly ReplacedName[];
}

type LimitReader = FieldReader<typeof RATE_LIMIT_FIELDS>;

/** Reads one limit; problems go to the reader. */
export function readLimit(reader: LimitReader, defaultOnStoreError: StoreErrorPolicy): ReadLimit {
  const name = readName(reader);
  const replaces = readReplaces(reader);
  const unlimited = reader.flag('unlimited');
  if (unlimited === true) {
    checkUnlimited(reader);
    return { limit: undefined, unlimited, name, replaces };
  }
  // What `unlimited` was meant to say is not known, so what else is missing is not, either.
  if (unlimited === undefined && reader.has('unlimited')) {
    return { limit: undefined, unlimited: false, name, replaces };
  }
  return { limit: readWindow(reader, name, defaultOnStoreError), unlimited: false, name, replaces };
}

function readName(reader: LimitReader): string {
  const name = reader.text('name') ?? '';
  // eslint-disable-next-line no-control-regex -- they are what must not reach a header
  if (/["\\\u0000-\u001f\u007f]/.test(name)) {
    reader.refuse(
      'name',
      'holds a quote, a backslash or a control character; it ends up in a header',
    );
  }
  return name;
}

function readReplaces(reader: LimitReader): ReplacedName[] {
  const names: ReplacedName[] = [];
  for (const [index, map] of (reader.maps('replaces') ?? []).entries()) {
    const path = `${reader.path}.replaces[${String(index)}]`;
    const entry = reader.below('replaces', REPLACES_FIELDS, map, path).checkKeys();
    const name = entry.text('name') ?? '';
    if (name === '') entry.refuse(undefined, 'names no limit');
    else
      names.push({
        name,
        warn: (message) => {
          entry.warn('name', message);
        },
      });
  }
  return names;
}

/** A unit beside `unlimited` is refused if it is one; anything else there has no effect. */
function checkUnlimited(reader: LimitReader): void {
  for (const field of Object.keys(RATE_LIMIT_FIELDS) as (keyof typeof RATE_LIMIT_FIELDS)[]) {
    if (field === 'unlimited' || field === 'name' || field === 'replaces') continue;
    if (!reader.has(field)) continue;
    const unit = field === 'unit' ? reader.textOf(field).toLowerCase() : undefined;
    if (UNITS.some((each) => each === unit)) {
      reader.refuse(field, 'stands beside `unlimited: true`; leave one of them out');
    } else {
      reader.warn(field, 'has no effect beside `unlimited: true`');
    }
  }
}

function readWindow(
  reader: LimitReader,
  name: string,
  defaultOnStoreError: StoreErrorPolicy,
): Limit | undefined {
  const unit = reader.choice('unit', UNITS);
  if (!reader.has('unit')) {
    reader.refuse(undefined, `needs a \`unit\`: one of ${UNITS.join(', ')}`);
  }
  const unitMultiplier = reader.whole('unit_multiplier') ?? 1;
  const requests = readRequests(reader);
  const algorithm = reader.has('algorithm')
    ? reader.choice('algorithm', ALGORITHM_NAMES)
    : 'fixed_window';
  const burst = readBurst(reader, algorithm, requests);
  const precisionUs = reader.durationUs('precision');
  const onStoreError = reader.choice('on_store_error', STORE_ERROR_POLICIES) ?? defaultOnStoreError;
  const countRejected = reader.flag('count_rejected');
  const disclose = reader.choice('disclose', DISCLOSURES) ?? 'full';

  if (
    algorithm === 'sliding_window' &&
    requests !== undefined &&
    requests > MAX_SLIDING_WINDOW_LIMIT
  ) {
    reader.refuse(
      'requests_per_unit',
      `must be at most ${String(MAX_SLIDING_WINDOW_LIMIT)} for sliding_window, which stores every hit; use \`algorithm: sliding_window_counter\``,
    );
  }
  if (unit === undefined || algorithm === undefined) return undefined;
  const windowSeconds = UNIT_SECONDS[unit] * unitMultiplier;
  if (windowSeconds > MAX_WINDOW_SECONDS) {
    reader.refuse('unit_multiplier', 'makes a window of more than ten years');
    return undefined;
  }
  const windowUs = windowSeconds * 1_000_000;
  return Object.freeze({
    name,
    algorithm,
    requests: requests ?? 0,
    unit,
    unitMultiplier,
    windowUs,
    burst: burst ?? requests ?? 0,
    precisionUs: choosePrecision(reader, algorithm, precisionUs, windowUs),
    onStoreError,
    countRejected,
    disclose,
    keyHead: keyHead(algorithm, windowUs),
  });
}

function readRequests(reader: LimitReader): number | undefined {
  if (reader.has('requests_per_unit')) return reader.whole('requests_per_unit');
  reader.warn(undefined, '`requests_per_unit` is left out: that is 0 and refuses every hit');
  return 0;
}

function readBurst(
  reader: LimitReader,
  algorithm: AlgorithmName | undefined,
  requests: number | undefined,
): number | undefined {
  const burst = reader.whole('burst');
  if (!reader.has('burst')) return undefined;
  if (algorithm !== undefined && algorithm !== 'token_bucket') {
    reader.refuse(
      'burst',
      `has no meaning for ${algorithm}; it belongs to \`algorithm: token_bucket\``,
    );
    return undefined;
  }
  if (requests === 0) {
    reader.refuse('burst', 'has no meaning with a limit of 0, which refuses every hit');
    return undefined;
  }
  return burst;
}

function choosePrecision(
  reader: LimitReader,
  algorithm: AlgorithmName,
  precisionUs: number | undefined,
  windowUs: number,
): number {
  if (algorithm !== 'sliding_window_counter') {
    if (reader.has('precision')) {
      reader.refuse(
        'precision',
        `has no meaning for ${algorithm}; it belongs to \`algorithm: sliding_window_counter\``,
      );
    }
    return 0;
  }
  if (precisionUs === undefined) return Math.floor(windowUs / DEFAULT_PRECISIONS);
  const [least, most] = [windowUs / 1000, windowUs / 4];
  if (precisionUs < least || precisionUs > most) {
    const bounds = `${String(least / 1000)}ms to ${String(most / 1000)}ms`;
    reader.refuse('precision', `must be a thousandth to a quarter of the window: ${bounds}`);
  }
  return precisionUs;
}
