/**
 * Every metric, declared once. Counting is plain arithmetic on the way of a request; text is made
 * only when Prometheus asks. The only file that knows prom-client, which brings the process's own
 * metrics (its label look-ups are too dear for every request).
 */
import { Registry, collectDefaultMetrics } from 'prom-client';
import { ActiveKeys, type ActiveKeyStore } from './active-keys.js';
import {
  label,
  writeExposition,
  type Exposition,
  type Family,
  type LazyFamily,
  type Sample,
} from './exposition.js';
import { CompatMetrics } from './compat.js';
import { FAILURE_KINDS, type Decision, type FailureKind, type Snapshot } from '../model.js';
import { RuleBook, type Series } from './rule-series.js';
import type { StoreObserver } from '../store/store.js';

/** The front doors, a label of `weir_request_duration_seconds`. */
export const METHODS = ['envoy', 'native', 'json'] as const;
export type Method = (typeof METHODS)[number];

/** What the metrics must be told. */
export interface MetricsOptions {
  readonly version: string;
  /** `memory` or `redis`. */
  readonly store: string;
  /** NEAR_LIMIT_RATIO, 0 to 1. */
  readonly nearLimitRatio: number;
  /** DETAILED_METRIC_MAX_SERIES. */
  readonly detailedMaxSeries: number;
  /** Adds request durations in ms too. */
  readonly alsoMilliseconds?: boolean;
  /** METRICS_COMPAT: adds the names of the usual service; whether SHADOW_MODE is on. */
  readonly compat?: { readonly shadowMode: boolean } | undefined;
  /** ms since the epoch. */
  readonly nowMs: () => number;
  /** Metrics of Node and the process; true unless a test wants to see only ours. */
  readonly processMetrics?: boolean;
}

const DURATION_BOUNDS = [
  0.00025, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02,
  0.03, 0.05, 0.1, 0.25, 1,
];
const ROUNDTRIP_BOUNDS = [
  0.0001, 0.00025, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05,
  0.1, 0.25, 1,
];
const BATCH_BOUNDS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/** A histogram as three plain fields. */
class Histogram {
  private readonly counts: Float64Array;
  private sum = 0;

  constructor(private readonly bounds: readonly number[]) {
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    const { bounds, counts } = this;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] ?? Infinity)) at++;
    counts[at] = (counts[at] ?? 0) + 1;
    this.sum += value;
  }

  /** `scale` multiplies bounds and sum, for another unit. */
  *samples(labels: string, scale = 1): Generator<Sample> {
    const head = labels === '' ? '' : `${labels},`;
    let total = 0;
    for (const [at, count] of this.counts.entries()) {
      total += count;
      const bound = this.bounds[at];
      const le =
        bound === undefined
          ? '+Inf'
          : String(scale === 1 ? bound : Number((bound * scale).toPrecision(12)));
      yield { suffix: '_bucket', labels: `${head}le="${le}"`, value: total };
    }
    yield { suffix: '_sum', labels, value: this.sum * scale };
    yield { suffix: '_count', labels, value: total };
  }
}

/** What a store has said of itself lately. */
export interface StoreFacts {
  readonly clockSkewSeconds: number;
  readonly evictionPolicyUnsafe: boolean;
  readonly evictedKeys: number;
}

/** In place of `Metrics` under DISABLE_STATS: counts nothing, and a scrape of it is empty. */
export const NO_METRICS = {
  observeDecision: ignore,
  observeRequest: ignore,
  invalidRequest: ignore,
  deadlineExceeded: ignore,
  exposition: (accept: string | undefined): Promise<Exposition> => writeExposition([], accept),
  statsd: (): string => '',
};

function ignore(): void {
  // nothing is counted
}

/** Counts what happens, and writes it down when asked. Nothing here throws on a request's way. */
export class Metrics implements StoreObserver {
  private readonly rules: RuleBook;
  private readonly activeKeys: ActiveKeys;
  private readonly processRegistry = new Registry();

