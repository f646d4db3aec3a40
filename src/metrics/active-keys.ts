/**
 * How many distinct counter keys each rule has in use: of this process, and of all instances where
 * a store shares them. Fed after the decision; only keys that change the local estimate are sent on.
 */
import { HyperLogLog, placeOf } from './hyperloglog.js';

/** Keys are gathered in slots of this length; the figure is that of the last two. */
export const ACTIVE_KEYS_SLOT_MS = 60_000;

/** At most so many keys wait for the store; more are dropped, and the figure is a little low. */
const MAX_WAITING = 100_000;

/** Estimates that all instances share: one HyperLogLog a rule and slot, kept for three slots. */
export interface ActiveKeyStore {
  /** Adds keys, without waiting; a failure is the store's to count, and never thrown. */
  add(ruleId: string, slot: number, keys: readonly string[]): void;
  /**
   * For each rule, how many distinct keys the two slots hold together, in the order of `ids`. May
   * reject; then the figures of this process stand in.
   */
  count(
    ids: readonly { readonly ruleId: string; readonly slots: readonly [number, number] }[],
  ): Promise<readonly number[]>;
}

/** The keys that one rule has in use. Made by `ActiveKeys.track`. */
export class RuleActivity {
  /** Undefined while the rule is not in use, as most of many rules are. */
  private current: HyperLogLog | undefined;
  /** Of the current slot and the one before. */
  private both: HyperLogLog | undefined;
  private slot = 0;
  private waiting: string[] = [];
  /** The key before, if it is of this slot: it has been added. */
  private last: string | undefined;
  /** What the shared estimate said, and for which slot. */
  shared: { readonly slot: number; readonly count: number } | undefined;

  private id: string | undefined;

  constructor(private readonly makeId: () => string) {}

  /** Made when first used: a digest for each of many rules would hold up a reload. */
  get ruleId(): string {
    this.id ??= this.makeId();
    return this.id;
  }

  /** Whether this process has used it in the last two slots. */
  get inUse(): boolean {
    return this.both !== undefined;
  }

  /** Returns whether the key is to be sent on, which is remembered if `keep`. */
  add(key: string, slot: number, keep: boolean): boolean {
    this.advance(slot);
    if (key === this.last) return false;
    this.last = key;
    const place = placeOf(key);
    this.current ??= new HyperLogLog();
    this.both ??= new HyperLogLog();
    if (!this.current.addPlace(place)) return false;
    this.both.addPlace(place);
    if (keep) this.waiting.push(key);
    return true;
  }

  /** Of this process alone. */
  local(slot: number): number {
    this.advance(slot);
    return this.both?.count() ?? 0;
  }

  /** The keys to send on, each once; they belong to the slot of the last `add`. */
  drain(): { slot: number; keys: string[] } {
    const keys = this.waiting;
    this.waiting = [];
    return { slot: this.slot, keys };
  }

  get hasWaiting(): boolean {
    return this.waiting.length > 0;
  }

  private advance(slot: number): void {
    if (slot <= this.slot) return;
    const isNext = slot === this.slot + 1;
    this.both = isNext ? this.current?.copy() : undefined;
    this.current = undefined;
    this.last = undefined;
    // What was not sent before the slot ended would be counted in the wrong one.
    this.waiting = [];
    this.slot = slot;
  }
}

/** All rules' activity, and the timer that exchanges it with the store once a second. */
export class ActiveKeys {
  private readonly rules = new Set<RuleActivity>();
  private readonly changed = new Set<RuleActivity>();
  private waiting = 0;
  private timer: NodeJS.Timeout | undefined;
  private counting = false;
  private ticks = 0;

  private store: ActiveKeyStore | undefined;

  constructor(private readonly nowMs: () => number) {}

  /** `ruleId` names the rule among all instances; it is asked once, or never. */
  track(ruleId: () => string): RuleActivity {
    const activity = new RuleActivity(ruleId);
    this.rules.add(activity);
    return activity;
  }

  forget(activity: RuleActivity): void {
    this.rules.delete(activity);
    this.changed.delete(activity);
  }

  /** A counter key was used. Costs about 0.1 µs. */
  use(activity: RuleActivity, key: string, nowMs = this.nowMs()): void {
    const keep = this.store !== undefined && this.waiting < MAX_WAITING;
    if (!activity.add(key, slotOf(nowMs), keep) || !keep) return;
    this.waiting++;
    this.changed.add(activity);
  }

  /** Distinct keys of the last two slots; among all instances, if the store has said so lately. */
  count(activity: RuleActivity): number {
    const slot = this.slot();
    const local = activity.local(slot);
    const { shared } = activity;
    const isRecent = shared !== undefined && shared.slot >= slot - 1;
    return isRecent ? Math.max(local, shared.count) : local;
  }

  /** From now on the figures are those of all instances that share this store. */
  share(store: ActiveKeyStore): void {
    this.store = store;
    this.timer ??= setInterval(() => {
      this.exchange();
    }, 1000).unref();
  }

  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }

  /** Sends what waits; every 15th time asks for the shared figures. Called by the timer. */
  exchange(): void {
    const { store } = this;
    if (store === undefined) return;
    for (const activity of this.changed) {
      const { slot, keys } = activity.drain();
      if (keys.length > 0) store.add(activity.ruleId, slot, keys);
    }
    this.changed.clear();
    this.waiting = 0;
    if (this.ticks++ % 15 === 0 && !this.counting) void this.ask(store);
  }

  private async ask(store: ActiveKeyStore): Promise<void> {
    this.counting = true;
    const slot = this.slot();
    // A rule that this process does not use is told of by those that do.
    const rules = [...this.rules].filter(({ inUse }) => inUse);
    try {
      const counts = await store.count(
        rules.map(({ ruleId }) => ({ ruleId, slots: [slot - 1, slot] })),
      );
      for (const [at, activity] of rules.entries()) {
        activity.shared = { slot, count: counts[at] ?? 0 };
      }
    } catch {
      // The store counts its failures itself; until it answers, the local figures stand.
    } finally {
      this.counting = false;
    }
  }

  private slot(): number {
    return slotOf(this.nowMs());
  }
}

function slotOf(nowMs: number): number {
  return Math.floor(nowMs / ACTIVE_KEYS_SLOT_MS);
}
