/**
 * What has been decided lately, for people who ask: rates of the last 60 s, the heaviest values and
 * the latest refusals of each rule. Fed on the path of each request, so everything here is bounded and
 * cheap. Knows values only as they stand in counter keys, where what is secret is a digest.
 */
import { HeavyHitters } from './heavy-hitters.js';
import type {
  Decision,
  DescriptorDecision,
  Limit,
  LimitDecision,
  Rule,
  Snapshot,
} from '../model.js';

/** Seconds that a sparkline shows, and over which rates are taken. */
export const RECENT_SECONDS = 60;
const SLOTS = 64;
const MINUTE_MS = 60_000;
/** Sketch entries of a rule; with many rules fewer, so that all of them together stay bounded. */
const MOST_HEAVY = 100;
const HEAVY_OVERALL = 50_000;
/** The same for remembered refusals. */
const MOST_REFUSED = 400;
const REFUSED_OVERALL = 20_000;
/** Above so many offers to the sketches in 100 ms, one in SAMPLE is made, with its weight. */
const FULL_OFFERS = 200;
const SAMPLE = 8;
/** Refused again within this of having been free to pass, a value counts as refused all along. */
const SAME_STREAK_MS = 60_000;
const MOST_STRANGERS = 20;
const STRANGERS_A_SECOND = 10;
const LONGEST_NAME = 80;

/** Requests by what became of them; `policy` are those that a policy answered. */
export interface Tally {
  allowed: number;
  rejected: number;
  /** Would have been refused, were it not for shadow mode. */
  shadow: number;
  /** Fitted, but another limit of the same request refused. */
  notTaken: number;
  policy: number;
}

/** A value that a limit has refused, and since when without a break. */
export interface Refusal {
  /** The counter's key. */
  readonly key: string;
  readonly limit: Limit;
  firstMs: number;
  lastMs: number;
  /** Refusals since `firstMs`. */
  count: number;
  /** When the same request would have passed, told at the last refusal; undefined: never. */
  untilMs: number | undefined;
}

/** One rule's last 60 s. Rates are per second. */
export interface RuleActivity {
  readonly rate: number;
  /** Refused over refused and allowed; 0 without either. */
  readonly rejectRatio: number;
  readonly totals: Readonly<Tally>;
  /**
   * Requests of each second, the oldest first, RECENT_SECONDS long; the running second is left out. Empty
   * when there were none at all.
   */
  readonly allowedBySecond: readonly number[];
  readonly rejectedBySecond: readonly number[];
}

/** A value that is heavy now: about how often it was seen in the last minute. */
export interface HeavyValue {
  readonly key: string;
  readonly requests: number;
  readonly rejected: number;
  /** `requests` may be too high by this much. */
  readonly error: number;
}

/** A kind of request that nothing limits: an unknown domain, or keys that no rule has. */
export interface Stranger {
  readonly domain: string;
  /** The descriptor's keys, comma between; undefined when it is the domain that is unknown. */
  readonly keys: string | undefined;
  readonly seen: number;
  readonly lastMs: number;
}

/** What may be asked of the last minute: of one process, or of several that serve together. */
export interface RecentReader {
  /** Of one rule of the configuration that decides now. */
  activity(rule: RuleName): RuleActivity;
  /** In requests. `notTaken` are those that no rule matched. */
  overall(): RuleActivity;
  heaviest(rule: RuleName, most: number): readonly HeavyValue[];
  /** The latest refusals of a rule, the latest first. */
  refusals(rule: RuleName, most: number): readonly Refusal[];
  /** What is remembered of refusals by this counter. */
  refusalOf(rule: RuleName, key: string): Refusal | undefined;
  /** What nothing limits, the latest first: a domain or a key is misspelt, or a rule is missing. */
  notLimited(): readonly Stranger[];
}

/** What of a rule stays the same over reloads. */
export type RuleName = Pick<Rule, 'domain' | 'path'>;

/** Counts by second, a slot each; slots are cleared as time passes over them. */
class Seconds {
  /** Undefined until something is added: of many rules most stand idle. */
  private slots: Float64Array | undefined;

  add(second: number, amount: number): void {
    this.slots ??= new Float64Array(SLOTS);
    const slot = second % SLOTS;
    this.slots[slot] = (this.slots[slot] ?? 0) + amount;
  }

  clear(fromSecond: number, toSecond: number): void {
    if (this.slots === undefined) return;
    if (toSecond - fromSecond >= SLOTS) this.slots.fill(0);
    else for (let s = fromSecond; s <= toSecond; s++) this.slots[s % SLOTS] = 0;
  }

