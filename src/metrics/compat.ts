/**
 * The metrics that dashboards of Envoy's usual rate limit service rely on, under the names and labels that
 * its statsd-exporter mapping gives them. Behind METRICS_COMPAT, so that a migration keeps its alerts.
 *
 * A rule's statsd name is its domain and its levels, dot between: `shop.endpoint_/pay.user`. Labels are the
 * parts of that name: `domain`, `key1`, `key2`; deeper ones are not told apart. Everything counts hits.
 */
import { Backlog } from './backlog.js';
import { label, type Family, type Sample } from './exposition.js';
import type {
  Decision,
  DescriptorDecision,
  Entry,
  LimitDecision,
  Rule,
  Snapshot,
} from '../model.js';
import { digest, isSecretKey } from '../store/keys.js';

const STATS = ['total_hits', 'over_limit', 'near_limit', 'within_limit', 'shadow_mode'] as const;
type Stat = (typeof STATS)[number];

const HELP: Readonly<Record<Stat, string>> = {
  total_hits: 'Hits asked for.',
  over_limit: 'Hits refused, or that only shadow mode let pass.',
  near_limit: 'Hits taken above NEAR_LIMIT_RATIO of their limit.',
  within_limit: 'Hits that fitted.',
  shadow_mode: 'Hits that only shadow mode let pass.',
};

/** What statsd_exporter makes of a timer unless told otherwise. */
const RESPONSE_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Where names that come from requests end when there are too many of them. */
const OTHER = 'other';

interface Line extends Record<Stat, number> {
  readonly name: string;
}

export interface CompatMetricsOptions {
  readonly nearLimitRatio: number;
  /** Names that requests may bring for a rule, or for a domain's overrides. */
  readonly maxNames: number;
  /** SHADOW_MODE. */
  readonly shadowMode: boolean;
}

/** Counts beside the other metrics; nothing here throws on a request's way. */
export class CompatMetrics {
  private snapshot: Snapshot | undefined;
  /** Of rules whose name does not depend on the request, by index; filled a few at a time. */
  private byRule: (Line | undefined)[] = [];
  private readonly entering = new Backlog<Rule>(
    (rule) => this.lineOfRule(rule),
    () => undefined,
  );
  private readonly lines = new Map<string, Line>();
  private namesOf = new Map<string, number>();
  private globalShadow = 0;
  private domainNotFound = 0;
  private redisErrors = 0;
  private serviceErrors = 0;
  private loads = { good: 0, bad: 0 };
  private requests = 0;
  private readonly responses = new Float64Array(RESPONSE_BOUNDS.length + 1);
  private responseSeconds = 0;

  constructor(private readonly options: CompatMetricsOptions) {}

  observe(decision: Decision): void {
    if (!decision.domainKnown) this.domainNotFound++;
    if (decision.degraded) this.redisErrors++;
    let over = false;
    for (const part of decision.descriptors) {
      if (part.overLimit) over = true;
      if (part.limits.length > 0) this.count(decision, part);
    }
    if (over && this.options.shadowMode) this.globalShadow++;
  }

  observeRequest(seconds: number): void {
    this.requests++;
    this.responseSeconds += seconds;
    let at = 0;
    while (at < RESPONSE_BOUNDS.length && seconds > (RESPONSE_BOUNDS[at] ?? Infinity)) at++;
    this.responses[at] = (this.responses[at] ?? 0) + 1;
  }

  invalidRequest(): void {
    this.serviceErrors++;
  }

  configRejected(): void {
    this.loads.bad++;
  }

  /** Rules that have a name of their own exist at 0 from here on; what has been counted stays. */
  configLoaded(snapshot: Snapshot): void {
    this.loads.good++;
    this.entering.finish();
    this.snapshot = snapshot;
    this.namesOf = new Map();
    this.byRule = new Array<Line | undefined>(snapshot.rules.length);
    this.entering.start(snapshot.rules);
  }

