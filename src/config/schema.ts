/**
 * The format of configuration files, one table a place: which fields stand there, what they hold and
 * what they mean. The reader and the JSON Schema are both made from it.
 */
import {
  ALGORITHM_NAMES,
  DISCLOSURES,
  MAX_LIMIT,
  STORE_ERROR_POLICIES,
  UNIT_SECONDS,
  type Unit,
} from '../model.js';

/**
 * What a field holds. `about` is shown by editors. `own`: the usual rate limit service does not have
 * it, so that no deployed file can hold it in a place where it has no effect.
 */
export type Field = { readonly about: string; readonly own?: true } & (
  | { readonly kind: 'text' | 'flag' | 'duration' | 'metadata' }
  | { readonly kind: 'whole'; readonly min: number; readonly max: number }
  | { readonly kind: 'choice'; readonly choices: readonly string[]; readonly anyCase: boolean }
  | { readonly kind: 'map' | 'list'; readonly of: PlaceName }
);

/** The fields of one place, by name. */
export type Fields = Readonly<Record<string, Field>>;

/** The places of a file that hold fields of their own. */
export type PlaceName = 'file' | 'descriptor' | 'rate_limit' | 'replaces';

/** The longest window, so that its microseconds and twice as many stay exact: ten years. */
export const MAX_WINDOW_SECONDS = 10 * UNIT_SECONDS.year;

/** The units as the file names them. */
export const UNITS = Object.keys(UNIT_SECONDS) as Unit[];

export const FILE_FIELDS = {
  domain: {
    kind: 'text',
    about: 'The domain that these rules belong to; what asks for decisions names it.',
  },
  descriptors: {
    kind: 'list',
    of: 'descriptor',
    about: 'The rules of the first level.',
  },
} as const satisfies Fields;

export const DESCRIPTOR_FIELDS = {
  key: {
    kind: 'text',
    about: 'The key of the entry that this rule matches. A `*` in it makes it a pattern over keys.',
  },
  value: {
    kind: 'text',
    about:
      'The value that this rule matches; `*` stands for any text. Left out: any value, each with a counter of its own.',
  },
  rate_limit: {
    kind: 'map',
    of: 'rate_limit',
    about: 'The limit. Without it, a descriptor that matches this rule is not limited.',
  },
  rate_limits: {
    kind: 'list',
    own: true,
    of: 'rate_limit',
    about: 'Several limits that are enforced together, such as 10 a second and 1000 a day.',
  },
  descriptors: {
    kind: 'list',
    of: 'descriptor',
    about: 'The rules of the next level, for descriptors with one more entry.',
  },
  shadow_mode: {
    kind: 'flag',
    about: 'Count and report, but never refuse.',
  },
  quota_mode: {
    kind: 'flag',
    about: 'Refuse only when none of the quota rules of the request has room.',
  },
  share_threshold: {
    kind: 'flag',
    about: 'All values that the wildcard matches share one counter.',
  },
  hash_value: {
    kind: 'flag',
    own: true,
    about: 'The value is a secret: it appears only as a digest. Always so for the key `api_key`.',
  },
  detailed_metric: {
    kind: 'flag',
    about: 'Metrics tell the real values of all entries apart, up to a cap.',
  },
  value_to_metric: {
    kind: 'flag',
    about: 'Metrics tell the real values of this entry apart, up to a cap.',
  },
  metadata: {
    kind: 'metadata',
    about: 'Any map; given back as dynamic metadata when the rule let the request pass.',
  },
} as const satisfies Fields;

export const RATE_LIMIT_FIELDS = {
  unit: {
    kind: 'choice',
    choices: UNITS,
    anyCase: true,
    about: 'The unit of the window. A month has 30 days, a year 365.',
  },
  unit_multiplier: {
    kind: 'whole',
    own: true,
    min: 1,
    max: MAX_WINDOW_SECONDS,
    about: 'The window is so many units long; 1 when left out.',
  },
  requests_per_unit: {
    kind: 'whole',
    min: 0,
    max: MAX_LIMIT,
    about: 'Hits per window. 0, also when left out, refuses every hit.',
  },
  unlimited: {
    kind: 'flag',
    about: 'No limit; excludes `unit`.',
  },
  name: {
    kind: 'text',
    about: 'What `replaces` of other rules and response headers call this limit.',
  },
  replaces: {
    kind: 'list',
    of: 'replaces',
    about: 'Limits, by name, that this one takes the place of when both match a request.',
  },
  algorithm: {
    kind: 'choice',
    own: true,
    choices: ALGORITHM_NAMES,
    anyCase: false,
    about: 'How hits are counted; `fixed_window` when left out.',
  },
  burst: {
    kind: 'whole',
    own: true,
    min: 1,
    max: MAX_LIMIT,
    about: 'Token bucket only: its capacity in hits; `requests_per_unit` when left out.',
  },
  precision: {
    kind: 'duration',
    own: true,
    about:
      'Sliding window counter only: how long hits are lumped together, such as `500ms`; from a thousandth to a quarter of the window, a sixtieth when left out.',
  },
  on_store_error: {
    kind: 'choice',
    own: true,
    choices: STORE_ERROR_POLICIES,
    anyCase: false,
    about: 'What happens when the store does not answer in time.',
  },
  count_rejected: {
    kind: 'flag',
    own: true,
    about: 'Whether a refused request still counts.',
  },
  disclose: {
    kind: 'choice',
    own: true,
    choices: DISCLOSURES,
    anyCase: false,
    about: 'How much answers reveal of this limit; `full` when left out.',
  },
} as const satisfies Fields;

export const REPLACES_FIELDS = {
  name: { kind: 'text', about: 'The `name` of the limit that is replaced.' },
} as const satisfies Fields;

/** Every place with its fields. */
export const PLACES: Readonly<Record<PlaceName, Fields>> = {
  file: FILE_FIELDS,
  descriptor: DESCRIPTOR_FIELDS,
  rate_limit: RATE_LIMIT_FIELDS,
  replaces: REPLACES_FIELDS,
};

/** Every known field with the places where it has a meaning: one global set. */
export const KNOWN_KEYS: ReadonlyMap<string, readonly PlaceName[]> = placesByKey();

/** The fields that only Weir has. */
export const OWN_KEYS: ReadonlySet<string> = new Set(
  Object.values(PLACES).flatMap((fields) =>
    Object.keys(fields).filter((key) => fields[key]?.own === true),
  ),
);

function placesByKey(): Map<string, PlaceName[]> {
  const known = new Map<string, PlaceName[]>();
  for (const [place, fields] of Object.entries(PLACES) as [PlaceName, Fields][]) {
    for (const key of Object.keys(fields)) known.set(key, [...(known.get(key) ?? []), place]);
  }
  return known;
}