  /** The RECENT_SECONDS before this second. */
  before(second: number): number[] {
    const found: number[] = [];
    for (let s = second - RECENT_SECONDS; s < second; s++) found.push(this.slots?.[s % SLOTS] ?? 0);
    return found;
  }
}

const IDLE = { rate: 0, rejectRatio: 0, allowedBySecond: [], rejectedBySecond: [] };

class RuleRecord {
  readonly totals: Tally = { allowed: 0, rejected: 0, shadow: 0, notTaken: 0, policy: 0 };
  private readonly allowed = new Seconds();
  private readonly rejected = new Seconds();
  private readonly other = new Seconds();
  private second = 0;
  private lastUsed = -Infinity;
  readonly refusals = new Map<string, Refusal>();
  heavy: HeavyHitters | undefined;
  heavyBefore: HeavyHitters | undefined;
  heavySinceMs = 0;

  add(kind: keyof Tally, second: number): void {
    this.moveTo(second);
    this.lastUsed = second;
    this.totals[kind]++;
    if (kind === 'allowed') this.allowed.add(second, 1);
    else if (kind === 'rejected') this.rejected.add(second, 1);
    else this.other.add(second, 1);
  }

  /** `since`: the second from which on anything could be seen. */
  activity(second: number, since: number): RuleActivity {
    // Of a thousand rules most are idle, and the page asks every few seconds.
    if (second - this.lastUsed > RECENT_SECONDS) {
      return { ...IDLE, totals: { ...this.totals } };
    }
    this.moveTo(second);
    const allowedBySecond = this.allowed.before(second);
    const rejectedBySecond = this.rejected.before(second);
    const allowed = sum(allowedBySecond);
    const rejected = sum(rejectedBySecond);
    const other = sum(this.other.before(second));
    return {
      // A process that has just begun has not been idle before.
      rate: (allowed + rejected + other) / Math.max(1, Math.min(RECENT_SECONDS, second - since)),
      rejectRatio: rejected === 0 ? 0 : rejected / (allowed + rejected),
      totals: { ...this.totals },
      allowedBySecond,
      rejectedBySecond,
    };
  }

  /** Clears what lies between the last second that was looked at and this one. */
  private moveTo(second: number): void {
    if (second <= this.second) return;
    const from = this.second + 1;
    this.second = second;
    this.allowed.clear(from, second);
    this.rejected.clear(from, second);
    this.other.clear(from, second);
  }

  rotate(nowMs: number, capacity: number): HeavyHitters {
    const age = nowMs - this.heavySinceMs;
    if (this.heavy === undefined || age >= MINUTE_MS) {
      this.heavyBefore = age < 2 * MINUTE_MS ? this.heavy : undefined;
      this.heavy = new HeavyHitters(capacity);
      // Aligned, so that a quiet rule does not stretch its minutes.
      this.heavySinceMs = age < 2 * MINUTE_MS ? this.heavySinceMs + MINUTE_MS : nowMs;
    }
    return this.heavy;
  }

  /** The last minute: what the running one has seen, and the part of the one before that is left. */
  heaviest(nowMs: number, most: number): HeavyValue[] {
    const age = nowMs - this.heavySinceMs;
    const found = new Map<string, HeavyValue>();
    const merge = (sketch: HeavyHitters | undefined, part: number): void => {
      if (sketch === undefined || part <= 0) return;
      for (const { key, count, rejected, error } of sketch.top()) {
        const known = found.get(key) ?? { key, requests: 0, rejected: 0, error: 0 };
        found.set(key, {
          key,
          requests: known.requests + count * part,
          rejected: known.rejected + rejected * part,
          error: known.error + error * part,
        });
      }
    };
    // Until the next offer rotates them, the running minute is the one before.
    const late = Math.max(0, age - MINUTE_MS);
    merge(this.heavy, 1 - late / MINUTE_MS);
    merge(this.heavyBefore, 1 - age / MINUTE_MS);
    return [...found.values()]
      .map((value) => ({
        key: value.key,
        requests: Math.round(value.requests),
        rejected: Math.round(value.rejected),
        error: Math.round(value.error),
      }))
      .filter((value) => value.requests > 0)
      .sort((a, b) => b.requests - a.requests || (a.key < b.key ? -1 : 1))
      .slice(0, most);
  }
}