  *families(): Generator<Family> {
    this.entering.finish();
    const lines = [...merge(this.lines.values())];
    for (const stat of STATS) {
      yield counter(
        `ratelimit_service_rate_limit_${stat}`,
        HELP[stat],
        lines.map(([labels, sums]) => ({ suffix: '', labels, value: sums[stat] })),
      );
    }
    const one = (name: string, help: string, value: number): Family =>
      counter(`ratelimit_service_${name}`, help, [{ suffix: '', labels: '', value }]);
    yield one(
      'rate_limit_domain_not_found',
      'Requests of a domain without configuration.',
      this.domainNotFound,
    );
    yield one('global_shadow_mode', 'Answers that SHADOW_MODE made OK.', this.globalShadow);
    yield one('config_load_success', 'Configurations that were loaded.', this.loads.good);
    yield one('config_load_error', 'Configurations that were wrong.', this.loads.bad);
    yield counter('ratelimit_service_should_rate_limit_error', 'Requests that went wrong.', [
      { suffix: '', labels: label('err_type', 'redis_error'), value: this.redisErrors },
      { suffix: '', labels: label('err_type', 'service_error'), value: this.serviceErrors },
    ]);
    const method = label('grpc_method', 'ShouldRateLimit');
    yield counter('ratelimit_service_total_requests', 'gRPC requests.', [
      { suffix: '', labels: method, value: this.requests },
    ]);
    yield {
      name: 'ratelimit_service_response_time_seconds',
      help: 'From receipt of a gRPC request to its answer.',
      type: 'histogram',
      merge: 'sum',
      samples: [...this.responseSamples(method)],
    };
  }

  /** The same under statsd names, a line each: `ratelimit.service.rate_limit.shop.user.total_hits: 8`. */
  statsd(): string {
    this.entering.finish();
    const lines: [string, number][] = [
      ['call.should_rate_limit.redis_error', this.redisErrors],
      ['call.should_rate_limit.service_error', this.serviceErrors],
      ['config_load_error', this.loads.bad],
      ['config_load_success', this.loads.good],
      ['global_shadow_mode', this.globalShadow],
    ];
    for (const line of this.lines.values()) {
      for (const stat of STATS) lines.push([`rate_limit.${line.name}.${stat}`, line[stat]]);
    }
    return lines
      .map(([name, value]) => `ratelimit.service.${name}: ${value}\n`)
      .sort()
      .join('');
  }

  private count(decision: Decision, part: DescriptorDecision): void {
    const told = part.limits.find(({ outcome }) => !outcome.fits) ?? part.limits[0];
    // Answers by policy are not counted here: no counter has been seen.
    if (told?.source !== 'store' || told.charge.mode === 'give_back') return;
    const { hits, mode } = told.charge;
    if (mode === 'peek') return;
    const line = this.lineOf(decision, part);
    line.total_hits += hits;
    if (told.outcome.fits) {
      line.within_limit += hits;
      line.near_limit += this.nearHits(told);
    } else {
      line.over_limit += hits;
      if (part.rule?.shadow === true) line.shadow_mode += hits;
    }
  }

  private nearHits({ charge, outcome }: LimitDecision): number {
    if (!outcome.taken) return 0;
    const capacity = charge.limit.burst;
    const above = capacity - outcome.remaining - Math.floor(capacity * this.options.nearLimitRatio);
    return Math.max(0, Math.min(charge.hits, above));
  }

  private lineOf(decision: Decision, part: DescriptorDecision): Line {
    const { rule } = part;
    const isOverride = part.descriptor.override !== undefined;
    if (rule !== undefined && !isOverride) {
      const own =
        decision.snapshot === this.snapshot
          ? this.lineOfRule(rule)
          : this.lines.get(statName(rule.domain, rule.chain.map(levelName)));
      if (own !== undefined) return own;
    }
    const { domain } = decision.request;
    const { entries } = part.descriptor;
    const levels = entries.map((entry, depth) =>
      rule === undefined || isOverride
        ? realName(entry, rule?.chain[depth])
        : countedName(entry, rule, depth),
    );
    const name = statName(domain, levels);
    const known = this.lines.get(name);
    if (known !== undefined) return known;
    // What requests bring is bounded for each rule.
    const origin = rule === undefined ? domain : `${domain}\n${rule.path}`;
    const names = (this.namesOf.get(origin) ?? 0) + 1;
    if (names > this.options.maxNames) return this.line(statName(domain, [OTHER]));
    this.namesOf.set(origin, names);
    return this.line(name);
  }

