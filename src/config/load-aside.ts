/**
 * Loads a configuration while decisions go on: reading YAML takes 60 µs a rule, and Envoy waits 20 ms. The
 * reading is another thread's, the compiling is done in parts with room for requests in between.
 */
import { extname } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import type { Limit } from '../model.js';
import { RuleCompiler, type RuleDefinition } from '../rules/rules.js';
import { toSnapshot, type ConfigFile, type Loaded, type LoadOptions } from './load.js';
import { ConfigError } from './problems.js';
import type { PackedRules, ReadingResult, ReadingTask } from './reading-thread.js';

/** Beside this file, and compiled as it is: who starts a thread has to name the file as it stands. */
const THREAD = new URL(`./reading-thread${extname(import.meta.url)}`, import.meta.url);

export interface AsideOptions {
  /** Ends it early: the thread is gone, and nothing is compiled, when the promise rejects. */
  readonly signal?: AbortSignal | undefined;
  /** The file that the thread runs. */
  readonly thread?: URL | undefined;
}

/** As `loadConfig`. Rejects with ConfigError, or with what ended the thread. */
export async function loadAside(
  files: readonly ConfigFile[],
  options: LoadOptions,
  aside: AsideOptions = {},
): Promise<Loaded> {
  const { mergeDomains, defaultOnStoreError } = options;
  const task = { files, options: { mergeDomains, defaultOnStoreError } };
  const result = await readAside(task, aside);
  if (result.problems !== undefined) throw new ConfigError(result.problems);
  return compileInParts(result.rules, options, aside.signal);
}

/** Has another thread read. Rejects with what ended the thread, or the signal's reason. */
export function readAside<T extends ReadingTask>(
  task: T,
  { signal, thread = THREAD }: AsideOptions,
): Promise<ReadingResult<T>> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const worker = new Worker(thread, { workerData: task });
    const end = (): void => {
      void worker.terminate();
    };
    signal?.addEventListener('abort', end, { once: true });
    worker.once('message', resolve);
    worker.once('error', reject);
    worker.once('exit', (code) => {
      signal?.removeEventListener('abort', end);
      const ended = `the thread that reads the configuration ended with code ${String(code)}`;
      reject(signal?.aborted === true ? (signal.reason as Error) : new Error(ended));
    });
  });
}

/** From what the thread has read to a snapshot, a part in each turn. Rejects with the signal's reason. */
export async function compileInParts(
  { parts, names, warnings }: PackedRules,
  options: LoadOptions,
  signal?: AbortSignal,
): Promise<Loaded> {
  const compiler = new RuleCompiler();
  for (const { domain, rules } of parts) {
    await nextTurn();
    signal?.throwIfAborted();
    compiler.add(domain, (JSON.parse(rules) as RuleDefinition[]).map(revive)); // our own JSON
  }
  // What takes the snapshot into use has work to do, too.
  await nextTurn();
  signal?.throwIfAborted();
  return { snapshot: toSnapshot(compiler.finish(), names, options), warnings };
}

/** What JSON leaves out: fields that are undefined, and that limits are frozen. */
function revive(definition: RuleDefinition): RuleDefinition {
  return {
    ...definition,
    value: definition.value,
    metadata: definition.metadata,
    limits: definition.limits.map(reviveLimit),
    children: definition.children.map(revive),
  };
}

function reviveLimit(limit: Limit): Limit {
  return Object.freeze({ ...limit, countRejected: limit.countRejected });
}
