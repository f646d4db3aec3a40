/**
 * Sampled log lines for refusals: one a second for each rule, which says how many it stands for. Names
 * the rule and the reason; of the value only an id, which the admin page and `weir explain` show too.
 */
import type { LimitDecision, Logger, Rule } from '../model.js';
import { digest } from '../store/keys.js';

const INTERVAL_MS = 1000;
const UNKNOWN_DOMAIN_INTERVAL_MS = 60_000;

/**
 * What a log line calls a value: short, and the same everywhere. Values that can be guessed, such as
 * addresses, can be found by trying.
 */
export function valueId(counterKey: string): string {
  return digest(counterKey).slice(0, 10);
}

export interface RefusalLogOptions {
  readonly logger: Pick<Logger, 'warn' | 'info' | 'debug'>;
  /** ms, on any steady clock. */
  readonly nowMs: () => number;
}

/** Call it for each refusal and each unknown domain; most calls only count. */
export class RefusalLog {
  private readonly rules = new Map<string, { lastMs: number; leftOut: number }>();
  private readonly domains = { lastMs: -Infinity, leftOut: 0 };

  constructor(private readonly options: RefusalLogOptions) {}

  /** Never throws. The counter's key, which holds the value unless it is secret, is at debug only. */
  refused(rule: Rule, { charge, outcome }: LimitDecision): void {
    const name = `${rule.domain}\n${rule.path}`;
    const nowMs = this.options.nowMs();
    const known = this.rules.get(name);
    if (known !== undefined && nowMs - known.lastMs < INTERVAL_MS) {
      known.leftOut++;
      return;
    }
    const more = known?.leftOut ?? 0;
    this.rules.set(name, { lastMs: nowMs, leftOut: 0 });
    const { limit, hits, key } = charge;
    const line = {
      domain: rule.domain,
      rule: rule.path,
      value: valueId(key),
      limit: `${limit.requests} in ${limit.windowUs / 1_000_000} s`,
      algorithm: limit.algorithm,
      hits,
      remaining: outcome.remaining,
      // Null: as it is, the request can never pass.
      retryAfterMs: outcome.retryAfterUs < 0 ? null : Math.ceil(outcome.retryAfterUs / 1000),
      more,
    };
    this.options.logger.info(line, 'refused: over the limit');
    this.options.logger.debug({ value: line.value, counter: key }, 'the counter that refused');
  }

  /** The commonest mistake of a set-up, and an invisible one: nothing is limited. Once a minute. */
  unknownDomain(domain: string): void {
    const nowMs = this.options.nowMs();
    if (nowMs - this.domains.lastMs < UNKNOWN_DOMAIN_INTERVAL_MS) {
      this.domains.leftOut++;
      return;
    }
    this.options.logger.warn(
      { domain, more: this.domains.leftOut },
      'asked for a domain that no rules are for: nothing is limited there',
    );
    this.domains.lastMs = nowMs;
    this.domains.leftOut = 0;
  }

  /** After a reload: rules that are gone must not pile up. */
  clear(): void {
    this.rules.clear();
  }
}
