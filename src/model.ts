/**
 * The nouns of the service, shared by every stage: types and constants, no behaviour.
 * Units are in the names; times are whole microseconds, hits whole numbers up to MAX_HITS.
 */

/** The largest number of hits that is counted; anything above saturates here (2^53 - 1). */
export const MAX_HITS = Number.MAX_SAFE_INTEGER;

/** The largest `requests_per_unit` and `burst`: what Envoy's API can carry (2^32 - 1). */
export const MAX_LIMIT = 4294967295;

/** The largest number that an exact sliding window may have; each admitted request is stored. */
export const MAX_SLIDING_WINDOW_LIMIT = 10_000;

/** The precision of a sliding window counter that names none, as a part of its window: one in so many. */
export const DEFAULT_PRECISIONS = 60;

export const ALGORITHM_NAMES = [
  'fixed_window',
  'sliding_window',
  'sliding_window_counter',
  'token_bucket',
] as const;
export type AlgorithmName = (typeof ALGORITHM_NAMES)[number];

/** Units of a window by name, in seconds. Month and year have a fixed length. */
export const UNIT_SECONDS = {
  second: 1,
  minute: 60,
  hour: 3600,
  day: 86_400,
  week: 604_800,
  month: 2_592_000,
  year: 31_536_000,
} as const;
export type Unit = keyof typeof UNIT_SECONDS;

/** What happens to a limit when the store gives no answer in time. */
export const STORE_ERROR_POLICIES = ['allow', 'deny', 'local'] as const;
export type StoreErrorPolicy = (typeof STORE_ERROR_POLICIES)[number];

/** What headers and native answers reveal of a limit. */
export const DISCLOSURES = ['full', 'limit', 'none'] as const;
export type Disclosure = (typeof DISCLOSURES)[number];

/** An algorithm, a number of hits and a window. Frozen; one object per limit of a snapshot. */
export interface Limit {
  /** `rate_limit.name`; empty when the limit has none. */
  readonly name: string;
  readonly algorithm: AlgorithmName;
  /** Hits per window, 0 to MAX_LIMIT. */
  readonly requests: number;
  readonly unit: Unit;
  readonly unitMultiplier: number;
  /** unit × multiplier. */
  readonly windowUs: number;
  /** Token bucket: its capacity in hits. Other algorithms: equal to `requests`. */
  readonly burst: number;
  /** Sliding window counter: how long hits are lumped together. Other algorithms: 0. */
  readonly precisionUs: number;
  readonly onStoreError: StoreErrorPolicy;
  /** Whether a refused request still counts; undefined when the configuration does not say. */
  readonly countRejected: boolean | undefined;
  readonly disclose: Disclosure;
  /** First part of the counter keys: the algorithm's letter and the window in seconds (`f60`). */
  readonly keyHead: string;
}

export type JsonValue =
  null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue };
export type JsonObject = Readonly<Record<string, JsonValue>>;

