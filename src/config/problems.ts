/**
 * What is wrong with a configuration, and where: the words for problems and the error that carries
 * them all at once. Knows no YAML.
 */
import type { Position } from '../model.js';

/** What is named of a list in one line of the log, or to an xDS server. */
const MAX_NAMED = 20;

/** One thing that is wrong, or doubtful. Line and column count from 1; 1:1 for a whole file. */
export interface Problem extends Position {
  /** The domain and the rules above it, then the field: `shop.user=42.rate_limit.unit`. May be empty. */
  readonly path: string;
  readonly message: string;
}

/** A configuration that was refused; every problem that was found. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly code = 'invalid_config';

  constructor(
    readonly problems: readonly Problem[],
    options?: { cause?: unknown },
  ) {
    super(problems.map(formatProblem).join('\n'), options);
  }
}

/**
 * What the step gives, if nothing was wrong before it. Otherwise it is taken all the same, to throw
 * ConfigError with everything that is wrong.
 */
export function afterProblems<T>(before: readonly Problem[], step: () => T): T {
  try {
    const result = step();
    if (before.length === 0) return result;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new ConfigError([...before, ...error.problems]);
  }
  throw new ConfigError(before);
}

/** `file:line:column path: what is wrong`, in printable characters: names in files are anybody's. */
export function formatProblem(problem: Problem): string {
  const { file, line, column, path, message } = problem;
  const text = `${file}:${String(line)}:${String(column)}${path === '' ? '' : ` ${path}`}: ${message}`;
  return text.replace(/[\p{Cc}\p{Cf}]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `\\u{${code.toString(16)}}`;
  });
}

/** The first problems as lines, and how many more there are. */
export function nameProblems(problems: readonly Problem[]): string[] {
  return nameFirst(problems, formatProblem);
}

/** The first of a list by their names, and how many more there are: a line of ten thousand is no help. */
export function nameFirst<T>(list: readonly T[], nameOf: (item: T) => string): string[] {
  const named = list.slice(0, MAX_NAMED).map(nameOf);
  const more = list.length - named.length;
  return more === 0 ? named : [...named, `and ${String(more)} more`];
}

/** A problem's path with one more step. */
export function joinPath(path: string, step: string): string {
  return path === '' ? step : `${path}.${step}`;
}

/**
 * ` (did you mean \`rate_limit\`?)` for the candidate that the word was likely meant to be, or
 * nothing: by one or two slips of the pen, by case, or as a beginning of at least four letters.
 */
export function didYouMean(word: string, candidates: readonly string[]): string {
  const lower = word.toLowerCase();
  const allowed = word.length <= 3 ? 1 : word.length <= 7 ? 2 : 3;
  let best: string | undefined;
  let bestDistance = allowed + 1;
  for (const candidate of candidates) {
    const distance = editDistance(lower, candidate, allowed);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  best ??= lower.length >= 4 ? candidates.find((each) => each.startsWith(lower)) : undefined;
  return best === undefined ? '' : ` (did you mean \`${best}\`?)`;
}

/** Levenshtein's distance; anything above `limit` when the lengths alone differ by more. */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) > limit) return limit + 1;
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(swap, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