  private readonly durations: Readonly<Record<Method, Histogram>> = {
    envoy: new Histogram(DURATION_BOUNDS),
    native: new Histogram(DURATION_BOUNDS),
    json: new Histogram(DURATION_BOUNDS),
  };
  private readonly roundtrips = new Histogram(ROUNDTRIP_BOUNDS);
  private readonly batches = new Histogram(BATCH_BOUNDS);
  private readonly failures = new Map<FailureKind, number>(FAILURE_KINDS.map((kind) => [kind, 0]));
  private unmatched = new Map<string, number>();
  private readonly counts = {
    unknownDomain: 0,
    invalid: 0,
    deadline: 0,
    degraded: 0,
    scriptReloads: 0,
    denyCacheHits: 0,
    memoryOverflows: 0,
    undoFailures: 0,
    rejectedConfigs: 0,
  };
  private breaker = 0;
  private skew = 0;
  private evictionPolicyUnsafe = 0;
  private evictedKeys = 0;
  private lastReloadSuccess = 0;
  private snapshot: Snapshot | undefined;
  private readonly compat: CompatMetrics | undefined;

  constructor(private readonly options: MetricsOptions) {
    this.activeKeys = new ActiveKeys(options.nowMs);
    this.rules = new RuleBook({
      nearLimitRatio: options.nearLimitRatio,
      maxValues: options.detailedMaxSeries,
      nowMs: options.nowMs,
      activeKeys: this.activeKeys,
    });
    if (options.compat !== undefined) {
      this.compat = new CompatMetrics({
        nearLimitRatio: options.nearLimitRatio,
        maxNames: options.detailedMaxSeries,
        shadowMode: options.compat.shadowMode,
      });
    }
    if (options.processMetrics ?? true) collectDefaultMetrics({ register: this.processRegistry });
  }

  /** Begins to share the estimate of keys in use; without a store it stays this process's own. */
  start(shared?: ActiveKeyStore): void {
    if (shared !== undefined) this.activeKeys.share(shared);
  }

  stop(): void {
    this.activeKeys.stop();
  }

  /** Call once a decision, best after the answer is on its way. */
  observeDecision(decision: Decision): void {
    const { snapshot } = decision;
    if (snapshot.generation > (this.snapshot?.generation ?? 0)) this.configLoaded(snapshot);
    if (decision.degraded) this.counts.degraded++;
    this.compat?.observe(decision);
    const matched = this.rules.observe(decision);
    if (!decision.domainKnown) {
      this.counts.unknownDomain++;
    } else if (!matched) {
      const { domain } = decision.request;
      this.unmatched.set(domain, (this.unmatched.get(domain) ?? 0) + 1);
    }
  }

  /** From receipt to answer. */
  observeRequest(method: Method, seconds: number): void {
    this.durations[method].observe(seconds);
    if (method === 'envoy') this.compat?.observeRequest(seconds);
  }

  /** A request was refused as wrong: INVALID_ARGUMENT, 400. */
  invalidRequest(): void {
    this.counts.invalid++;
    this.compat?.invalidRequest();
  }

  /** The answer came after the caller had given up. */
  deadlineExceeded(): void {
    this.counts.deadline++;
  }

  storeFailed(kind: FailureKind): void {
    this.failures.set(kind, (this.failures.get(kind) ?? 0) + 1);
  }

  roundtrip(seconds: number): void {
    this.roundtrips.observe(seconds);
  }

  batchSent(requests: number): void {
    this.batches.observe(requests);
  }

  breakerOpen(open: boolean): void {
    this.breaker = open ? 1 : 0;
  }

  clockSkew(seconds: number): void {
    this.skew = seconds;
  }

  scriptReloaded(): void {
    this.counts.scriptReloads++;
  }

  denyCacheHit(): void {
    this.counts.denyCacheHits++;
  }

  memoryOverflow(): void {
    this.counts.memoryOverflows++;
  }

  undoFailed(): void {
    this.counts.undoFailures++;
  }

  evictionSeen(policyUnsafe: boolean, evictedKeys: number): void {
    this.evictionPolicyUnsafe = policyUnsafe ? 1 : 0;
    this.evictedKeys = evictedKeys;
  }

  /** A snapshot is in use. Its rules exist at 0 from here on; rules of the same name go on counting. */
  configLoaded(snapshot: Snapshot): void {
    this.lastReloadSuccess = 1;
    if (snapshot === this.snapshot) return;
    this.snapshot = snapshot;
    this.rules.load(snapshot);
    this.compat?.configLoaded(snapshot);
    this.unmatched = new Map(
      [...snapshot.domains].map((domain) => [domain, this.unmatched.get(domain) ?? 0]),
    );
  }

  /** A configuration was wrong; the snapshot before stays in use. */
  configRejected(): void {
    this.lastReloadSuccess = 0;
    this.counts.rejectedConfigs++;
    this.compat?.configRejected();
  }

  /** Answers a scrape, in the format that the Accept header asks for. */
  async exposition(accept: string | undefined): Promise<Exposition> {
    return writeExposition(this.families(await this.processFamilies()), accept);
  }

