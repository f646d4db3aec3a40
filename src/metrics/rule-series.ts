/**
 * What is counted per rule: outcomes in requests, nearness, the ratio of refusals, keys in use. Plain
 * numbers, found by the rule's index, so that a decision costs no look-up by label. Knows no wire
 * and no exposition format but the labels' text.
 */
import type { ActiveKeys, RuleActivity } from './active-keys.js';
import { Backlog } from './backlog.js';
import { label } from './exposition.js';
import type { Decision, DescriptorDecision, LimitDecision, Rule, Snapshot } from '../model.js';
import { RollingRatio } from './rolling-ratio.js';
import { digest, isSecretKey } from '../store/keys.js';

/** What became of a rule in one request; among several limits of a rule the last here wins. */
export const OUTCOMES = [
  'allowed',
  'policy_allowed',
  'policy_local_allowed',
  'shadow_rejected',
  'not_taken',
  'policy_local_rejected',
  'policy_denied',
  'rejected',
] as const;
export type RuleOutcome = (typeof OUTCOMES)[number];

const AT = Object.fromEntries(OUTCOMES.map((outcome, at) => [outcome, at])) as Readonly<
  Record<RuleOutcome, number>
>;

const OUTCOME_LABELS = OUTCOMES.map((outcome) => label('outcome', outcome));

/** The label `rule` of limits that a request brings where no rule matches. */
const OVERRIDE = 'override';
/** The label `value` of everything above the most series that a rule may have. */
const OTHER = 'other';

/** One line of counters in the exposition: a rule, or one value of a rule that counts by value. */
export class Series {
  /** By outcome, in the order of OUTCOMES. */
  readonly outcomes = new Float64Array(OUTCOMES.length);
  nearLimit = 0;

  // The request that is being observed, folded: a rule may match several of its descriptors.
  request = 0;
  outcome = 0;
  near = 0;

  private madeLabels: readonly string[] | undefined;

  constructor(readonly labels: string) {}

  /** Labels by outcome; made at the first scrape, as a reload of many rules must not wait for them. */
  get outcomeLabels(): readonly string[] {
    this.madeLabels ??= OUTCOME_LABELS.map((outcome) => `${this.labels},${outcome}`);
    return this.madeLabels;
  }
}

/** A rule's own series, those of its values, and what is kept once per rule. */
export class RuleSeries {
  readonly own: Series;
  readonly ratio = new RollingRatio();
  /** By value; undefined unless the rule counts by value. */
  values: Map<string, Series> | undefined;

  constructor(
    readonly domain: string,
    readonly path: string,
    readonly activity: RuleActivity,
  ) {
    this.own = new Series(`${label('domain', domain)},${label('rule', path)}`);
  }

  /** The series of a value; the common one once `most` others exist. */
  ofValue(value: string, most: number): Series {
    this.values ??= new Map();
    const known = this.values.get(value);
    if (known !== undefined) return known;
    const name = this.values.size < most ? value : OTHER;
    let series = this.values.get(name);
    if (series === undefined) {
      series = new Series(`${this.own.labels},${label('value', name)}`);
      this.values.set(name, series);
    }
    return series;
  }
}

/** What `RuleBook` must be told. */
export interface RuleBookOptions {
  /** Hits above this part of a limit are near it, 0 to 1. */
  readonly nearLimitRatio: number;
  /** Values a rule may have series for. */
  readonly maxValues: number;
  readonly nowMs: () => number;
  readonly activeKeys: ActiveKeys;
}

/** Every rule's series, across reloads: the same domain and path go on counting. */
export class RuleBook {
  private snapshot: Snapshot | undefined;
  /** Filled a few at a time, and where a decision needs it. */
  private byIndex: (RuleSeries | undefined)[] = [];
  private byName = new Map<string, RuleSeries>();
  /** Of the snapshot before: what no rule has taken over yet. */
  private before = new Map<string, RuleSeries>();
  private readonly entering: Backlog<Rule>;
  private request = 0;
  private readonly touched: Series[] = [];
  private readonly touchedRules: RuleSeries[] = [];

