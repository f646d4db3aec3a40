/**
 * The last minute of several processes that serve together as one: each says what it knows as plain data,
 * and whoever was asked puts it together. Pure.
 */
import {
  RECENT_SECONDS,
  type HeavyValue,
  type RecentReader,
  type Refusal,
  type RuleActivity,
  type RuleName,
  type Stranger,
  type Tally,
} from './recent-decisions.js';

/** What is wanted, so that no more than that goes from process to process. */
export type RecentScope =
  /** Rates of every rule, and what nothing limits. */
  | { readonly kind: 'figures' }
  /** The heaviest values and latest refusals, of one rule or of all. */
  | { readonly kind: 'values'; readonly rule?: RuleName }
  /** What is remembered of refusals by these counters. */
  | { readonly kind: 'counters'; readonly keys: readonly string[] };

/** What one process knows of one rule. */
interface RuleReport {
  readonly domain: string;
  readonly path: string;
  readonly activity?: RuleActivity;
  readonly heavy?: readonly HeavyValue[];
  readonly refusals?: readonly Refusal[];
}

/** What one process knows; can be sent as JSON. Rules of which there is nothing to say are left out. */
export interface RecentReport {
  readonly overall: RuleActivity;
  readonly strangers: readonly Stranger[];
  readonly rules: readonly RuleReport[];
}

/** Of one rule all that there is; of all rules together only the top of each. */
const MOST_OF_ONE = 200;
const MOST_OF_EACH = 20;

/** What this process knows within the scope. */
export function reportRecent(
  recent: RecentReader,
  rules: readonly RuleName[],
  scope: RecentScope,
): RecentReport {
  return {
    overall: recent.overall(),
    strangers: scope.kind === 'figures' ? recent.notLimited() : [],
    rules: rules.flatMap(({ domain, path }) => {
      const report = reportRule(recent, { domain, path }, scope);
      return report === undefined ? [] : [{ domain, path, ...report }];
    }),
  };
}

function reportRule(
  recent: RecentReader,
  rule: RuleName,
  scope: RecentScope,
): Omit<RuleReport, 'domain' | 'path'> | undefined {
  switch (scope.kind) {
    case 'figures': {
      const activity = recent.activity(rule);
      const { allowed, rejected, shadow, notTaken, policy } = activity.totals;
      return allowed + rejected + shadow + notTaken + policy === 0 ? undefined : { activity };
    }
    case 'values': {
      const { rule: wanted } = scope;
      if (wanted !== undefined && !isSame(wanted, rule)) return undefined;
      const most = wanted === undefined ? MOST_OF_EACH : MOST_OF_ONE;
      const heavy = recent.heaviest(rule, most);
      const refusals = wanted === undefined ? [] : recent.refusals(rule, most);
      return heavy.length + refusals.length === 0 ? undefined : { heavy, refusals };
    }
    case 'counters': {
      const refusals = scope.keys.flatMap((key) => recent.refusalOf(rule, key) ?? []);
      return refusals.length === 0 ? undefined : { refusals };
    }
  }
}

/** All processes as one. */
export function mergeReports(reports: readonly RecentReport[]): RecentReader {
  const of = (rule: RuleName): RuleReport[] =>
    reports.flatMap(({ rules }) => rules.filter((report) => isSame(report, rule)));
  const refusalsOf = (rule: RuleName): Refusal[] =>
    mergeBy(
      of(rule).flatMap(({ refusals }) => refusals ?? []),
      ({ key }) => key,
      mergeRefusals,
    ).sort((a, b) => b.lastMs - a.lastMs);
  return {
    activity: (rule) => mergeActivities(of(rule).flatMap(({ activity }) => activity ?? [])),
    overall: () => mergeActivities(reports.map(({ overall }) => overall)),
    heaviest: (rule, most) =>
      mergeBy(
        of(rule).flatMap(({ heavy }) => heavy ?? []),
        ({ key }) => key,
        (a, b) => ({
          key: a.key,
          requests: a.requests + b.requests,
          rejected: a.rejected + b.rejected,
          error: a.error + b.error,
        }),
      )
        .sort((a, b) => b.requests - a.requests || (a.key < b.key ? -1 : 1))
        .slice(0, most),
    refusals: (rule, most) => refusalsOf(rule).slice(0, most),
    refusalOf: (rule, key) => refusalsOf(rule).find((refusal) => refusal.key === key),
    notLimited: () =>
      mergeBy(
        reports.flatMap(({ strangers }) => strangers),
        ({ domain, keys }) => JSON.stringify([domain, keys]),
        (a, b) => ({
          ...a,
          seen: a.seen + b.seen,
          lastMs: Math.max(a.lastMs, b.lastMs),
        }),
      ).sort((a, b) => b.lastMs - a.lastMs),
  };
}

function mergeActivities(activities: readonly RuleActivity[]): RuleActivity {
  const totals: Tally = { allowed: 0, rejected: 0, shadow: 0, notTaken: 0, policy: 0 };
  for (const each of activities) {
    totals.allowed += each.totals.allowed;
    totals.rejected += each.totals.rejected;
    totals.shadow += each.totals.shadow;
    totals.notTaken += each.totals.notTaken;
    totals.policy += each.totals.policy;
  }
  const allowedBySecond = addUp(activities.map((each) => each.allowedBySecond));
  const rejectedBySecond = addUp(activities.map((each) => each.rejectedBySecond));
  const allowed = sum(allowedBySecond);
  const rejected = sum(rejectedBySecond);
  return {
    rate: sum(activities.map(({ rate }) => rate)),
    rejectRatio: rejected === 0 ? 0 : rejected / (allowed + rejected),
    totals,
    allowedBySecond,
    rejectedBySecond,
  };
}

/** A value was refused since whoever refused it first, by all together, until the latest told. */
function mergeRefusals(a: Refusal, b: Refusal): Refusal {
  const later = a.lastMs >= b.lastMs ? a : b;
  return {
    ...later,
    firstMs: Math.min(a.firstMs, b.firstMs),
    count: a.count + b.count,
  };
}

function mergeBy<T>(
  items: readonly T[],
  nameOf: (item: T) => string,
  merge: (a: T, b: T) => T,
): T[] {
  const merged = new Map<string, T>();
  for (const item of items) {
    const name = nameOf(item);
    const known = merged.get(name);
    merged.set(name, known === undefined ? item : merge(known, item));
  }
  return [...merged.values()];
}

/** Second by second; idle processes have none. */
function addUp(lists: readonly (readonly number[])[]): readonly number[] {
  const busy = lists.filter((list) => list.length > 0);
  if (busy.length === 0) return [];
  return Array.from({ length: RECENT_SECONDS }, (_, i) => sum(busy.map((list) => list[i] ?? 0)));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function isSame(a: RuleName, b: RuleName): boolean {
  return a.path === b.path && a.domain === b.domain;
}
