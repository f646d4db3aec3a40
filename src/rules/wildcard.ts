/**
 * Wildcard patterns of rules: `*` stands for any text, also none; every other character is itself.
 * Pure; matching allocates nothing and takes no more than pattern × text steps.
 */

/** A pattern, split at its stars. */
export interface Pattern {
  /** As written. */
  readonly text: string;
  readonly prefix: string;
  /** What must follow between the stars, in this order. */
  readonly middles: readonly string[];
  readonly suffix: string;
}

/** Compiles a text that holds at least one `*`. */
export function compilePattern(text: string): Pattern {
  const parts = text.split('*');
  return {
    text,
    prefix: parts[0] ?? '',
    middles: parts.slice(1, -1).filter((part) => part !== ''),
    suffix: parts.at(-1) ?? '',
  };
}

/** Whether the pattern covers the whole text; prefix, middles and suffix never share characters. */
export function matchesPattern(pattern: Pattern, text: string): boolean {
  const { prefix, middles, suffix } = pattern;
  const end = text.length - suffix.length;
  if (end < prefix.length || !text.startsWith(prefix) || !text.endsWith(suffix)) return false;
  let from = prefix.length;
  for (const middle of middles) {
    // The leftmost place is as good as any: it leaves the most room for what follows.
    const at = text.indexOf(middle, from);
    if (at < 0) return false;
    from = at + middle.length;
    if (from > end) return false;
  }
  return true;
}
