/** Rules, limits and decisions for the tests of the front doors, and a limiter that answers as told. */
import type { Limiter } from '../../src/limiter.js';
import type {
  Decision,
  DecisionRequest,
  Descriptor,
  DescriptorDecision,
  Limit,
  LimitDecision,
  Logger,
  Outcome,
  Role,
  Rule,
  Snapshot,
  Source,
} from '../../src/model.js';
import { UNIT_SECONDS } from '../../src/model.js';
import type { HealthSource, TransportObserver } from '../../src/transport/front-door.js';

export const NOW_US = 1_700_000_000_000_000;

export function limitOf(fields: Partial<Limit> = {}): Limit {
  const unit = fields.unit ?? 'minute';
  const unitMultiplier = fields.unitMultiplier ?? 1;
  const requests = fields.requests ?? 10;
  return {
    name: '',
    algorithm: 'fixed_window',
    requests,
    unit,
    unitMultiplier,
    windowUs: UNIT_SECONDS[unit] * unitMultiplier * 1_000_000,
    burst: requests,
    precisionUs: 0,
    onStoreError: 'allow',
    countRejected: undefined,
    disclose: 'full',
    keyHead: 'f60',
    ...fields,
  };
}

export function ruleOf(fields: Partial<Rule> = {}): Rule {
  return {
    index: 0,
    domain: 'shop',
    path: 'user',
    key: 'user',
    value: undefined,
    chain: [],
    keyPart: { text: '|user=', complete: false, keyIsPattern: false },
    limits: [],
    unlimited: false,
    shadow: false,
    quota: false,
    replaces: [],
    shareThreshold: false,
    hashValue: false,
    detailedMetric: false,
    valueToMetric: false,
    metadata: undefined,
    position: { file: 'limits.yaml', line: 1, column: 1 },
    ...fields,
  };
}

export interface LimitFields {
  readonly limit?: Limit;
  readonly role?: Role;
  readonly source?: Source;
  readonly outcome?: Partial<Outcome>;
}

export function limitDecision(fields: LimitFields = {}): LimitDecision {
  const fits = fields.outcome?.fits ?? true;
  return {
    charge: {
      limit: fields.limit ?? limitOf(),
      key: 'f60|shop|user=42',
      hits: 1,
      role: fields.role ?? 'enforced',
      mode: 'take',
    },
    source: fields.source ?? 'store',
    outcome: {
      fits,
      taken: fits,
      remaining: fits ? 9 : 0,
      resetUs: 30_000_000,
      retryAfterUs: fits ? 0 : 20_000_000,
      ...fields.outcome,
    },
  };
}

export function descriptorOf(...pairs: readonly (readonly [string, string])[]): Descriptor {
  const entries = pairs.map(([key, value]) => ({ key, value }));
  return { entries, override: undefined, hits: undefined, giveBack: false };
}

export function descriptorDecision(fields: Partial<DescriptorDecision> = {}): DescriptorDecision {
  const limits = fields.limits ?? [];
  return {
    descriptor: descriptorOf(['user', '42']),
    rule: ruleOf(),
    unlimited: false,
    limits,
    overLimit: limits.some((limit) => !limit.outcome.fits),
    ...fields,
  };
}

const SNAPSHOT: Snapshot = {
  generation: 1,
  loadedAtMs: 0,
  files: [],
  rules: [],
  domains: new Set(['shop']),
  match: () => undefined,
};

export function decisionOf(
  descriptors: readonly DescriptorDecision[],
  fields: Partial<Decision> = {},
): Decision {
  return {
    request: {
      domain: 'shop',
      descriptors: descriptors.map((d) => d.descriptor),
      hits: 1,
      mode: undefined,
    },
    snapshot: SNAPSHOT,
    allowed: !descriptors.some((d) => d.overLimit),
    degraded: false,
    domainKnown: true,
    descriptors,
    nowUs: NOW_US,
    ...fields,
  };
}

/** Matches nothing: every descriptor passes. */
export function unmatched(request: DecisionRequest): Decision {
  const descriptors = request.descriptors.map((descriptor) =>
    descriptorDecision({ descriptor, rule: undefined }),
  );
  return decisionOf(descriptors, { request });
}

/** Remembers what it was asked; answers in the same turn. */
export class FixedLimiter implements Limiter {
  readonly asked: { request: DecisionRequest; deadlineMs: number }[] = [];

  constructor(public answer: (request: DecisionRequest) => Decision = unmatched) {}

  decide(request: DecisionRequest, deadlineMs: number, done: (decision: Decision) => void): void {
    this.asked.push({ request, deadlineMs });
    done(this.answer(request));
  }

  last(): DecisionRequest {
    const asked = this.asked.at(-1);
    if (asked === undefined) throw new Error('the limiter was not asked');
    return asked.request;
  }
}

/** Counts what it is told. */
export class CountingObserver implements TransportObserver {
  decisions = 0;
  invalid = 0;
  late = 0;
  readonly requests: string[] = [];

  observeDecision(): void {
    this.decisions++;
  }

  observeRequest(method: string): void {
    this.requests.push(method);
  }

  invalidRequest(): void {
    this.invalid++;
  }

  deadlineExceeded(): void {
    this.late++;
  }

  exposition(
    accept: string | undefined,
  ): Promise<{ contentType: string; body: readonly Buffer[] }> {
    const body = ['accept ', `${accept ?? 'nothing'}\n`].map((text) => Buffer.from(text));
    return Promise.resolve({ contentType: 'text/plain', body });
  }
}

/** Health as it is set. */
export class SwitchedHealth implements HealthSource {
  private readonly listeners: (() => void)[] = [];
  state = { ok: true, reason: 'configuration 1 is loaded' };

  serving(): boolean {
    return this.state.ok;
  }

  onChange(listener: () => void): void {
    this.listeners.push(listener);
  }

  ready(): { ok: boolean; reason: string } {
    return this.state;
  }

  set(ok: boolean, reason: string): void {
    this.state = { ok, reason };
    for (const listener of this.listeners) listener();
  }
}

/** Keeps error messages, so that a test can ask for none. */
export function quietLogger(): Logger & { readonly lines: string[] } {
  const lines: string[] = [];
  const log = (_fields: object, message: string): void => {
    lines.push(message);
  };
  return { lines, debug: () => undefined, info: log, warn: log, error: log };
}
