/** Decisions, rules and snapshots for tests of what looks at decisions. */
import type {
  Decision,
  Descriptor,
  Entry,
  Limit,
  Mode,
  Role,
  Snapshot,
  Unit,
} from '../../src/model.js';
import { UNIT_SECONDS } from '../../src/model.js';
import type { CompiledRules, RuleDefinition } from '../../src/rules/rules.js';
import { CounterKeys, keyHead } from '../../src/store/keys.js';

const keys = new CounterKeys('');

export function limitOf(requests: number, unit: Unit, more: Partial<Limit> = {}): Limit {
  const windowUs = UNIT_SECONDS[unit] * 1_000_000;
  return {
    name: '',
    algorithm: 'fixed_window',
    requests,
    unit,
    unitMultiplier: 1,
    windowUs,
    burst: requests,
    precisionUs: 0,
    onStoreError: 'allow',
    countRejected: undefined,
    disclose: 'full',
    keyHead: keyHead(more.algorithm ?? 'fixed_window', windowUs),
    ...more,
  };
}

export function ruleDefinition(
  key: string,
  value: string | undefined,
  limits: readonly Limit[],
  more: Partial<RuleDefinition> = {},
): RuleDefinition {
  return {
    key,
    value,
    limits,
    unlimited: false,
    shadow: false,
    quota: false,
    replaces: [],
    shareThreshold: false,
    hashValue: false,
    detailedMetric: false,
    valueToMetric: false,
    metadata: undefined,
    position: { file: 'shop.yaml', line: 3, column: 5 },
    children: [],
    ...more,
  };
}

export function snapshotOf(compiled: CompiledRules, generation: number): Snapshot {
  return { ...compiled, generation, loadedAtMs: 1_700_000_000_000, files: ['shop.yaml'] };
}

/** `path=/pay,user=42` → entries. */
export function entriesOf(text: string): Entry[] {
  return text.split(',').map((part) => {
    const at = part.indexOf('=');
    return { key: part.slice(0, at), value: part.slice(at + 1) };
  });
}

export interface Told {
  readonly fits: boolean;
  readonly retryAfterUs?: number;
  readonly mode?: Mode;
  readonly source?: 'store' | 'allow' | 'deny';
}

/** A decision on one descriptor, with the same outcome for each of its limits. */
export function decided(snapshot: Snapshot, domain: string, text: string, told: Told): Decision {
  const descriptor: Descriptor = {
    entries: entriesOf(text),
    override: undefined,
    hits: undefined,
    giveBack: false,
  };
  const rule = snapshot.match(domain, descriptor.entries);
  const role: Role = rule?.shadow === true ? 'shadow' : 'enforced';
  const mode = told.mode ?? 'take';
  const refused = !told.fits && role === 'enforced';
  const source = told.source ?? 'store';
  const limits = (rule?.limits ?? []).map((limit) => ({
    charge: {
      limit,
      key: keys.build(limit, domain, descriptor.entries, rule, false),
      hits: 1,
      role,
      mode,
    },
    source,
    outcome: {
      fits: told.fits,
      taken: told.fits && mode !== 'peek',
      remaining: 0,
      resetUs: told.retryAfterUs ?? 0,
      retryAfterUs: told.fits ? 0 : (told.retryAfterUs ?? 0),
      mark: 0,
    },
  }));
  return {
    request: { domain, descriptors: [descriptor], hits: 1, mode: undefined },
    snapshot,
    allowed: !refused,
    degraded: source !== 'store',
    domainKnown: snapshot.domains.has(domain),
    descriptors: [
      { descriptor, rule, unlimited: rule?.unlimited ?? false, limits, overLimit: refused },
    ],
    nowUs: 0,
  };
}