/** Where something stands in a configuration file; line and column count from 1. */
export interface Position {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** What of a counter key is known before the request: see `store/keys.ts`. */
export interface RuleKeyPart {
  /** `|user=`, or with the value (`|user=42`) when that is the same for every match. */
  readonly text: string;
  /** False: the request's value follows. */
  readonly complete: boolean;
  /** The request's key is not the rule's (a wildcard in the key): take both from the request. */
  readonly keyIsPattern: boolean;
}

/** A node of a domain's tree that a descriptor can match. Frozen. */
export interface Rule {
  /** Order in the configuration, dense from 0 over the whole snapshot. */
  readonly index: number;
  readonly domain: string;
  /** Path from the domain, unique within it: `endpoint=/pay.user`. The label `rule` of metrics. */
  readonly path: string;
  readonly key: string;
  /** As configured: exact, with wildcards, or undefined for "any value". */
  readonly value: string | undefined;
  /** The nodes from the domain's first level down to this one, itself included. */
  readonly chain: readonly Rule[];
  /** This node's part of the counter keys, made by `keys.ruleKeyPart`. */
  readonly keyPart: RuleKeyPart;
  /** Enforced together. Empty for a node that only has children, or is unlimited. */
  readonly limits: readonly Limit[];
  readonly unlimited: boolean;
  readonly shadow: boolean;
  readonly quota: boolean;
  /** Names of limits that this rule drops from the same request. */
  readonly replaces: readonly string[];
  /** All values that match a wildcard share one counter. */
  readonly shareThreshold: boolean;
  /** The value appears nowhere in clear. Always true for the key `api_key`. */
  readonly hashValue: boolean;
  readonly detailedMetric: boolean;
  readonly valueToMetric: boolean;
  readonly metadata: JsonObject | undefined;
  readonly position: Position;
}

/** One loaded, validated, frozen configuration; a request uses one snapshot throughout. */
export interface Snapshot {
  /** Counts loads that succeeded, from 1. */
  readonly generation: number;
  readonly loadedAtMs: number;
  readonly files: readonly string[];
  /** Every rule, by its index. */
  readonly rules: readonly Rule[];
  readonly domains: ReadonlySet<string>;
  /**
   * The rule that the entries match, to their full depth; undefined when there is none or the domain
   * is unknown.
   */
  match(domain: string, entries: readonly Entry[]): Rule | undefined;
}

/** A key and a value, such as `user`, `42`. */
export interface Entry {
  readonly key: string;
  readonly value: string;
}

/** A limit that the request itself brings; replaces number and unit of the rule's limits. */
export interface LimitOverride {
  readonly requests: number;
  readonly unit: Unit;
}

/** An ordered list of entries; a request carries one or more. */
export interface Descriptor {
  readonly entries: readonly Entry[];
  readonly override: LimitOverride | undefined;
  /** What this descriptor itself says it costs; undefined: the request's hits. */
  readonly hits: number | undefined;
  /** The hits are given back instead of taken. */
  readonly giveBack: boolean;
}

/** What a front door asks the limiter. */
export interface DecisionRequest {
  readonly domain: string;
  readonly descriptors: readonly Descriptor[];
  /** What the request costs where a descriptor does not say. */
  readonly hits: number;
  /** The call's own mode, which goes before everything else; undefined when it names none. */
  readonly mode: Mode | undefined;
  /**
   * True: the descriptors are all that rules could be written for; those that nothing limits are no
   * part of the request. False or absent: each has a status, and a say in QUOTA_MODE.
   */
  readonly candidates?: boolean;
}

/** Of a charge: `shadow` never vetoes; `quota` vetoes only when no quota of the request fits. */
export type Role = 'enforced' | 'shadow' | 'quota';

/**
 * Of a charge: `take` all or nothing; `peek` looks; `record` is taken even when it does not fit;
 * `give_back` returns hits, the oldest first, never beyond empty.
 */
export type Mode = 'take' | 'peek' | 'record' | 'give_back';

/** One limit applied to one counter by one request. */
export interface Charge {
  readonly limit: Limit;
  /** The counter's key in the store, complete. */
  readonly key: string;
  readonly hits: number;
  readonly role: Role;
  readonly mode: Mode;
}

/** What the store says of one charge. Times are durations from the store's now. */
export interface Outcome {
  /** Whether the hits fit when the charge was judged; true for a give-back. */
  readonly fits: boolean;
  /** Whether the hits were taken (or given back); false for a peek. */
  readonly taken: boolean;
  /** Hits that would be admitted right now, after this request; 0 or more. */
  readonly remaining: number;
  /** Until the counter is as if untouched (fixed window: until the window ends); 0 when it is. */
  readonly resetUs: number;
  /** Until the same charge would fit if nobody else asks; 0 when it fits, -1 when it never can. */
  readonly retryAfterUs: number;
}

/** Why a store gave no outcome. A closed set: it is a metric's label. */
export const FAILURE_KINDS = [
  'timeout',
  'connection',
  'readonly',
  'loading',
  'oom',
  'permission',
  'cluster',
  'script',
  'reply',
] as const;
export type FailureKind = (typeof FAILURE_KINDS)[number];

/** Who answered for a limit: the store, or a policy because the store did not. */
export type Source = 'store' | StoreErrorPolicy;

/** One limit's part of a decision. */
export interface LimitDecision {
  readonly charge: Charge;
  readonly source: Source;
  /** By a policy `allow` or `deny` there is no counter to speak of: remaining and times are 0. */
  readonly outcome: Outcome;
}

/** One descriptor's part of a decision, in the order of the request. */
export interface DescriptorDecision {
  readonly descriptor: Descriptor;
  /** The rule that matched; undefined also for an override without a rule. */
  readonly rule: Rule | undefined;
  readonly unlimited: boolean;
  /** Empty when nothing limits the descriptor (unmatched, unlimited, replaced). */
  readonly limits: readonly LimitDecision[];
  /** The status reports OVER_LIMIT: some limit does not fit and its rule is not in shadow mode. */
  readonly overLimit: boolean;
}

/** The answer to a request, folded from its outcomes. */
export interface Decision {
  readonly request: DecisionRequest;
  readonly snapshot: Snapshot;
  readonly allowed: boolean;
  /** Some part was answered by policy, not by the store. */
  readonly degraded: boolean;
  readonly domainKnown: boolean;
  readonly descriptors: readonly DescriptorDecision[];
  /** The store's clock when it decided, in µs since the epoch; our own clock's when it did not answer. */
  readonly nowUs: number;
}

/** What the stages need of a log; made once in `app`, passed on as this. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}
