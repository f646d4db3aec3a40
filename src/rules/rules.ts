/**
 * The compiled tree of rules: from definitions to a frozen table that `match` walks without
 * allocating. Knows nothing of files, requests' wires or counting.
 */
import type { Entry, JsonObject, Limit, Position, Rule, Snapshot } from '../model.js';
import { digest, isSecretKey, ruleKeyPart } from '../store/keys.js';
import { compilePattern, matchesPattern, type Pattern } from './wildcard.js';

/** One rule as written, with its children; already validated. */
export interface RuleDefinition {
  readonly key: string;
  /** Exact, with wildcards (`*`), or undefined for any value. Never empty. */
  readonly value: string | undefined;
  readonly limits: readonly Limit[];
  readonly unlimited: boolean;
  readonly shadow: boolean;
  readonly quota: boolean;
  readonly replaces: readonly string[];
  readonly shareThreshold: boolean;
  readonly hashValue: boolean;
  readonly detailedMetric: boolean;
  readonly valueToMetric: boolean;
  readonly metadata: JsonObject | undefined;
  readonly position: Position;
  readonly children: readonly RuleDefinition[];
}

/** A domain as written. No two rules of one level have the same key and value. */
export interface DomainDefinition {
  readonly name: string;
  readonly rules: readonly RuleDefinition[];
}

/** The part of a snapshot that comes from the rules. */
export type CompiledRules = Pick<Snapshot, 'rules' | 'domains' | 'match'>;

interface Node {
  readonly rule: Rule;
  readonly children: Level | undefined;
}

/** The rules of one key at one level, in the order in which they are tried. */
interface Choice {
  readonly exact: Map<string, Node>;
  readonly wildcards: { readonly pattern: Pattern; readonly node: Node }[];
  any: Node | undefined;
}

interface Level {
  readonly keys: Map<string, Choice>;
  readonly keyPatterns: { readonly pattern: Pattern; readonly choice: Choice }[];
}

/**
 * Compiles domains into a table. Domains of the same name must have been merged before.
 * `match` tries, at each level, the exact value, then the wildcards of that key in the order in
 * which they were declared, then the rule without a value; only then keys that are patterns. There
 * is no way back: what matched at one level decides, even when nothing below it matches.
 */
export function compileRules(domains: readonly DomainDefinition[]): CompiledRules {
  const compiler = new RuleCompiler();
  for (const domain of domains) compiler.add(domain.name, domain.rules);
  return compiler.finish();
}

/** `compileRules` in parts, for who has something else to do in between. */
export class RuleCompiler {
  private readonly rules: Rule[] = [];
  private readonly roots = new Map<
    string,
    { readonly level: Level; readonly paths: Set<string> }
  >();

  /** Rules of a domain's first level; more of the same domain may follow at once. */
  add(domain: string, definitions: readonly RuleDefinition[]): void {
    const root = this.roots.get(domain) ?? { level: emptyLevel(), paths: new Set() };
    this.roots.set(domain, root);
    compileLevel(root.level, domain, definitions, undefined, root.paths, this.rules);
  }

  /** The table; nothing may be added after. */
  finish(): CompiledRules {
    const { roots } = this;
    return {
      rules: Object.freeze(this.rules),
      domains: new Set(roots.keys()),
      match(domain, entries) {
        let level = roots.get(domain)?.level;
        let found: Node | undefined;
        for (const entry of entries) {
          if (level === undefined) return undefined;
          found = findNode(level, entry);
          if (found === undefined) return undefined;
          level = found.children;
        }
        return found?.rule;
      },
    };
  }
}

/**
 * How a rule's own level stands in its path: `user`, `user=42`, or with a digest in place of a value
 * that must not be seen (`api_key#Zx81…`).
 */
export function pathPart(key: string, value: string | undefined, hashValue: boolean): string {
  if (value === undefined) return key;
  return hashValue || isSecretKey(key) ? `${key}#${digest(value).slice(0, 8)}` : `${key}=${value}`;
}

