/**
 * Envoy's front door: RateLimitRequest → DecisionRequest, Decision → RateLimitResponse. Decides what
 * each field of the answer says; knows neither bytes nor gRPC. Envoy takes any error for "pass", so
 * nothing that can be answered is one.
 */
import { RequestError } from '../limiter.js';
import {
  MAX_LIMIT,
  type Decision,
  type DecisionRequest,
  type Descriptor,
  type DescriptorDecision,
  type JsonObject,
  type JsonValue,
  type LimitDecision,
} from '../model.js';
import { digest, isSecretKey } from '../store/keys.js';
import { coarseUs, POLICY_RETRY_US, tightest } from './disclosure.js';
import {
  CODE_OK,
  CODE_OVER_LIMIT,
  unitNumber,
  type EnvoyRequest,
  type EnvoyResponse,
  type EnvoyStatus,
  type Header,
} from './envoy-codec.js';

/** The names of the headers that an answer brings; an empty name leaves that header out. */
export interface HeaderNames {
  readonly limit: string;
  readonly remaining: string;
  readonly reset: string;
  readonly retryAfter: string;
}

export interface EnvoyOptions {
  /** Undefined: no headers. */
  readonly headers: HeaderNames | undefined;
  readonly dynamicMetadata: boolean;
  /** QUOTA_MODE: every limit is a quota, which the headers treat apart. */
  readonly quotaMode?: boolean;
}

const NO_HEADERS: readonly Header[] = [];

const UNLIMITED: EnvoyStatus = {
  code: CODE_OK,
  currentLimit: undefined,
  limitRemaining: MAX_LIMIT,
  secondsUntilReset: 0,
};
const NOT_LIMITED: EnvoyStatus = { ...UNLIMITED, limitRemaining: 0 };
const POLICY_REFUSED: EnvoyStatus = {
  code: CODE_OVER_LIMIT,
  currentLimit: undefined,
  limitRemaining: 0,
  secondsUntilReset: POLICY_RETRY_US / 1_000_000,
};

/** Throws RequestError (`invalid_argument`) without a domain or without descriptors. */
export function toDecisionRequest(wire: EnvoyRequest): DecisionRequest {
  if (wire.domain === '') {
    throw new RequestError('invalid_argument', 'domain: must not be empty');
  }
  if (wire.descriptors.length === 0) {
    throw new RequestError('invalid_argument', 'descriptors: at least one is needed');
  }
  return {
    domain: wire.domain,
    descriptors: wire.descriptors,
    // Envoy sends 0 for "not set".
    hits: wire.hitsAddend === 0 ? 1 : wire.hitsAddend,
    mode: undefined,
  };
}

/** The answer: a status for each descriptor in order, and what the options ask for. */
export function toResponse(
  decision: Decision,
  wire: EnvoyRequest,
  options: EnvoyOptions,
): EnvoyResponse {
  const descriptors = decision.descriptors;
  const statuses = new Array<EnvoyStatus>(descriptors.length);
  for (let i = 0; i < descriptors.length; i++) {
    const descriptor = descriptors[i];
    if (descriptor !== undefined) statuses[i] = toStatus(descriptor);
  }
  return {
    overallCode: decision.allowed ? CODE_OK : CODE_OVER_LIMIT,
    statuses,
    headers: options.headers
      ? toHeaders(decision, statuses, options.headers, options.quotaMode === true)
      : NO_HEADERS,
    dynamicMetadata: options.dynamicMetadata ? toMetadata(decision, wire) : undefined,
  };
}

/**
 * Envoy shows its own X-RateLimit headers from the statuses that have `current_limit`, and waits the
 * longest `duration_until_reset` of those that are OVER_LIMIT; never does it decide by them.
 */
function toStatus(descriptor: DescriptorDecision): EnvoyStatus {
  const limit = tightest(descriptor.limits);
  if (limit === undefined) return descriptor.unlimited ? UNLIMITED : NOT_LIMITED;
  if (limit.source !== 'store') return descriptor.overLimit ? POLICY_REFUSED : NOT_LIMITED;
  const code = descriptor.overLimit ? CODE_OVER_LIMIT : CODE_OK;
  const { limit: configured } = limit.charge;
  if (configured.disclose !== 'full') {
    // `none`: one second is the least that Envoy sends as Retry-After, and the same for every caller.
    const seconds =
      configured.disclose === 'limit' ? coarseSeconds(limit) : descriptor.overLimit ? 1 : 0;
    return { code, currentLimit: undefined, limitRemaining: 0, secondsUntilReset: seconds };
  }
  return {
    code,
    currentLimit: {
      requestsPerUnit: configured.requests,
      unit: configured.unitMultiplier > 1 ? 0 : unitNumber(configured.unit),
      name: configured.name,
    },
    limitRemaining: Math.min(remainingOf(limit), MAX_LIMIT),
    secondsUntilReset: toSeconds(durationUs(limit, descriptor.overLimit)),
  };
}

/**
 * A limit that these hits do not fit has nothing left for them, even where fewer hits would fit: who
 * reads the usual service's answers expects 0 there. The native API tells what is really left.
 */
function remainingOf(limit: LimitDecision): number {
  return limit.outcome.fits ? limit.outcome.remaining : 0;
}

/** Until the request fits where it does not (until the reset, where it never will), else the reset. */
function durationUs(limit: LimitDecision, overLimit: boolean): number {
  const { fits, retryAfterUs, resetUs } = limit.outcome;
  return overLimit && !fits && retryAfterUs >= 0 ? retryAfterUs : resetUs;
}

