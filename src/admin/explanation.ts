/**
 * The answer to "why was I limited?": for each descriptor the rule that matches and why each other one
 * does not, its counters with their present state, and a verdict in a sentence. What is secret is shown
 * as a digest, never in clear.
 */
import type {
  Decision,
  Descriptor,
  DescriptorDecision,
  Entry,
  LimitDecision,
  Rule,
  Snapshot,
} from '../model.js';
import { valueId } from '../log/refusal-log.js';
import { explain } from '../rules/explain.js';
import { digest, isSecretKey } from '../store/keys.js';
import { formatDescriptor } from './descriptor-text.js';
import type { RecentReader } from './recent-decisions.js';
import type { AdminSources } from './sources.js';
import { formatLimit, formatSpan } from './wording.js';

/** One counter: a limit of the matched rule, and what it says of this very descriptor. Times in ms. */
export interface CounterState {
  readonly key: string;
  /** What log lines call the value. */
  readonly id: string;
  readonly name: string;
  readonly limit: string;
  readonly algorithm: string;
  readonly windowSeconds: number;
  readonly capacity: number;
  readonly used: number;
  readonly remaining: number;
  readonly role: string;
  /** `store`, or the policy that answered because the store did not: then the figures mean nothing. */
  readonly source: string;
  /** Whether one more hit would pass. */
  readonly fits: boolean;
  /** When it would pass; null when it does now, or never can. */
  readonly freeAtMs: number | null;
  /** When the counter is as if untouched; null when it is. */
  readonly resetAtMs: number | null;
  /** What this instance has refused by this counter; null when nothing, or nothing lately. */
  readonly refused: {
    readonly sinceMs: number;
    readonly lastMs: number;
    readonly count: number;
  } | null;
}

/** Why a rule matches, or does not. */
export interface RuleReason {
  readonly path: string;
  readonly file: string;
  readonly line: number;
  readonly matched: boolean;
  readonly reason: string;
}

export interface ExplainedDescriptor {
  /** As it may be shown. */
  readonly descriptor: string;
  readonly rule: {
    readonly path: string;
    readonly file: string;
    readonly line: number;
    readonly column: number;
    readonly unlimited: boolean;
    readonly shadow: boolean;
    readonly quota: boolean;
  } | null;
  /** Whether it refuses the request. */
  readonly refuses: boolean;
  /** In a sentence. */
  readonly verdict: string;
  readonly counters: readonly CounterState[];
  readonly rules: readonly RuleReason[];
}

export interface ExplainedRequest {
  readonly domain: string;
  readonly domainKnown: boolean;
  /** All that there are. */
  readonly domains: readonly string[];
  /** Whether one more hit would pass now. */
  readonly allowed: boolean;
  /** Part of the answer is by policy, as the store did not answer. */
  readonly degraded: boolean;
  readonly nowMs: number;
  readonly descriptors: readonly ExplainedDescriptor[];
}

type Needs = Pick<AdminSources, 'look' | 'recent' | 'nowMs'>;

/** Looks at every counter of the request, taking nothing. */
export async function explainRequest(
  sources: Needs,
  domain: string,
  descriptors: readonly Descriptor[],
): Promise<ExplainedRequest> {
  const decision = await sources.look(domain, descriptors, 1);
  const keys = decision.descriptors.flatMap(({ limits }) => limits.map(({ charge }) => charge.key));
  const recent = await sources.recent({ kind: 'counters', keys });
  const nowMs = sources.nowMs();
  const { snapshot } = decision;
  return {
    domain,
    domainKnown: decision.domainKnown,
    domains: [...snapshot.domains],
    allowed: decision.allowed,
    degraded: decision.degraded,
    nowMs,
    descriptors: decision.descriptors.map((part) =>
      explainDescriptor(recent, decision, snapshot, part, nowMs),
    ),
  };
}

/**
 * The entries as they may be shown: a value as `key#digest` where any rule of the domain hides the values
 * of that key, so that a near miss shows nothing either.
 */
export function hideSecrets(entries: readonly Entry[], secret: (key: string) => boolean): string {
  return entries
    .map((entry) =>
      secret(entry.key) ? `${entry.key}#${digest(entry.value)}` : formatDescriptor([entry]),
    )
    .join(',');
}

/** Which keys have values that must not be seen in this domain. */
export function secretKeys(snapshot: Snapshot, domain: string): (key: string) => boolean {
  const keys = new Set<string>();
  let all = false;
  for (const rule of snapshot.rules) {
    if (rule.domain !== domain || !rule.hashValue) continue;
    if (rule.key.includes('*')) all = true;
    else keys.add(rule.key);
  }
  return (key) => all || isSecretKey(key) || keys.has(key);
}

