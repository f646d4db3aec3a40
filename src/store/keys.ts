/**
 * Builds every counter key: `f60|shop|user=42`. No two different charges share a key, whatever their
 * values contain; the length is bounded; a client cannot choose a cluster's slot, as braces are escaped.
 *
 * Parts are joined by `|`. What stands between a key and its value says what the value is:
 * `=` itself, `~` a wildcard's pattern (share_threshold), `#` a digest because it is secret, `@` a
 * digest because it is long. Characters with a meaning are escaped as `%XX`.
 */
import { createHash } from 'node:crypto';
import type { AlgorithmName, Entry, Limit, Rule, RuleKeyPart } from '../model.js';

/** A longer value is replaced by its digest (UTF-16 units). */
const MAX_VALUE_LENGTH = 96;
/** A longer key, prefix not counted, is replaced by its head and a digest. */
const MAX_KEY_LENGTH = 512;

// eslint-disable-next-line no-control-regex -- NUL and line ends would make keys hard to read in redis-cli
const IN_KEY = /[%|=~#@{}\u0000-\u001f]/g;
// eslint-disable-next-line no-control-regex -- as above
const IN_VALUE = /[%|{}\u0000-\u001f]/g;

const LETTERS: Readonly<Record<AlgorithmName, string>> = {
  fixed_window: 'f',
  sliding_window: 's',
  sliding_window_counter: 'c',
  token_bucket: 't',
};

/** Most texts need no escaping, and to look is a third of what `replace` costs. */
const MEANS_IN_KEY = new RegExp(IN_KEY.source);
const MEANS_IN_VALUE = new RegExp(IN_VALUE.source);

/** What a counter key begins with: `f60`. A changed algorithm or window starts afresh. */
export function keyHead(algorithm: AlgorithmName, windowUs: number): string {
  return LETTERS[algorithm] + String(windowUs / 1_000_000);
}

/** 132 bits of SHA-256, in the 22 characters of base64url. */
export function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 22);
}

/** True for a key whose values never appear in clear, whatever the configuration says. */
export function isSecretKey(key: string): boolean {
  return key === 'api_key';
}

/** What of a rule's part of the counter key does not depend on the request. */
export function ruleKeyPart(
  rule: Pick<Rule, 'key' | 'value' | 'shareThreshold' | 'hashValue'>,
): RuleKeyPart {
  const { key, value } = rule;
  const keyIsPattern = key.includes('*');
  const exact = value !== undefined && !value.includes('*');
  if (keyIsPattern) return { text: '', complete: false, keyIsPattern };
  if (rule.shareThreshold && value !== undefined && !exact) {
    return { text: sharedPart(key, value, rule.hashValue), complete: true, keyIsPattern };
  }
  if (rule.hashValue) {
    return exact
      ? { text: secretPart(key, value), complete: true, keyIsPattern }
      : { text: `|${escapeKey(key)}#`, complete: false, keyIsPattern };
  }
  if (exact) return { text: plainPart(key, value), complete: true, keyIsPattern };
  return { text: `|${escapeKey(key)}=`, complete: false, keyIsPattern };
}

interface LastKey {
  domain: string;
  entries: readonly Entry[];
  rule: Rule;
  key: string;
}

/** Builds counter keys that begin with `prefix` (CACHE_KEY_PREFIX, as it is). */
export class CounterKeys {
  /** The last domain, and how it stands in keys: most requests in a row are of one. */
  private domain = '';
  private domainPart = '|';
  /** The last key of each limit: of some limits, or in a flood, one request after the other wants the same. */
  private readonly last = new WeakMap<Limit, LastKey>();

  constructor(private readonly prefix: string) {}