/** Coarse alike whether refused or not, so that a refusal does not tell more. */
function coarseSeconds(limit: LimitDecision): number {
  return toSeconds(coarseUs(durationUs(limit, !limit.outcome.fits), limit.charge.limit));
}

/** Whole seconds, rounded up, at least 1. */
function toSeconds(us: number): number {
  return Math.max(1, Math.ceil(us / 1_000_000));
}

/**
 * The headers speak of one descriptor: the last that is over its limit (a quota that is over does not
 * count as such), else the one with the least left, the first on a tie. Where its `disclose` hides
 * figures they are left out; another's never stand in.
 */
function toHeaders(
  decision: Decision,
  statuses: readonly EnvoyStatus[],
  names: HeaderNames,
  quotaMode: boolean,
): readonly Header[] {
  let chosen: LimitDecision | undefined;
  let least = Infinity;
  let seconds = 0;
  for (let i = 0; i < statuses.length; i++) {
    const status = statuses[i];
    const descriptor = decision.descriptors[i];
    if (status === undefined || descriptor === undefined) continue;
    const limit = tightest(descriptor.limits);
    if (limit?.source !== 'store') continue;
    const remaining = remainingOf(limit);
    const over = status.code === CODE_OVER_LIMIT && !(quotaMode || isQuota(descriptor));
    if (over || remaining < least) {
      least = over ? 0 : remaining;
      chosen = limit;
      seconds = status.secondsUntilReset;
    }
  }
  const headers: Header[] = [];
  if (chosen !== undefined && chosen.charge.limit.disclose !== 'none') {
    const { limit } = chosen.charge;
    add(headers, names.limit, limit.requests);
    if (limit.disclose === 'full') add(headers, names.remaining, remainingOf(chosen));
    add(headers, names.reset, seconds);
  }
  if (!decision.allowed) add(headers, names.retryAfter, retryAfterSeconds(decision, statuses));
  return headers;
}

/** By the rule, as a quota that cannot refuse the request is charged as a shadow. */
function isQuota({ descriptor, rule }: DescriptorDecision): boolean {
  return rule?.quota === true && descriptor.override === undefined;
}

/**
 * When to ask again after a refusal, in whole seconds, at least 1: every limit that is over has to fit
 * by then, but of the quotas only one, and of what refuses nothing, none.
 */
export function retryAfterSeconds(decision: Decision, statuses: readonly EnvoyStatus[]): number {
  let enforced = 1;
  let quota = Infinity;
  for (let i = 0; i < statuses.length; i++) {
    const status = statuses[i];
    if (status?.code !== CODE_OVER_LIMIT) continue;
    const limit = tightest(decision.descriptors[i]?.limits ?? []);
    const role = limit?.charge.role;
    if (role === 'quota') quota = Math.min(quota, status.secondsUntilReset);
    else if (role !== 'shadow') enforced = Math.max(enforced, status.secondsUntilReset);
  }
  return quota === Infinity ? enforced : Math.max(enforced, quota);
}

function add(headers: Header[], key: string, value: number): void {
  if (key !== '') headers.push({ key, value: String(value) });
}

/** The request, and the metadata of the rules that passed: for filters and logs behind Envoy. */
function toMetadata(decision: Decision, wire: EnvoyRequest): JsonObject {
  const metadata: JsonRecord = empty();
  metadata['domain'] = wire.domain;
  if (wire.hitsAddend !== 0) metadata['hitsAddend'] = wire.hitsAddend;
  metadata['descriptors'] = decision.descriptors.map(describe);
  const merged = empty();
  for (const { rule, overLimit } of decision.descriptors) {
    if (rule?.metadata !== undefined && !overLimit) merge(merged, rule.metadata);
  }
  if (Object.keys(merged).length > 0) metadata['metadata'] = merged;
  return metadata;
}

function describe({ descriptor, rule }: DescriptorDecision): JsonObject {
  const described: JsonRecord = empty();
  described['entries'] = descriptor.entries.map((entry, i) => {
    const secret = isSecretKey(entry.key) || rule?.chain[i]?.hashValue === true;
    return `${entry.key}=${secret ? digest(entry.value) : entry.value}`;
  });
  addRequested(described, descriptor);
  return described;
}

function addRequested(described: JsonRecord, descriptor: Descriptor): void {
  const { override, hits, giveBack } = descriptor;
  if (override !== undefined) {
    described['limit'] = { requestsPerUnit: override.requests, unit: override.unit.toUpperCase() };
  }
  if (hits !== undefined) described['hitsAddend'] = hits;
  if (giveBack) described['isNegativeHits'] = true;
}

type JsonRecord = Record<string, JsonValue>;

/** Without prototype: `__proto__` is a key like any other here. */
function empty(): JsonRecord {
  return Object.create(null) as JsonRecord;
}

/** Adds what is not there yet; maps are merged in turn. Never changes `from`, which is a rule's own. */
function merge(into: JsonRecord, from: JsonObject): void {
  for (const [key, value] of Object.entries(from)) {
    const there = into[key];
    if (there === undefined) into[key] = isMap(value) ? copy(value) : value;
    else if (isMap(there) && isMap(value)) merge(there, value);
  }
}

function copy(from: JsonObject): JsonRecord {
  const into = empty();
  merge(into, from);
  return into;
}

function isMap(value: JsonValue): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
