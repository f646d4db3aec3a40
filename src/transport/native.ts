/**
 * The native front door: ShouldRateLimitRequest → DecisionRequest, Decision → ShouldRateLimitResponse.
 * Strict: what is wrong is a RequestError that names the field. Knows neither bytes nor gRPC.
 */
import { RequestError } from '../limiter.js';
import {
  ALGORITHM_NAMES,
  MAX_HITS,
  type Decision,
  type DecisionRequest,
  type Descriptor,
  type Entry,
  type LimitDecision,
  type Mode,
  type Rule,
} from '../model.js';
import { digest } from '../store/keys.js';
import { coarseUs, isTighter, waitUs } from './disclosure.js';
import { normaliseAddress } from './ip-address.js';
import type { NativeLimitResult, NativeRequest, NativeResponse } from './native-codec.js';

/** weir.v1.Mode by number; unspecified leaves the mode to the configuration. */
const MODES: readonly (Mode | undefined)[] = [undefined, 'take', 'peek', 'record', 'give_back'];

const ATTRIBUTE_NAME = /^[a-z][a-z0-9_]{0,62}$/;
const RESERVED_NAMES: ReadonlySet<string> = new Set([
  'endpoint',
  'user',
  'ip',
  'api_key',
  'client',
]);

/**
 * The request with every descriptor that rules can be written for. `ipv6Prefix`: how many bits of an
 * IPv6 address count. Throws RequestError (`invalid_argument`) naming the field that is wrong.
 */
export function toDecisionRequest(wire: NativeRequest, ipv6Prefix: number): DecisionRequest {
  const { mode } = wire;
  if (mode >= MODES.length) invalid('mode', `${String(mode)} is none of those defined`);
  const hits = wire.hits ?? (MODES[mode] === 'peek' ? 0 : 1);
  if (hits > MAX_HITS) invalid('hits', 'above 2^53 - 1');
  return {
    domain: wire.domain === '' ? 'default' : wire.domain,
    descriptors: toDescriptors(wire, ipv6Prefix),
    hits,
    mode: MODES[mode],
    candidates: true,
  };
}

function toDescriptors(wire: NativeRequest, ipv6Prefix: number): readonly Descriptor[] {
  const given = wire.descriptor;
  if (given === undefined) invalid('descriptor', 'is required');
  const { user, apiKey } = given;
  const ip = given.ip === '' ? '' : normaliseAddress(given.ip, ipv6Prefix);
  if (ip === undefined) invalid('descriptor.ip', 'is not an IPv4 or IPv6 address');

  const entries: Entry[] = [];
  if (user !== '') entries.push({ key: 'user', value: user });
  if (ip !== '') entries.push({ key: 'ip', value: ip });
  if (apiKey !== '') entries.push({ key: 'api_key', value: apiKey });
  if (entries.length > 0) entries.push({ key: 'client', value: clientOf(apiKey, user, ip) });
  addAttributes(entries, given.attributes);

  const descriptors: Descriptor[] = [];
  const endpoint: Entry | undefined =
    given.endpoint === '' ? undefined : { key: 'endpoint', value: given.endpoint };
  if (endpoint !== undefined) descriptors.push(describe([endpoint]));
  for (const entry of entries) descriptors.push(describe([entry]));
  if (endpoint !== undefined) {
    for (const entry of entries) descriptors.push(describe([endpoint, entry]));
  }
  if (descriptors.length === 0) invalid('descriptor', 'at least one field must be set');
  return descriptors;
}

/** The most specific identity, tagged, so that kinds never share a counter; a credential as its digest. */
function clientOf(apiKey: string, user: string, ip: string): string {
  if (apiKey !== '') return `key:${digest(apiKey)}`;
  return user === '' ? `ip:${ip}` : `user:${user}`;
}

function addAttributes(entries: Entry[], attributes: ReadonlyMap<string, string>): void {
  if (attributes.size === 0) return;
  for (const name of [...attributes.keys()].sort()) {
    if (!ATTRIBUTE_NAME.test(name)) {
      invalid('descriptor.attributes', 'a name must be like [a-z][a-z0-9_]{0,62}');
    }
    if (RESERVED_NAMES.has(name)) {
      invalid('descriptor.attributes', `${name} is a name of its own kind`);
    }
    const value = attributes.get(name) ?? '';
    if (value !== '') entries.push({ key: name, value });
  }
}

function describe(entries: readonly Entry[]): Descriptor {
  return { entries, override: undefined, hits: undefined, giveBack: false };
}

function invalid(field: string, what: string): never {
  throw new RequestError('invalid_argument', `${field}: ${what}`);
}

interface Ranked {
  readonly rule: Rule;
  readonly limit: LimitDecision;
}

/** The answer, with the limits in the order of the configuration. */
export function toNativeResponse(decision: Decision): NativeResponse {
  const ranked: Ranked[] = [];
  for (const { rule, limits } of decision.descriptors) {
    if (rule === undefined) continue;
    for (const limit of limits) ranked.push({ rule, limit });
  }
  ranked.sort((a, b) => a.rule.index - b.rule.index);
  const deciding = decidingOf(ranked, decision.allowed);
  const shown = deciding && toResult(deciding);
  return {
    allowed: decision.allowed,
    limit: shown?.limit,
    remaining: shown?.remaining,
    resetTimeUs:
      shown?.resetAfterUs === undefined ? undefined : decision.nowUs + shown.resetAfterUs,
    resetAfterUs: shown?.resetAfterUs,
    retryAfterUs: decision.allowed ? undefined : shown?.retryAfterUs,
    limitName: shown?.name ?? '',
    degraded: decision.degraded,
    limits: ranked.map(toResult),
  };
}

/** The tightest of the limits that could refuse; of those that did, if the request was refused. */
function decidingOf(ranked: readonly Ranked[], allowed: boolean): Ranked | undefined {
  let found: Ranked | undefined;
  for (const candidate of ranked) {
    const { charge, outcome } = candidate.limit;
    // On an allowed request a quota that does not fit has decided nothing: another one had room.
    if (charge.role === 'shadow' || outcome.fits !== allowed) continue;
    if (found === undefined || isTighter(candidate.limit, found.limit)) found = candidate;
  }
  return found;
}

function toResult({ rule, limit: decided }: Ranked): NativeLimitResult {
  const { charge, outcome, source } = decided;
  const { limit } = charge;
  const degraded = source !== 'store';
  const hidden = limit.disclose === 'none';
  const exact = limit.disclose === 'full';
  const waits = outcome.fits ? undefined : waitUs(decided);
  return {
    name: limit.name === '' ? rule.path : limit.name,
    allowed: outcome.fits,
    enforced: charge.role !== 'shadow',
    degraded,
    algorithm: hidden ? 0 : ALGORITHM_NAMES.indexOf(limit.algorithm) + 1,
    windowUs: hidden ? undefined : limit.windowUs,
    limit: hidden ? undefined : limit.requests,
    burst: hidden || limit.algorithm !== 'token_bucket' ? undefined : limit.burst,
    remaining: exact && !degraded ? outcome.remaining : undefined,
    resetAfterUs:
      hidden || degraded ? undefined : exact ? outcome.resetUs : coarseUs(outcome.resetUs, limit),
    retryAfterUs:
      hidden || waits === undefined || waits === Infinity
        ? undefined
        : exact || degraded
          ? waits
          : coarseUs(waits, limit),
  };
}
