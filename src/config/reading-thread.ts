/**
 * The thread that reads large configurations: files in, rules out as JSON in parts that the main thread
 * can take one at a time. Started by `load-aside.ts`, ends by itself.
 */
import { constants, setPriority } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import type { RuleDefinition } from '../rules/rules.js';
import { readRules, type ConfigFile, type ReadOptions } from './load.js';
import { ConfigError, type Problem } from './problems.js';

/** What the thread is given. */
export interface ReadingTask {
  readonly files: readonly ConfigFile[];
  readonly options: ReadOptions;
}

/** What it answers. `rules` is the JSON of RuleDefinition[]; of one domain there may be several parts. */
export type ReadingResult =
  | {
      readonly parts: readonly { readonly domain: string; readonly rules: string }[];
      readonly names: readonly string[];
      readonly warnings: readonly Problem[];
    }
  | { readonly problems: readonly Problem[] };

/** Rules of a part, children included: about 2 ms to parse and to compile. */
const PART_RULES = 250;

function read({ files, options }: ReadingTask): ReadingResult {
  try {
    const { domains, names, warnings } = readRules(files, options);
    const parts = domains.flatMap(({ name, rules }) =>
      split(rules).map((part) => ({ domain: name, rules: JSON.stringify(part) })),
    );
    return { parts, names, warnings };
  } catch (error) {
    if (error instanceof ConfigError) return { problems: error.problems };
    throw error;
  }
}

/** At least one part, so that a domain without rules is a domain all the same. */
function split(rules: readonly RuleDefinition[]): RuleDefinition[][] {
  const parts: RuleDefinition[][] = [];
  let part: RuleDefinition[] = [];
  let count = 0;
  for (const rule of rules) {
    part.push(rule);
    count += sizeOf(rule);
    if (count < PART_RULES) continue;
    parts.push(part);
    part = [];
    count = 0;
  }
  if (part.length > 0 || parts.length === 0) parts.push(part);
  return parts;
}

function sizeOf(rule: RuleDefinition): number {
  return rule.children.reduce((sum, child) => sum + sizeOf(child), 1);
}

// Where decisions have no other core they go first. Elsewhere than on Linux this would slow all threads.
if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_LOW);
parentPort?.postMessage(read(workerData as ReadingTask)); // from load-aside, which is typed