  constructor(private readonly options: RuleBookOptions) {
    this.entering = new Backlog<Rule>(
      (rule) => this.seriesOfRule(rule),
      () => {
        this.forgetRest();
      },
    );
  }

  /** Rules that are gone lose their series, new ones start at 0. */
  load(snapshot: Snapshot): void {
    this.entering.finish();
    this.before = this.byName;
    this.snapshot = snapshot;
    this.byName = new Map();
    this.byIndex = new Array<RuleSeries | undefined>(snapshot.rules.length);
    this.entering.start(snapshot.rules);
  }

  /** Counts a decision; true when some rule matched, or the request brought a limit. */
  observe(decision: Decision): boolean {
    const request = ++this.request;
    const nowMs = this.options.nowMs();
    let matched = false;
    for (const descriptor of decision.descriptors) {
      if (descriptor.rule === undefined && descriptor.limits.length === 0) continue;
      matched = true;
      const rule = this.find(decision, descriptor.rule);
      if (rule !== undefined) this.fold(decision, descriptor, rule, request, nowMs);
    }
    this.settle(nowMs);
    return matched;
  }

  /**
   * Every rule that can be counted, in the order of the configuration, then the limits that requests
   * brought. Each once: a sample that stands twice makes a scrape fail.
   */
  all(): ReadonlySet<RuleSeries> {
    this.entering.finish();
    const found = new Set<RuleSeries>();
    for (const rule of this.snapshot?.rules ?? []) {
      if (isCounted(rule)) found.add(this.seriesOfRule(rule));
    }
    for (const series of this.byName.values()) if (series.path === OVERRIDE) found.add(series);
    return found;
  }

  /** Of a rule of the snapshot. */
  private seriesOfRule(rule: Rule): RuleSeries {
    const known = this.byIndex[rule.index];
    if (known !== undefined) return known;
    const name = nameOf(rule.domain, rule.path);
    const series = this.before.get(name) ?? this.create(rule.domain, rule.path);
    this.before.delete(name);
    this.byName.set(name, series);
    this.byIndex[rule.index] = series;
    if (!byValue(rule)) series.values = undefined;
    return series;
  }

  /** What no rule has taken over is gone, save what requests brought to domains that are still there. */
  private forgetRest(): void {
    for (const [name, series] of this.before) {
      if (series.path === OVERRIDE && this.snapshot?.domains.has(series.domain) === true) {
        this.byName.set(name, series);
      } else {
        this.options.activeKeys.forget(series.activity);
      }
    }
    this.before = new Map();
  }

  private create(domain: string, path: string): RuleSeries {
    const { activeKeys } = this.options;
    return new RuleSeries(
      domain,
      path,
      activeKeys.track(() => digest(nameOf(domain, path))),
    );
  }

  private find(decision: Decision, rule: Rule | undefined): RuleSeries | undefined {
    if (rule !== undefined) {
      return decision.snapshot === this.snapshot
        ? this.seriesOfRule(rule)
        : this.named(nameOf(rule.domain, rule.path));
    }
    const { domain } = decision.request;
    if (!decision.domainKnown) return undefined;
    const name = nameOf(domain, OVERRIDE);
    let series = this.named(name);
    if (series === undefined) {
      series = this.create(domain, OVERRIDE);
      this.byName.set(name, series);
    }
    return series;
  }

  private named(name: string): RuleSeries | undefined {
    return this.byName.get(name) ?? this.before.get(name);
  }

