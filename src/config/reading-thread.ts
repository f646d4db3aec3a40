/**
 * The thread that reads large configurations: files or an xDS server's resources in, rules out as JSON in
 * parts that the main thread can take one at a time. Started by `load-aside.ts`, ends by itself.
 */
import { constants, setPriority } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import type { RuleDefinition } from '../rules/rules.js';
import { readRules, type ConfigFile, type ReadOptions } from './load.js';
import { afterProblems, ConfigError, type Problem } from './problems.js';
import type { AnyMessage } from './xds-wire.js';

/** What the thread is given. */
export type ReadingTask = FilesTask | ResourcesTask;

interface FilesTask {
  readonly files: readonly ConfigFile[];
  readonly options: ReadOptions;
}

/** Resources as they came; those of one of the known digests are only named, not read. */
export interface ResourcesTask {
  readonly resources: readonly AnyMessage[];
  readonly knownDigests: readonly string[];
  readonly options: ReadOptions;
}

/** What it answers. */
export type ReadingResult<T extends ReadingTask = ReadingTask> = T extends FilesTask
  ? ReadResult
  : (ReadResult | { readonly problems?: undefined; readonly rules?: undefined }) & {
      readonly digest: string;
    };

type ReadResult =
  | { readonly problems?: undefined; readonly rules: PackedRules }
  | { readonly problems: readonly Problem[]; readonly rules?: undefined };

/** Rules on their way to another thread. */
export interface PackedRules {
  /** `rules` is the JSON of RuleDefinition[]; of one domain there may be several parts. */
  readonly parts: readonly { readonly domain: string; readonly rules: string }[];
  readonly names: readonly string[];
  readonly warnings: readonly Problem[];
}

/** Rules of a part, children included: about 2 ms to parse and to compile. */
const PART_RULES = 250;

async function read(task: ReadingTask): Promise<ReadingResult> {
  if ('files' in task) return readFiles(task.files, task.options, []);
  // Loaded where they are needed only: the .proto files alone take 30 ms.
  const { loadXdsWire } = await import('./xds-wire.js');
  const { readResources } = await import('./xds-resource.js');
  const { files, problems, digest } = readResources(loadXdsWire(), task.resources);
  if (task.knownDigests.includes(digest)) return { digest };
  return { digest, ...readFiles(files, task.options, problems) };
}

function readFiles(
  files: readonly ConfigFile[],
  options: ReadOptions,
  before: readonly Problem[],
): ReadResult {
  try {
    const { domains, names, warnings } = afterProblems(before, () => readRules(files, options));
    const parts = domains.flatMap(({ name, rules }) =>
      split(rules).map((part) => ({ domain: name, rules: JSON.stringify(part) })),
    );
    return { rules: { parts, names, warnings } };
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
parentPort?.postMessage(await read(workerData as ReadingTask)); // from load-aside, which is typed