  /**
   * The key of the counter that `limit` has for these entries. `rule` is the one that they matched.
   * `ownValues`: count the real values even where the rule shares one counter among them, as a limit
   * brought by the request does.
   */
  build(
    limit: Limit,
    domain: string,
    entries: readonly Entry[],
    rule: Rule | undefined,
    ownValues: boolean,
  ): string {
    // A limit that a request brings does not come again.
    if (rule === undefined || ownValues) return this.make(limit, domain, entries, rule, ownValues);
    const last = this.last.get(limit);
    if (!areShort(entries)) {
      // What is remembered for as long as the limit lives must not be large.
      this.last.delete(limit);
      return this.make(limit, domain, entries, rule, ownValues);
    }
    if (last === undefined) {
      const key = this.make(limit, domain, entries, rule, ownValues);
      this.last.set(limit, { domain, entries, rule, key });
      return key;
    }
    if (last.rule === rule && last.domain === domain && same(last.entries, entries)) {
      return last.key;
    }
    last.domain = domain;
    last.entries = entries;
    last.rule = rule;
    last.key = this.make(limit, domain, entries, rule, ownValues);
    return last.key;
  }

  private make(
    limit: Limit,
    domain: string,
    entries: readonly Entry[],
    rule: Rule | undefined,
    ownValues: boolean,
  ): string {
    if (domain !== this.domain) {
      this.domain = domain;
      this.domainPart = '|' + escapeValue(domain);
    }
    let tail = this.domainPart;
    for (let i = 0; i < entries.length; i++) {
      const entry = entries[i];
      if (entry !== undefined) tail += part(entry, rule?.chain[i], ownValues);
    }
    if (tail.length > MAX_KEY_LENGTH) tail = '@' + digest(tail);
    return this.prefix + limit.keyHead + tail;
  }
}

/** Whether they would have the same keys. The values differ soonest, the last of them most. */
function areShort(entries: readonly Entry[]): boolean {
  let length = 0;
  for (const { key, value } of entries) length += key.length + value.length;
  return length <= MAX_KEY_LENGTH;
}

function same(a: readonly Entry[], b: readonly Entry[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = a.length - 1; i >= 0; i--) {
    if (a[i]?.value !== b[i]?.value || a[i]?.key !== b[i]?.key) return false;
  }
  return true;
}

function part(entry: Entry, node: Rule | undefined, ownValues: boolean): string {
  // A limit that the request brings where no rule matches: nobody has said which value is a secret.
  if (node === undefined) return secretPart(entry.key, entry.value);
  const known = node.keyPart;
  if (known.keyIsPattern || (ownValues && node.shareThreshold)) {
    return node.hashValue || isSecretKey(entry.key)
      ? secretPart(entry.key, entry.value)
      : plainPart(entry.key, entry.value);
  }
  if (known.complete) return known.text;
  if (node.hashValue) return known.text + digest(entry.value);
  if (entry.value.length > MAX_VALUE_LENGTH) return plainPart(entry.key, entry.value);
  return known.text + escapeValue(entry.value);
}

function plainPart(key: string, value: string): string {
  return value.length > MAX_VALUE_LENGTH
    ? `|${escapeKey(key)}@${digest(value)}`
    : `|${escapeKey(key)}=${escapeValue(value)}`;
}

function secretPart(key: string, value: string): string {
  return `|${escapeKey(key)}#${digest(value)}`;
}

function sharedPart(key: string, pattern: string, secret: boolean): string {
  return secret || pattern.length > MAX_VALUE_LENGTH
    ? `|${escapeKey(key)}~@${digest(pattern)}`
    : `|${escapeKey(key)}~${escapeKey(pattern)}`;
}

function escapeKey(text: string): string {
  return MEANS_IN_KEY.test(text) ? text.replace(IN_KEY, percent) : text;
}

function escapeValue(text: string): string {
  return MEANS_IN_VALUE.test(text) ? text.replace(IN_VALUE, percent) : text;
}

function percent(character: string): string {
  return '%' + character.charCodeAt(0).toString(16).padStart(2, '0').toUpperCase();
}
