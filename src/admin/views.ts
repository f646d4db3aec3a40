/** What the API tells of the service as a whole: status, rules with what they do now, who is heavy. */
import type { Rule } from '../model.js';
import { valueId } from '../log/refusal-log.js';
import type { RecentReader, RuleActivity } from './recent-decisions.js';
import type { AdminSources, ReloadState, StoreState } from './sources.js';
import { formatLimit, valueOfKey } from './wording.js';

/** Of each rule so many values are looked at: who is refused most need not be the heaviest. */
const MOST_MERGED = 200;

/** The service at a glance. */
export interface Status {
  readonly version: string;
  readonly instanceId: string;
  readonly instances: number;
  readonly startedAtMs: number;
  readonly nowMs: number;
  readonly config: {
    readonly generation: number;
    readonly loadedAtMs: number;
    readonly files: readonly string[];
    readonly domains: readonly string[];
    readonly rules: number;
  } | null;
  readonly reload: ReloadState;
  readonly stores: readonly StoreState[];
  readonly overall: RuleActivity;
  readonly notLimited: readonly {
    readonly domain: string;
    readonly keys: string | null;
    readonly seen: number;
    readonly lastMs: number;
  }[];
}

/** A rule that limits something, or is told not to. */
export interface RuleView {
  readonly domain: string;
  readonly path: string;
  readonly file: string;
  readonly line: number;
  readonly limits: readonly string[];
  readonly algorithms: readonly string[];
  readonly unlimited: boolean;
  readonly shadow: boolean;
  readonly quota: boolean;
  readonly hidden: boolean;
  readonly activity: RuleActivity;
}

/** A value that is heavy now, about the last minute. */
export interface HeavyView {
  readonly domain: string;
  readonly path: string;
  /** Entries as in the counter's key: what is secret or long is a digest, after `#` or `@`. */
  readonly value: string;
  readonly id: string;
  readonly requests: number;
  readonly rejected: number;
  readonly error: number;
}

/** A value that was refused lately by this instance. */
export interface RefusalView {
  readonly value: string;
  readonly id: string;
  readonly limit: string;
  readonly sinceMs: number;
  readonly lastMs: number;
  readonly count: number;
  /** Null when it can never pass. */
  readonly untilMs: number | null;
}

export async function statusOf(sources: AdminSources): Promise<Status> {
  const recent = await sources.recent({ kind: 'figures' });
  const snapshot = sources.snapshot();
  return {
    version: sources.version,
    instanceId: sources.instanceId,
    instances: sources.instances(),
    startedAtMs: sources.startedAtMs,
    nowMs: sources.nowMs(),
    config:
      snapshot === undefined
        ? null
        : {
            generation: snapshot.generation,
            loadedAtMs: snapshot.loadedAtMs,
            files: snapshot.files,
            domains: [...snapshot.domains],
            rules: snapshot.rules.length,
          },
    reload: sources.reload(),
    stores: sources.stores(),
    overall: recent.overall(),
    notLimited: recent
      .notLimited()
      .map(({ domain, keys, seen, lastMs }) => ({ domain, keys: keys ?? null, seen, lastMs })),
  };
}

/** Rules with a limit, or unlimited, in the order of the configuration. */
export async function rulesOf(
  sources: AdminSources,
  domain: string | undefined,
): Promise<readonly RuleView[]> {
  const recent = await sources.recent({ kind: 'figures' });
  return limitedRules(sources)
    .filter((rule) => domain === undefined || rule.domain === domain)
    .map((rule) => ({
      domain: rule.domain,
      path: rule.path,
      file: rule.position.file,
      line: rule.position.line,
      limits: rule.limits.map(formatLimit),
      algorithms: [...new Set(rule.limits.map(({ algorithm }) => algorithm))],
      unlimited: rule.unlimited,
      shadow: rule.shadow,
      quota: rule.quota,
      hidden: rule.chain.some(({ hashValue }) => hashValue),
      activity: recent.activity(rule),
    }));
}

/** The rule of that name; undefined when there is none. */
export function findRule(sources: AdminSources, domain: string, path: string): Rule | undefined {
  return sources.snapshot()?.rules.find((rule) => rule.domain === domain && rule.path === path);
}

/** The heaviest values of one rule, or of all, the most refused first when `by` says so. */
export function heaviestOf(
  recent: RecentReader,
  rules: readonly Rule[],
  most: number,
  by: 'requests' | 'rejected',
): readonly HeavyView[] {
  return rules
    .flatMap((rule) =>
      recent.heaviest(rule, MOST_MERGED).map(({ key, requests, rejected, error }) => ({
        domain: rule.domain,
        path: rule.path,
        value: valueOfKey(key, rule.domain),
        id: valueId(key),
        requests,
        rejected,
        error,
      })),
    )
    .filter((value) => value[by] > 0)
    .sort((a, b) => b[by] - a[by] || b.requests - a.requests)
    .slice(0, most);
}

export function refusalsOf(recent: RecentReader, rule: Rule, most: number): readonly RefusalView[] {
  return recent.refusals(rule, most).map((refusal) => ({
    value: valueOfKey(refusal.key, rule.domain),
    id: valueId(refusal.key),
    limit: formatLimit(refusal.limit),
    sinceMs: refusal.firstMs,
    lastMs: refusal.lastMs,
    count: refusal.count,
    untilMs: refusal.untilMs ?? null,
  }));
}

export function limitedRules(sources: AdminSources): readonly Rule[] {
  const rules = sources.snapshot()?.rules ?? [];
  return rules.filter((rule) => rule.limits.length > 0 || rule.unlimited);
}