  /** Everything as data; those of several processes can be merged with `mergeFamilies`. */
  async collect(): Promise<Family[]> {
    const families = [...this.families(await this.processFamilies())];
    return families.map((family) => ({ ...family, samples: [...family.samples] }));
  }

  /** One after the other, so that what is long is made when it is written. */
  private *families(ofProcess: readonly Family[]): Generator<LazyFamily> {
    yield* this.ruleFamilies();
    yield* this.ownFamilies();
    if (this.compat !== undefined) yield* this.compat.families();
    yield* ofProcess;
  }

  /** What the store has said of itself, for people. */
  get storeFacts(): StoreFacts {
    return {
      clockSkewSeconds: this.skew,
      evictionPolicyUnsafe: this.evictionPolicyUnsafe === 1,
      evictedKeys: this.evictedKeys,
    };
  }

  /** Under the statsd names of the usual service, a line each; empty without METRICS_COMPAT. */
  statsd(): string {
    return this.compat?.statsd() ?? '';
  }

  private ruleFamilies(): LazyFamily[] {
    const rules = [...this.rules.all()];
    const lines = rules.flatMap((rule): readonly Series[] =>
      rule.values === undefined ? [rule.own] : [rule.own, ...rule.values.values()],
    );
    const now = this.options.nowMs();
    const { activeKeys } = this;
    return [
      {
        name: 'weir_decisions_total',
        help: 'Requests by matched rule and what became of them there.',
        type: 'counter',
        merge: 'sum',
        samples: lazily(lines, outcomeSamples),
      },
      {
        name: 'weir_near_limit_total',
        help: 'Hits taken above NEAR_LIMIT_RATIO of their limit.',
        type: 'counter',
        merge: 'sum',
        samples: lazily(lines, ({ labels, nearLimit }) => [sample(labels, nearLimit)]),
      },
      {
        name: 'weir_reject_ratio',
        help: 'Rejected over allowed and rejected, last 60 seconds; answers by policy left out.',
        type: 'gauge',
        merge: 'max',
        samples: lazily(rules, ({ own, ratio }) => [sample(own.labels, ratio.ratio(now))]),
      },
      {
        name: 'weir_active_keys',
        help: 'Distinct counter keys in use in the last one to two minutes, an estimate.',
        type: 'gauge',
        merge: 'max',
        samples: lazily(rules, ({ own, activity }) => [
          sample(own.labels, activeKeys.count(activity)),
        ]),
      },
    ];
  }

  private *ownFamilies(): Generator<Family> {
    const { counts, snapshot } = this;
    yield counter(
      'weir_unmatched_total',
      'Requests of a known domain that no rule matched: nothing limits them.',
      [...this.unmatched].map(([domain, value]) => ({
        suffix: '',
        labels: label('domain', domain),
        value,
      })),
    );
    yield count(
      'weir_unknown_domain_total',
      'Requests of a domain without configuration.',
      counts.unknownDomain,
    );
    yield count('weir_invalid_requests_total', 'Requests refused as wrong.', counts.invalid);
    yield count(
      'weir_deadline_exceeded_total',
      'Answers that came after the caller had given up.',
      counts.deadline,
    );
    yield count(
      'weir_degraded_total',
      'Requests that were answered by policy, in part at least.',
      counts.degraded,
    );
    yield* this.durationFamilies();
    yield counter(
      'weir_redis_errors_total',
      'Failed calls to Redis, broken connections, and requests without an answer in time, by kind.',
      [...this.failures].map(([kind, value]) => ({
        suffix: '',
        labels: label('kind', kind),
        value,
      })),
    );
    yield histogram('weir_redis_roundtrip_seconds', 'From sending a batch to Redis to its reply.', [
      ...this.roundtrips.samples(''),
    ]);
    yield histogram('weir_batch_requests', 'Requests that went to the store in one batch.', [
      ...this.batches.samples(''),
    ]);
    yield count(
      'weir_script_reloads_total',
      'Times that Redis had lost the script from its cache.',
      counts.scriptReloads,
    );
    yield count(
      'weir_deny_cache_hits_total',
      'Requests that the deny cache answered.',
      counts.denyCacheHits,
    );
    yield count(
      'weir_memory_overflows_total',
      'New counters that found memory full, and took the place of one that was idle.',
      counts.memoryOverflows,
    );
    yield count(
      'weir_undo_failures_total',
      'Refused requests over several nodes of which one did not say that it took its hits back.',
      counts.undoFailures,
    );
    yield one(
      'weir_redis_eviction_policy_unsafe',
      'Whether the maxmemory-policy of Redis lets it evict counters, and so forget limits.',
      this.evictionPolicyUnsafe,
    );
    yield one(
      'weir_redis_evicted_keys',
      'Keys that Redis says it has evicted since it started.',
      this.evictedKeys,
    );
    yield one(
      'weir_breaker_open',
      'Whether the store is not being asked, as it does not answer.',
      this.breaker,
    );
    yield one('weir_clock_skew_seconds', "Redis's clock minus ours.", this.skew);
    yield one(
      'weir_config_generation',
      'Configurations loaded so far; 0 is none yet.',
      snapshot?.generation ?? 0,
    );
    yield one(
      'weir_config_last_reload_success',
      'Whether the newest configuration is the one in use.',
      this.lastReloadSuccess,
    );
    yield one(
      'weir_config_load_timestamp_seconds',
      'When the one in use was loaded.',
      (snapshot?.loadedAtMs ?? 0) / 1000,
    );
    yield count(
      'weir_config_rejected_total',
      'Configurations that were wrong.',
      counts.rejectedConfigs,
    );
    yield one('weir_config_rules', 'Rules in use.', snapshot?.rules.length ?? 0);
    const { version, store } = this.options;
    const labels = [
      label('version', version),
      label('node', process.version),
      label('store', store),
    ];
    yield gauge('weir_build_info', 'Which program this is; always 1.', [
      { suffix: '', labels: labels.join(','), value: 1 },
    ]);
  }