  /** Of a rule of the snapshot; undefined when its name depends on the request. */
  private lineOfRule(rule: Rule): Line | undefined {
    const known = this.byRule[rule.index];
    if (known !== undefined) return known;
    if (rule.limits.length === 0 || dependsOnRequest(rule)) return undefined;
    const line = this.line(statName(rule.domain, rule.chain.map(levelName)));
    this.byRule[rule.index] = line;
    return line;
  }

  private line(name: string): Line {
    const known = this.lines.get(name);
    if (known !== undefined) return known;
    const line = {
      name,
      total_hits: 0,
      over_limit: 0,
      near_limit: 0,
      within_limit: 0,
      shadow_mode: 0,
    };
    this.lines.set(name, line);
    return line;
  }

  private *responseSamples(method: string): Generator<Sample> {
    let total = 0;
    for (const [at, count] of this.responses.entries()) {
      total += count;
      const le = RESPONSE_BOUNDS[at] ?? '+Inf';
      yield { suffix: '_bucket', labels: `${method},le="${le}"`, value: total };
    }
    yield { suffix: '_sum', labels: method, value: this.responseSeconds };
    yield { suffix: '_count', labels: method, value: total };
  }
}

function counter(name: string, help: string, samples: readonly Sample[]): Family {
  return { name, help, type: 'counter', merge: 'sum', samples };
}

function dependsOnRequest(rule: Rule): boolean {
  return (
    rule.detailedMetric ||
    rule.chain.some((node) => node.valueToMetric || node.keyPart.keyIsPattern)
  );
}

/** A level as configured: `user`, `user_42`, `file_a*`. */
function levelName({ key, value, hashValue }: Rule): string {
  if (value === undefined) return key;
  return `${key}_${hashValue ? digest(value) : value}`;
}

/** A level with the value that was asked for. */
function realName({ key, value }: Entry, node: Rule | undefined): string {
  if (value === '') return key;
  return `${key}_${isSecretKey(key) || node?.hashValue === true ? digest(value) : value}`;
}

/** The real value where the rule counts by it; a shared counter keeps its pattern whatever else is set. */
function countedName(entry: Entry, rule: Rule, depth: number): string {
  const node = rule.chain[depth];
  if (node === undefined) return realName(entry, node);
  if (node.shareThreshold && node.value !== undefined) return `${entry.key}_${node.value}`;
  if (rule.detailedMetric || node.valueToMetric) return realName(entry, node);
  return node.value === undefined ? entry.key : levelName({ ...node, key: entry.key });
}

/** statsd's own characters are replaced, and the dots of an IPv4 address. */
function statName(domain: string, levels: readonly string[]): string {
  return [domain, ...levels]
    .join('.')
    .replace(/[:|]/g, '_')
    .replace(/(?<!\d)\d{1,3}(?:\.\d{1,3}){3}(?!\d)/g, (address) => address.replaceAll('.', '_'));
}

/** By labels: names that differ only below their third part have the same ones. */
function merge(lines: Iterable<Line>): Map<string, Record<Stat, number>> {
  const merged = new Map<string, Record<Stat, number>>();
  for (const line of lines) {
    const [domain = '', key1 = '', key2] = line.name.split('.');
    const labels = [label('domain', domain), label('key1', key1)];
    if (key2 !== undefined) labels.push(label('key2', key2));
    const name = labels.join(',');
    const sums = merged.get(name);
    if (sums === undefined) merged.set(name, { ...line });
    else for (const stat of STATS) sums[stat] += line[stat];
  }
  return merged;
}