function findNode(level: Level, entry: Entry): Node | undefined {
  const { key, value } = entry;
  if (key === '') return undefined;
  const choice = level.keys.get(key);
  if (choice !== undefined) {
    const node = choose(choice, value);
    if (node !== undefined) return node;
  }
  for (const candidate of level.keyPatterns) {
    if (!matchesPattern(candidate.pattern, key)) continue;
    const node = choose(candidate.choice, value);
    if (node !== undefined) return node;
  }
  return undefined;
}

function choose(choice: Choice, value: string): Node | undefined {
  const exact = choice.exact.get(value);
  if (exact !== undefined) return exact;
  for (const wildcard of choice.wildcards) {
    if (matchesPattern(wildcard.pattern, value)) return wildcard.node;
  }
  return choice.any;
}

function emptyLevel(): Level {
  return { keys: new Map(), keyPatterns: [] };
}

/** Fills the level; returns it. */
function compileLevel(
  level: Level,
  domain: string,
  definitions: readonly RuleDefinition[],
  parent: Rule | undefined,
  paths: Set<string>,
  rules: Rule[],
): Level {
  for (const definition of definitions) {
    const rule = compileRule(domain, definition, parent, paths, rules.length);
    rules.push(rule);
    const children =
      definition.children.length === 0
        ? undefined
        : compileLevel(emptyLevel(), domain, definition.children, rule, paths, rules);
    place(choiceFor(level, definition.key), { rule, children });
  }
  return level;
}

function choiceFor(level: Level, key: string): Choice {
  const known = level.keys.get(key);
  if (known !== undefined) return known;
  const choice: Choice = { exact: new Map(), wildcards: [], any: undefined };
  if (!key.includes('*')) {
    level.keys.set(key, choice);
    return choice;
  }
  const same = level.keyPatterns.find((candidate) => candidate.pattern.text === key);
  if (same !== undefined) return same.choice;
  level.keyPatterns.push({ pattern: compilePattern(key), choice });
  return choice;
}

function place(choice: Choice, node: Node): void {
  const { value } = node.rule;
  if (value === undefined) choice.any = node;
  else choice.exact.set(value, node);
  // A value that reads like the wildcard itself takes its rule before any other wildcard has a say.
  if (value?.includes('*') === true)
    choice.wildcards.push({ pattern: compilePattern(value), node });
}

function compileRule(
  domain: string,
  definition: RuleDefinition,
  parent: Rule | undefined,
  paths: Set<string>,
  index: number,
): Rule {
  const hashValue = definition.hashValue || isSecretKey(definition.key);
  const own = pathPart(definition.key, definition.value, hashValue);
  const chain: Rule[] = parent === undefined ? [] : [...parent.chain];
  const rule: Rule = {
    index,
    domain,
    path: uniquePath(parent === undefined ? own : `${parent.path}.${own}`, paths),
    key: definition.key,
    value: definition.value,
    chain,
    keyPart: Object.freeze(ruleKeyPart({ ...definition, hashValue })),
    limits: Object.freeze([...definition.limits]),
    unlimited: definition.unlimited,
    shadow: definition.shadow,
    quota: definition.quota,
    replaces: Object.freeze([...definition.replaces]),
    shareThreshold: definition.shareThreshold,
    hashValue,
    detailedMetric: definition.detailedMetric,
    valueToMetric: definition.valueToMetric,
    metadata: definition.metadata,
    position: definition.position,
  };
  chain.push(rule);
  Object.freeze(chain);
  return Object.freeze(rule);
}

/** Keys and values may hold dots and equals signs, so that two rules can come to the same text. */
function uniquePath(path: string, paths: Set<string>): string {
  let unique = path;
  for (let count = 2; paths.has(unique); count++) unique = `${path}#${String(count)}`;
  paths.add(unique);
  return unique;
}
