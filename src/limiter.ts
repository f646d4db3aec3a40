/**
 * The decision: match → charges → store → decision. The only place that decides what a store failure
 * means. Knows no wire and no Redis.
 */
import type {
  Charge,
  Decision,
  DecisionRequest,
  Descriptor,
  DescriptorDecision,
  Limit,
  LimitDecision,
  LimitOverride,
  Mode,
  Outcome,
  Role,
  Rule,
  Snapshot,
  Source,
  StoreErrorPolicy,
} from './model.js';
import { DEFAULT_PRECISIONS, MAX_SLIDING_WINDOW_LIMIT, UNIT_SECONDS } from './model.js';
import { keyHead } from './store/keys.js';
import type { CounterKeys } from './store/keys.js';
import { StoreRequest } from './store/store.js';
import type { Gate, Store } from './store/store.js';

/** What is wrong with a request, for its sender to mend. Raised by the front doors and the limiter. */
export class RequestError extends Error {
  override readonly name = 'RequestError';

  /**
   * `invalid_argument`: the request is wrong, and stays so. `failed_precondition`: no configuration
   * is loaded yet; the same request may succeed later.
   */
  constructor(
    readonly code: 'invalid_argument' | 'failed_precondition',
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

export interface Limiter {
  /**
   * Decides one request. `deadlineMs`, on the clock of `performance.now()`, is when the answer must
   * be on its way; from then on policy answers. `done` is called once, now or in a later turn.
   * Throws RequestError (`failed_precondition`) while no configuration is loaded.
   */
  decide(request: DecisionRequest, deadlineMs: number, done: (decision: Decision) => void): void;
}

export interface LimiterOptions {
  /** The snapshot in force; undefined while none has been loaded. */
  readonly snapshot: () => Snapshot | undefined;
  readonly keys: CounterKeys;
  readonly gate: Gate;
  /** Counts in this process's memory what the store cannot (`on_store_error: local`). */
  readonly fallback: Store;
  /** Live instances among which a limit is shared out while the store does not answer; 1 or more. */
  readonly instances: () => number;
  /** Our own clock, µs since the epoch. */
  readonly nowUs: () => number;
  /** SHADOW_MODE: nothing is refused. */
  readonly shadowMode: boolean;
  /** QUOTA_MODE: every limit is a quota. */
  readonly quotaMode: boolean;
  /** STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT; undefined when not set. */
  readonly stopIncrement: boolean | undefined;
  /** For limits that a request brings where no rule matches. */
  readonly defaultOnStoreError: StoreErrorPolicy;
}

/** What becomes of one descriptor before the store is asked: its rule and its place in the charges. */
interface Plan {
  readonly descriptor: Descriptor;
  readonly rule: Rule | undefined;
  readonly limits: readonly Limit[];
  readonly unlimited: boolean;
  readonly overridden: boolean;
}

const NO_LIMITS: readonly Limit[] = [];

export function createLimiter(options: LimiterOptions): Limiter {
  const localLimit = createLocalLimit(options.instances);

  return {
    decide(request, deadlineMs, done) {
      const snapshot = options.snapshot();
      if (snapshot === undefined) {
        throw new RequestError('failed_precondition', 'no configuration is loaded yet');
      }
      const plans = plan(request, snapshot, options.defaultOnStoreError);
      const charges = toCharges(request, plans, options);
      if (charges.length === 0) {
        done(fold(request, snapshot, plans, [], options.nowUs()));
        return;
      }
      const asked = new StoreRequest(charges, deadlineMs, (answered) => {
        const results = toResults(answered, options.fallback, localLimit);
        done(fold(request, snapshot, plans, results, answered.nowUs || options.nowUs()));
      });
      options.gate.submit(asked);
    },
  };
}

/** Matches every descriptor, then drops the limits that another one replaces. */
function plan(
  request: DecisionRequest,
  snapshot: Snapshot,
  defaultOnStoreError: StoreErrorPolicy,
): Plan[] {
  const known = snapshot.domains.has(request.domain);
  let replaced: Set<string> | undefined;
  // With the room that it needs: an empty list that grows takes room for 17.
  const plans = new Array<Plan>(request.descriptors.length);
  let count = 0;
  for (const descriptor of request.descriptors) {
    const rule = known ? snapshot.match(request.domain, descriptor.entries) : undefined;
    const override = known ? descriptor.override : undefined;
    if (override !== undefined) {
      const limits = [overrideLimit(override, rule?.limits[0], defaultOnStoreError)];
      plans[count++] = { descriptor, rule, limits, unlimited: false, overridden: true };
      continue;
    }
    const limits = rule?.limits ?? NO_LIMITS;
    const unlimited = rule?.unlimited ?? false;
    if (request.candidates === true && limits.length === 0 && !unlimited) continue;
    plans[count++] = { descriptor, rule, limits, unlimited, overridden: false };
    if (rule !== undefined && rule.replaces.length > 0) {
      replaced ??= new Set();
      for (const name of rule.replaces) replaced.add(name);
    }
  }
  if (count < plans.length) plans.length = count;
  return replaced === undefined ? plans : withoutReplaced(plans, replaced);
}

function withoutReplaced(plans: readonly Plan[], replaced: ReadonlySet<string>): Plan[] {
  return plans.map((planned) => {
    if (planned.overridden || !planned.limits.some((limit) => replaced.has(limit.name))) {
      return planned;
    }
    return { ...planned, limits: planned.limits.filter((limit) => !replaced.has(limit.name)) };
  });
}

/** A limit brought by the request: its number and unit, all else as the rule's first limit has it. */
function overrideLimit(
  override: LimitOverride,
  ruleLimit: Limit | undefined,
  defaultOnStoreError: StoreErrorPolicy,
): Limit {
  const windowUs = UNIT_SECONDS[override.unit] * 1_000_000;
  let algorithm = ruleLimit?.algorithm ?? 'fixed_window';
  // The exact log stores every request: a caller's number must not make it larger than a file could.
  if (algorithm === 'sliding_window' && override.requests > MAX_SLIDING_WINDOW_LIMIT) {
    algorithm = 'sliding_window_counter';
  }
  return {
    name: '',
    algorithm,
    requests: override.requests,
    unit: override.unit,
    unitMultiplier: 1,
    windowUs,
    burst: override.requests,
    precisionUs:
      algorithm === 'sliding_window_counter' ? Math.floor(windowUs / DEFAULT_PRECISIONS) : 0,
    onStoreError: ruleLimit?.onStoreError ?? defaultOnStoreError,
    countRejected: ruleLimit?.countRejected,
    disclose: ruleLimit?.disclose ?? 'full',
    keyHead: keyHead(algorithm, windowUs),
  };
}

function toCharges(
  request: DecisionRequest,
  plans: readonly Plan[],
  options: LimiterOptions,
): Charge[] {
  let quotaMayFail = true;
  let count = 0;
  for (const planned of plans) {
    count += planned.limits.length;
    if (isQuotaWithRoom(planned, options.quotaMode)) quotaMayFail = false;
  }
  const charges = new Array<Charge>(count);
  let next = 0;
  for (const { descriptor, rule, limits, overridden } of plans) {
    if (limits.length === 0) continue;
    let role = roleOf(rule, overridden, options);
    // One quota of the request has room whatever the store says, so the others cannot refuse it.
    if (role === 'quota' && !quotaMayFail) role = 'shadow';
    const hits = descriptor.hits ?? request.hits;
    for (const limit of limits) {
      const key = options.keys.build(limit, request.domain, descriptor.entries, rule, overridden);
      const mode = modeOf(request, descriptor, hits, limit, options.stopIncrement);
      charges[next++] = { limit, key, hits, role, mode };
    }
  }
  return charges;
}

/**
 * Quotas that never run out: a quota rule in shadow mode, and with QUOTA_MODE a descriptor that nothing
 * limits (an unlimited one is not counted among the quotas).
 */
function isQuotaWithRoom(planned: Plan, quotaMode: boolean): boolean {
  const { rule, limits, unlimited, overridden } = planned;
  if (limits.length === 0) return quotaMode && !unlimited;
  return !overridden && rule?.shadow === true && (rule.quota || quotaMode);
}

function roleOf(rule: Rule | undefined, overridden: boolean, options: LimiterOptions): Role {
  if (options.shadowMode) return 'shadow';
  if (!overridden && rule?.shadow === true) return 'shadow';
  return options.quotaMode || (!overridden && rule?.quota === true) ? 'quota' : 'enforced';
}

/**
 * How the hits are charged. Whether they count when refused is said by the call, else by the rule, else
 * by STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT; else hits that a descriptor names itself are a charge made
 * afterwards, and must count.
 */
function modeOf(
  request: DecisionRequest,
  descriptor: Descriptor,
  hits: number,
  limit: Limit,
  stopIncrement: boolean | undefined,
): Mode {
  if (hits === 0) return 'peek';
  if (descriptor.giveBack) return 'give_back';
  if (request.mode !== undefined) return request.mode;
  if (limit.countRejected !== undefined) return limit.countRejected ? 'record' : 'take';
  if (stopIncrement !== undefined) return stopIncrement ? 'take' : 'record';
  return descriptor.hits === undefined ? 'take' : 'record';
}

// What policies answer. A refusal asks for patience of a second, as nothing better is known.
const POLICY_ALLOW: Outcome = {
  fits: true,
  taken: false,
  remaining: 0,
  resetUs: 0,
  retryAfterUs: 0,
};
const POLICY_DENY: Outcome = {
  fits: false,
  taken: false,
  remaining: 0,
  resetUs: 1_000_000,
  retryAfterUs: 1_000_000,
};

/** One decision per charge: the store's outcome, or what the limit's policy says in its place. */
function toResults(
  answered: StoreRequest,
  fallback: Store,
  localLimit: (limit: Limit) => Limit,
): LimitDecision[] {
  const { charges, outcomes } = answered;
  const results = new Array<LimitDecision>(charges.length);
  let local: { readonly place: number; readonly charge: Charge }[] | undefined;
  for (let i = 0; i < charges.length; i++) {
    const charge = charges[i];
    if (charge === undefined) continue;
    const outcome = outcomes[i];
    if (outcome !== undefined) {
      results[i] = { charge, source: 'store', outcome };
      continue;
    }
    const source: Source = isCertainRefusal(charge) ? 'deny' : charge.limit.onStoreError;
    if (source === 'local') {
      local ??= [];
      local.push({ place: i, charge: { ...charge, limit: localLimit(charge.limit) } });
    }
    results[i] = { charge, source, outcome: source === 'deny' ? POLICY_DENY : POLICY_ALLOW };
  }
  if (local !== undefined) decideLocally(local, results, fallback);
  if (answered.takeBack !== undefined && answered.failure !== undefined && isRefused(results)) {
    answered.takeBack();
    for (const [i, { charge, source }] of results.entries()) {
      const outcome = outcomes[i];
      if (source === 'store' && outcome !== undefined) results[i] = { charge, source, outcome };
    }
  }
  return results;
}

/** A limit of 0 refuses every hit whatever has been counted: what is banned stays so without the store. */
function isCertainRefusal({ limit, hits, mode }: Charge): boolean {
  return limit.burst === 0 && hits > 0 && (mode === 'take' || mode === 'record');
}

/** An enforced limit refuses, or there are quotas and none fits. */
function isRefused(results: readonly LimitDecision[]): boolean {
  let quotas = false;
  let quotaFits = false;
  for (const { charge, outcome } of results) {
    if (charge.role === 'enforced' && !outcome.fits) return true;
    if (charge.role !== 'quota') continue;
    quotas = true;
    quotaFits ||= outcome.fits;
  }
  return quotas && !quotaFits;
}

/**
 * The memory store settles at once, so the results are complete when this returns. In them stand, for the
 * charges that are decided here, outcomes that fit. A request that others refuse takes nothing here either,
 * and where a quota elsewhere fits, those here cannot refuse.
 */
function decideLocally(
  local: readonly { readonly place: number; readonly charge: Charge }[],
  results: LimitDecision[],
  fallback: Store,
): void {
  const refused = isRefused(results);
  const here = new Set(local.map(({ place }) => place));
  const quotaFits = results.some(
    ({ charge, outcome }, i) => charge.role === 'quota' && outcome.fits && !here.has(i),
  );
  const charges = local.map(({ charge }): Charge => {
    if (refused && charge.mode === 'take') return { ...charge, mode: 'peek' };
    return quotaFits && charge.role === 'quota' ? { ...charge, role: 'shadow' } : charge;
  });
  const request = new StoreRequest(charges, Infinity, () => undefined);
  fallback.decide([request], () => undefined);
  for (const [i, { place, charge }] of local.entries()) {
    const outcome = request.outcomes[i];
    if (outcome !== undefined) results[place] = { charge, source: 'local', outcome };
  }
}

/** This process's share of a limit: at least 1, save of a limit that admits nothing anyway. */
function createLocalLimit(instances: () => number): (limit: Limit) => Limit {
  let shares = new WeakMap<Limit, Limit>();
  let sharedAmong = 0;
  return (limit) => {
    const among = instances();
    if (among !== sharedAmong) {
      shares = new WeakMap();
      sharedAmong = among;
    }
    const known = shares.get(limit);
    if (known !== undefined) return known;
    const share = {
      ...limit,
      requests: shareOf(limit.requests, among),
      burst: shareOf(limit.burst, among),
    };
    shares.set(limit, share);
    return share;
  };
}

function shareOf(hits: number, among: number): number {
  return hits === 0 ? 0 : Math.max(1, Math.floor(hits / among));
}

/** Folds the results of the charges into the answer; they are in the order of the plans' limits. */
function fold(
  request: DecisionRequest,
  snapshot: Snapshot,
  plans: readonly Plan[],
  results: readonly LimitDecision[],
  nowUs: number,
): Decision {
  let next = 0;
  let degraded = false;
  const descriptors = new Array<DescriptorDecision>(plans.length);
  for (let i = 0; i < plans.length; i++) {
    const planned = plans[i];
    if (planned === undefined) continue;
    const { descriptor, rule, limits, unlimited, overridden } = planned;
    const own = limits.length === 0 ? [] : results.slice(next, next + limits.length);
    next += limits.length;
    let overLimit = false;
    for (const { source, outcome } of own) {
      if (source !== 'store') degraded = true;
      if (!outcome.fits && (overridden || rule?.shadow !== true)) overLimit = true;
    }
    descriptors[i] = { descriptor, rule, unlimited, limits: own, overLimit };
  }
  return {
    request,
    snapshot,
    allowed: !isRefused(results),
    degraded,
    domainKnown: snapshot.domains.has(request.domain),
    descriptors,
    nowUs,
  };
}