export interface RecentDecisionsOptions {
  /** Our own clock, ms since the epoch. */
  readonly nowMs: () => number;
  /** Told of each refusal by a limit; sampled lines for the log are made there. */
  readonly refused?: (rule: Rule, limit: LimitDecision) => void;
  /** Told of domains, shortened, that there are no rules for; a few times a second at most. */
  readonly unknownDomain?: (domain: string) => void;
}

/** The recorder. One for the process; rules keep their record over reloads, by domain and path. */
export class RecentDecisions implements RecentReader {
  private snapshot: Snapshot | undefined;
  private byIndex: RuleRecord[] = [];
  private byName = new Map<string, RuleRecord>();
  private heavyCapacity = MOST_HEAVY;
  private refusedCapacity = MOST_REFUSED;
  private offerWindow = 0;
  private offers = 0;
  private skip = 0;
  private readonly strangers = new Map<string, Stranger>();
  private strangerSecond = 0;
  private strangersNow = 0;
  private readonly requests = new RuleRecord();
  private readonly since: number;

  constructor(private readonly options: RecentDecisionsOptions) {
    this.since = this.second();
  }

  /** Takes note of a decision. Never throws. */
  observe(decision: Decision): void {
    if (decision.snapshot !== this.snapshot) this.follow(decision.snapshot);
    const nowMs = this.options.nowMs();
    const second = Math.floor(nowMs / 1000);
    let matched = false;
    let counted = false;
    for (const part of decision.descriptors) {
      const { rule, limits } = part;
      if (rule === undefined) continue;
      matched = true;
      const first = limits[0];
      if (first === undefined ? !part.unlimited : isLook(first)) continue;
      counted = true;
      const record = this.recordOf(rule, decision.snapshot);
      if (first === undefined) {
        record?.add('allowed', second);
        continue;
      }
      if (record !== undefined) this.observeRule(record, rule, part, first, decision, nowMs);
    }
    if (counted) {
      const kind = decision.degraded ? 'policy' : decision.allowed ? 'allowed' : 'rejected';
      this.requests.add(kind, second);
    } else if (!matched) {
      this.requests.add('notTaken', second);
      this.strange(decision, second, nowMs);
    }
  }

  activity(rule: RuleName): RuleActivity {
    return this.lookUp(rule).activity(this.second(), this.since);
  }

  overall(): RuleActivity {
    return this.requests.activity(this.second(), this.since);
  }

  heaviest(rule: RuleName, most: number): readonly HeavyValue[] {
    return this.lookUp(rule).heaviest(this.options.nowMs(), most);
  }

  refusals(rule: RuleName, most: number): readonly Refusal[] {
    return [...this.lookUp(rule).refusals.values()]
      .sort((a, b) => b.lastMs - a.lastMs)
      .slice(0, most);
  }

  refusalOf(rule: RuleName, key: string): Refusal | undefined {
    return this.lookUp(rule).refusals.get(key);
  }

  /** Refusals by counters that were reset are history. */
  forget(keys: readonly string[]): void {
    for (const { refusals } of this.byName.values()) {
      for (const key of keys) refusals.delete(key);
    }
  }

  notLimited(): readonly Stranger[] {
    return [...this.strangers.values()].sort((a, b) => b.lastMs - a.lastMs);
  }

  private second(): number {
    return Math.floor(this.options.nowMs() / 1000);
  }

  private observeRule(
    record: RuleRecord,
    rule: Rule,
    { limits, overLimit }: DescriptorDecision,
    first: LimitDecision,
    decision: Decision,
    nowMs: number,
  ): void {
    const refusing = limits.find((limit) => !limit.outcome.fits);
    const kind = kindOf(refusing, first, overLimit, decision);
    record.add(kind, Math.floor(nowMs / 1000));
    const rejected = kind === 'rejected';
    const weight = this.weightOf(nowMs);
    if (weight > 0) {
      record.rotate(nowMs, this.heavyCapacity).offer(first.charge.key, weight, rejected);
    }
    if (!rejected || refusing === undefined) return;
    this.remember(record, refusing, nowMs);
    this.options.refused?.(rule, refusing);
  }

  /** How much the next offer to a sketch counts; 0: it is not made. */
  private weightOf(nowMs: number): number {
    const window = Math.floor(nowMs / 100);
    if (window !== this.offerWindow) {
      this.offerWindow = window;
      this.offers = 0;
    }
    if (++this.offers <= FULL_OFFERS) return 1;
    if (--this.skip > 0) return 0;
    // Not every 8th: traffic has rhythms of its own.
    this.skip = 1 + Math.floor(Math.random() * (2 * SAMPLE - 1));
    return SAMPLE;
  }

