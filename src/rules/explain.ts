/**
 * Why a descriptor matches the rule that it does, and why not the others: for people who ask, not for
 * the path of a request. Looks the entries up by itself, and a test holds it against `match`.
 */
import type { Entry, Position, Rule, Snapshot } from '../model.js';
import { compilePattern, matchesPattern } from './wildcard.js';

/** What became of one rule when a descriptor was looked up. */
export interface RuleExplanation {
  readonly path: string;
  readonly position: Position;
  readonly matched: boolean;
  /** In plain words; never with a value that must not be seen. */
  readonly reason: string;
}

/** Which rule a descriptor matches, and why not the others. */
export interface Explanation {
  readonly domainKnown: boolean;
  readonly rule: Rule | undefined;
  /** Every rule of the domain, in the order of the configuration. */
  readonly rules: readonly RuleExplanation[];
}

/**
 * Explains what `snapshot.match` does with these entries. Goes through every rule of the domain:
 * for people who ask, not for the path of a request.
 */
export function explain(
  snapshot: Pick<Snapshot, 'rules' | 'domains'>,
  domain: string,
  entries: readonly Entry[],
): Explanation {
  const rules = snapshot.rules.filter((rule) => rule.domain === domain);
  const taken = walk(rules, entries);
  const rule = taken.length === entries.length ? taken.at(-1) : undefined;
  return {
    domainKnown: snapshot.domains.has(domain),
    rule,
    rules: rules.map((each) => ({
      path: each.path,
      position: each.position,
      matched: each === rule,
      reason: each === rule ? whyMatched(each) : whyNot(each, entries, taken),
    })),
  };
}

/** The rules that the entries lead through, one a level, as far as they lead. */
function walk(rules: readonly Rule[], entries: readonly Entry[]): readonly Rule[] {
  const taken: Rule[] = [];
  for (const entry of entries) {
    const depth = taken.length;
    const level = rules.filter(
      (rule) => rule.chain.length === depth + 1 && rule.chain[depth - 1] === taken[depth - 1],
    );
    const best = level
      .filter((rule) => covers(rule.key, entry.key) && covers(rule.value, entry.value))
      .map((rule) => ({ rule, rank: rank(rule, level, entry.value) }))
      .sort((a, b) => a.rank - b.rank)[0];
    if (best === undefined || entry.key === '') break;
    taken.push(best.rule);
  }
  return taken;
}

/** The lower, the earlier a rule is tried among those of its level. */
function rank(rule: Rule, level: readonly Rule[], value: string): number {
  const size = level.length;
  const keyRank = rule.keyPart.keyIsPattern
    ? 1 + level.findIndex((other) => other.key === rule.key)
    : 0;
  const valueRank = rule.value === undefined ? 2 : rule.value === value ? 0 : 1;
  return (keyRank * 3 + valueRank) * size + level.indexOf(rule);
}

function covers(pattern: string | undefined, text: string): boolean {
  if (pattern === undefined) return true;
  return pattern.includes('*') ? matchesPattern(compilePattern(pattern), text) : pattern === text;
}

function whyMatched(rule: Rule): string {
  if (rule.value === undefined) return 'matches: the key, with any value';
  if (rule.value.includes('*')) return 'matches: the first wildcard that covers the value';
  return 'matches: key and value';
}

function whyNot(rule: Rule, entries: readonly Entry[], taken: readonly Rule[]): string {
  for (const [depth, node] of rule.chain.entries()) {
    const entry = entries[depth];
    if (entry === undefined) break;
    const which = ordinal(depth);
    if (entry.key === '') return `the ${which} entry has an empty key, which matches nothing`;
    if (!covers(node.key, entry.key)) {
      return `the ${which} entry's key is \`${entry.key}\`, not \`${node.key}\``;
    }
    if (!covers(node.value, entry.value)) {
      const wanted = node.hashValue ? 'the hidden one' : `\`${node.value ?? ''}\``;
      return `the ${which} entry's value is not ${wanted}`;
    }
    const winner = taken[depth];
    if (winner !== undefined && winner !== node) return whyEarlier(node, winner, entry.value);
  }
  const has = entries.length === 1 ? '1 entry' : `${String(entries.length)} entries`;
  return `the descriptor has ${has}, the rule needs ${String(rule.chain.length)}`;
}

function whyEarlier(node: Rule, winner: Rule, value: string): string {
  if (node.keyPart.keyIsPattern && winner.key !== node.key) {
    return winner.keyPart.keyIsPattern
      ? `an earlier key pattern matched: \`${winner.path}\``
      : `the exact key goes first: \`${winner.path}\``;
  }
  if (winner.value === undefined || winner.value === value) {
    return `the exact value goes first: \`${winner.path}\``;
  }
  return node.value === undefined
    ? `a wildcard goes first: \`${winner.path}\``
    : `an earlier wildcard matched: \`${winner.path}\``;
}

function ordinal(depth: number): string {
  return ['first', 'second', 'third'][depth] ?? `${String(depth + 1)}th`;
}