  private fold(
    decision: Decision,
    descriptor: DescriptorDecision,
    rule: RuleSeries,
    request: number,
    nowMs: number,
  ): void {
    let outcome = descriptor.unlimited ? AT.allowed : -1;
    let near = 0;
    for (const limit of descriptor.limits) {
      const { charge } = limit;
      if (charge.mode === 'peek' || charge.mode === 'give_back') continue;
      outcome = Math.max(outcome, AT[outcomeOf(limit, decision.allowed)]);
      near = Math.max(near, this.nearHits(limit));
      this.options.activeKeys.use(rule.activity, charge.key, nowMs);
    }
    if (outcome < 0) return;
    const series = this.seriesOf(descriptor, rule);
    if (series.request !== request) {
      series.request = request;
      series.outcome = outcome;
      series.near = near;
      this.touched.push(series);
      this.touchedRules.push(rule);
    } else {
      series.outcome = Math.max(series.outcome, outcome);
      series.near += near;
    }
  }

  private settle(nowMs: number): void {
    const { touched, touchedRules } = this;
    for (let i = 0; i < touched.length; i++) {
      const series = touched[i];
      const rule = touchedRules[i];
      if (series === undefined || rule === undefined) continue;
      const { outcome } = series;
      series.outcomes[outcome] = (series.outcomes[outcome] ?? 0) + 1;
      series.nearLimit += series.near;
      if (outcome === AT.allowed || outcome === AT.rejected) {
        rule.ratio.count(outcome === AT.rejected, nowMs);
      }
    }
    touched.length = 0;
    touchedRules.length = 0;
  }

  /** How many of the hits just taken lie above the ratio. */
  private nearHits({ charge, outcome, source }: LimitDecision): number {
    if (source !== 'store' || !outcome.fits || !outcome.taken) return 0;
    const { limit } = charge;
    const capacity = limit.algorithm === 'token_bucket' ? limit.burst : limit.requests;
    const used = capacity - outcome.remaining;
    const above = used - Math.floor(capacity * this.options.nearLimitRatio);
    return Math.max(0, Math.min(charge.hits, above));
  }

  private seriesOf(descriptor: DescriptorDecision, rule: RuleSeries): Series {
    if (descriptor.rule === undefined || !byValue(descriptor.rule)) return rule.own;
    const value = valueOf(descriptor, descriptor.rule);
    return value === '' ? rule.own : rule.ofValue(value, this.options.maxValues);
  }
}

function nameOf(domain: string, path: string): string {
  return `${domain}\n${path}`;
}

/** A rule that only has children counts nothing. */
function isCounted(rule: Rule): boolean {
  return rule.limits.length > 0 || rule.unlimited;
}

function byValue(rule: Rule): boolean {
  if (rule.detailedMetric) return true;
  for (const node of rule.chain) if (node.valueToMetric) return true;
  return false;
}

/** `org=a.job=b`: the real values of the levels that ask for it, secrets as digests. */
function valueOf(descriptor: DescriptorDecision, rule: Rule): string {
  let text = '';
  for (const [depth, entry] of descriptor.descriptor.entries.entries()) {
    const node = rule.chain[depth];
    if (node === undefined || node.shareThreshold) continue;
    if (!rule.detailedMetric && !node.valueToMetric) continue;
    const isSecret = node.hashValue || isSecretKey(entry.key);
    const value = isSecret ? digest(entry.value) : entry.value;
    text += `${text === '' ? '' : '.'}${entry.key}=${value}`;
  }
  return text;
}

/**
 * What one limit did. A quota that is used up refuses nothing while another quota of the request has
 * room, and is then counted with what only shadow mode let pass.
 */
function outcomeOf(limit: LimitDecision, allowed: boolean): RuleOutcome {
  const { charge, outcome, source } = limit;
  const isShadow = charge.role === 'shadow';
  switch (source) {
    case 'allow':
      return 'policy_allowed';
    case 'deny':
      return isShadow ? 'policy_allowed' : 'policy_denied';
    case 'local':
      return outcome.fits || isShadow ? 'policy_local_allowed' : 'policy_local_rejected';
    case 'store':
      if (!outcome.fits) return isShadow || allowed ? 'shadow_rejected' : 'rejected';
      return allowed || outcome.taken ? 'allowed' : 'not_taken';
  }
}