  private remember(record: RuleRecord, { charge, outcome }: LimitDecision, nowMs: number): void {
    const { refusals } = record;
    const untilMs =
      outcome.retryAfterUs < 0 ? undefined : nowMs + Math.ceil(outcome.retryAfterUs / 1000);
    const known = refusals.get(charge.key);
    if (known === undefined) {
      if (refusals.size >= this.refusedCapacity) {
        for (const oldest of refusals.keys()) {
          refusals.delete(oldest);
          break;
        }
      }
      const { key, limit } = charge;
      refusals.set(key, { key, limit, firstMs: nowMs, lastMs: nowMs, count: 1, untilMs });
      return;
    }
    if (nowMs > (known.untilMs ?? Infinity) + SAME_STREAK_MS) {
      known.firstMs = nowMs;
      known.count = 0;
    }
    // Moved to the end, so that the oldest goes first; once a second is enough.
    if (nowMs - known.lastMs >= 1000) {
      refusals.delete(charge.key);
      refusals.set(charge.key, known);
    }
    known.lastMs = nowMs;
    known.count++;
    known.untilMs = untilMs;
  }

  private strange(decision: Decision, second: number, nowMs: number): void {
    if (second !== this.strangerSecond) {
      this.strangerSecond = second;
      this.strangersNow = 0;
    }
    if (++this.strangersNow > STRANGERS_A_SECOND) return;
    const domain = shorten(decision.request.domain);
    const keys = decision.domainKnown
      ? shorten((decision.descriptors[0]?.descriptor.entries ?? []).map(({ key }) => key).join(','))
      : undefined;
    if (!decision.domainKnown) this.options.unknownDomain?.(domain);
    const name = JSON.stringify([domain, keys]);
    const known = this.strangers.get(name);
    this.strangers.delete(name);
    if (this.strangers.size >= MOST_STRANGERS) {
      for (const oldest of this.strangers.keys()) {
        this.strangers.delete(oldest);
        break;
      }
    }
    this.strangers.set(name, { domain, keys, seen: (known?.seen ?? 0) + 1, lastMs: nowMs });
  }

  private recordOf(rule: Rule, snapshot: Snapshot): RuleRecord | undefined {
    // A request keeps its snapshot: after a reload a few still come with the one before.
    return snapshot === this.snapshot ? this.byIndex[rule.index] : this.byName.get(nameOf(rule));
  }

  private lookUp(rule: RuleName): RuleRecord {
    return this.byName.get(nameOf(rule)) ?? new RuleRecord();
  }

  private follow(snapshot: Snapshot): void {
    if (this.snapshot !== undefined && snapshot.generation < this.snapshot.generation) return;
    this.snapshot = snapshot;
    const limited = Math.max(1, snapshot.rules.filter((rule) => rule.limits.length > 0).length);
    this.heavyCapacity = Math.max(10, Math.min(MOST_HEAVY, Math.floor(HEAVY_OVERALL / limited)));
    this.refusedCapacity = Math.max(
      10,
      Math.min(MOST_REFUSED, Math.floor(REFUSED_OVERALL / limited)),
    );
    const byName = new Map<string, RuleRecord>();
    this.byIndex = snapshot.rules.map((rule) => {
      const record = this.byName.get(nameOf(rule)) ?? new RuleRecord();
      byName.set(nameOf(rule), record);
      return record;
    });
    this.byName = byName;
  }
}

function kindOf(
  refusing: LimitDecision | undefined,
  first: LimitDecision,
  overLimit: boolean,
  decision: Decision,
): keyof Tally {
  const source = (refusing ?? first).source;
  if (source === 'allow' || source === 'deny') return 'policy';
  if (refusing === undefined) return decision.allowed ? 'allowed' : 'notTaken';
  // In global shadow mode, and for a quota beside one that has room, the status says over limit but
  // nobody is refused.
  if (!overLimit || refusing.charge.role === 'shadow' || decision.allowed) return 'shadow';
  return 'rejected';
}

function isLook(limit: LimitDecision): boolean {
  return limit.charge.mode === 'peek' || limit.charge.mode === 'give_back';
}

function nameOf(rule: RuleName): string {
  return `${rule.domain}\n${rule.path}`;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function shorten(text: string): string {
  return text.length > LONGEST_NAME ? `${text.slice(0, LONGEST_NAME)}…` : text;
}