  private *durationFamilies(): Generator<Family> {
    yield histogram(
      'weir_request_duration_seconds',
      'From receipt of a request to its answer.',
      METHODS.flatMap((method) => [...this.durations[method].samples(label('method', method))]),
    );
    if (!(this.options.alsoMilliseconds ?? false)) return;
    yield histogram(
      'weir_request_duration_milliseconds',
      'As weir_request_duration_seconds, in milliseconds.',
      METHODS.flatMap((method) => [
        ...this.durations[method].samples(label('method', method), 1000),
      ]),
    );
  }

  private async processFamilies(): Promise<Family[]> {
    const metrics = await this.processRegistry.getMetricsAsJSON();
    return metrics.filter(isWellNamed).map(({ name, help, type, values }): Family => ({
      name,
      help,
      type: typeNamed(String(type)),
      merge: name.endsWith('_start_time_seconds') || name.includes('lag') ? 'max' : 'sum',
      samples: values.map((value) => {
        const metricName = 'metricName' in value ? String(value.metricName) : name;
        const labels = Object.entries(value.labels);
        return {
          suffix: metricName.slice(name.length),
          labels: labels.map(([key, text]) => label(key, String(text))).join(','),
          value: value.value,
        };
      }),
    }));
  }
}

/** prom-client has gauges that are named like counters; their parts are there under better names. */
function isWellNamed(metric: { name: string; type: unknown }): boolean {
  return metric.type === 'counter' || !metric.name.endsWith('_total');
}

function typeNamed(type: string): Family['type'] {
  return type === 'counter' || type === 'histogram' || type === 'summary' ? type : 'gauge';
}

function sample(labels: string, value: number): Sample {
  return { suffix: '', labels, value };
}

function outcomeSamples({ outcomes, outcomeLabels }: Series): Sample[] {
  return outcomeLabels.map((labels, at) => sample(labels, outcomes[at] ?? 0));
}

/** The samples of each item, made when they are asked for. */
function lazily<Item>(
  items: readonly Item[],
  toSamples: (item: Item) => readonly Sample[],
): Iterable<Sample> {
  return {
    *[Symbol.iterator]() {
      for (const item of items) yield* toSamples(item);
    },
  };
}

function counter(name: string, help: string, samples: readonly Sample[]): Family {
  return { name, help, type: 'counter', merge: 'sum', samples };
}

function gauge(name: string, help: string, samples: readonly Sample[]): Family {
  return { name, help, type: 'gauge', merge: 'max', samples };
}

function histogram(name: string, help: string, samples: readonly Sample[]): Family {
  return { name, help, type: 'histogram', merge: 'sum', samples };
}

function count(name: string, help: string, value: number): Family {
  return counter(name, help, [{ suffix: '', labels: '', value }]);
}

function one(name: string, help: string, value: number): Family {
  return gauge(name, help, [{ suffix: '', labels: '', value }]);
}