function explainDescriptor(
  recent: RecentReader,
  decision: Decision,
  snapshot: Snapshot,
  part: DescriptorDecision,
  nowMs: number,
): ExplainedDescriptor {
  const { descriptor, rule, limits } = part;
  const { entries } = descriptor;
  const explanation = explain(snapshot, decision.request.domain, entries);
  const secret = secretKeys(snapshot, decision.request.domain);
  const shown = hideSecrets(entries, secret);
  const counters = limits.map((limit) => counterState(recent, rule, limit, nowMs));
  const refusing = limits.some(({ charge, outcome }) => !outcome.fits && charge.role !== 'shadow');
  const refuses = refusing && !decision.allowed;
  return {
    descriptor: shown,
    rule:
      rule === undefined
        ? null
        : {
            path: rule.path,
            file: rule.position.file,
            line: rule.position.line,
            column: rule.position.column,
            unlimited: rule.unlimited,
            shadow: rule.shadow,
            quota: rule.quota,
          },
    refuses,
    verdict: verdictOf(decision, part, shown, counters, nowMs),
    counters,
    rules: explanation.rules.map(({ path, position, matched, reason }) => ({
      path,
      file: position.file,
      line: position.line,
      matched,
      reason: hideIn(reason, entries, secret),
    })),
  };
}

function counterState(
  recent: RecentReader,
  rule: Rule | undefined,
  { charge, outcome, source }: LimitDecision,
  nowMs: number,
): CounterState {
  const { limit, key, role } = charge;
  // A limit of 0 admits nothing, whatever its burst.
  const most = limit.requests === 0 ? 0 : limit.burst;
  const refusal = rule === undefined ? undefined : recent.refusalOf(rule, key);
  const freeAtMs =
    outcome.fits || outcome.retryAfterUs < 0
      ? null
      : nowMs + Math.ceil(outcome.retryAfterUs / 1000);
  return {
    key,
    id: valueId(key),
    name: limit.name,
    limit: formatLimit(limit),
    algorithm: limit.algorithm,
    windowSeconds: limit.windowUs / 1_000_000,
    capacity: most,
    used: Math.max(0, most - outcome.remaining),
    remaining: outcome.remaining,
    role,
    source,
    fits: outcome.fits,
    freeAtMs,
    resetAtMs: outcome.resetUs === 0 ? null : nowMs + Math.ceil(outcome.resetUs / 1000),
    refused:
      refusal === undefined
        ? null
        : { sinceMs: refusal.firstMs, lastMs: refusal.lastMs, count: refusal.count },
  };
}

function verdictOf(
  decision: Decision,
  { rule, limits, unlimited }: DescriptorDecision,
  shown: string,
  counters: readonly CounterState[],
  nowMs: number,
): string {
  const { domain } = decision.request;
  if (!decision.domainKnown) {
    return `Not limited: no configuration has a domain \`${domain}\`. Is it misspelt, or a file missing?`;
  }
  if (rule === undefined && limits.length === 0) return 'Not limited: no rule matches.';
  if (unlimited) return 'Not limited: the rule says `unlimited`.';
  if (limits.length === 0) {
    return rule !== undefined && rule.limits.length > 0
      ? 'Not limited here: another descriptor of this request replaces the limit.'
      : 'Not limited: the rule that matches has no limit, only rules below it.';
  }
  if (counters.some(({ source }) => source !== 'store')) {
    return 'Not known: the store does not answer, and the limit is decided by its on_store_error policy.';
  }
  const tightest = pickTightest(counters);
  const full = `${tightest.used} of ${tightest.capacity} used (${tightest.limit})`;
  if (tightest.fits) {
    const before = tightest.refused;
    const history =
      before === null
        ? ''
        : ` This instance last refused it ${formatSpan(nowMs - before.lastMs)} ago.`;
    return `Would pass: \`${shown}\` has ${full}, ${tightest.remaining} left.${history}`;
  }
  const shadow = tightest.role === 'shadow';
  const since =
    tightest.refused === null
      ? ''
      : ` Refused ${times(tightest.refused.count)} by this instance in ${formatSpan(nowMs - tightest.refused.sinceMs)}.`;
  const until =
    tightest.freeAtMs === null
      ? tightest.capacity === 0
        ? ' Never: the limit is 0.'
        : ' Never as it is.'
      : ` Free again in ${formatSpan(tightest.freeAtMs - nowMs)}.`;
  const head = shadow ? 'Over the limit, but in shadow mode' : 'Refused now';
  const quota = tightest.role === 'quota' && decision.allowed ? ' Another quota has room.' : '';
  return `${head}: \`${shown}\` has ${full}.${quota}${since}${until}`;
}

/** The counter to speak of: one that refuses, for the longest; else the one with the least left. */
function pickTightest(counters: readonly CounterState[]): CounterState {
  const [first, ...rest] = counters;
  if (first === undefined) throw new Error('a descriptor with limits has counters');
  return rest.reduce((best, next) => {
    if (best.fits !== next.fits) return best.fits ? next : best;
    if (best.fits) return next.remaining < best.remaining ? next : best;
    return (next.freeAtMs ?? Infinity) > (best.freeAtMs ?? Infinity) ? next : best;
  }, first);
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`;
}

function hideIn(text: string, entries: readonly Entry[], secret: (key: string) => boolean): string {
  let hidden = text;
  for (const { key, value } of entries) {
    if (!secret(key) || value === '') continue;
    hidden = hidden.replaceAll(value, `#${digest(value).slice(0, 8)}`);
  }
  return hidden;
}
