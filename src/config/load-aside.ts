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
import type { ReadingResult, ReadingTask } from './reading-thread.js';

/** Beside this file, and compiled as it is: who starts a thread has to name the file as it stands. */
const THREAD = new URL(`./reading-thread${extname(import.meta.url)}`, import.meta.url);

/**
 * As `loadConfig`. Rejects with ConfigError, or with what ended the thread. `thread` is the file
 * that it runs.
 */
export async function loadAside(
  files: readonly ConfigFile[],
  options: LoadOptions,
  thread = THREAD,
): Promise<Loaded> {
  const { mergeDomains, defaultOnStoreError } = options;
  const task = { files, options: { mergeDomains, defaultOnStoreError } };
  const result = await readAside(task, thread);
  if ('problems' in result) throw new ConfigError(result.problems);
  const compiler = new RuleCompiler();
  for (const { domain, rules } of result.parts) {
    await nextTurn();
    compiler.add(domain, (JSON.parse(rules) as RuleDefinition[]).map(revive)); // our own JSON
  }
  return {
    snapshot: toSnapshot(compiler.finish(), result.names, options),
    warnings: result.warnings,
  };
}

function readAside(task: ReadingTask, file: URL): Promise<ReadingResult> {
  return new Promise((resolve, reject) => {
    const thread = new Worker(file, { workerData: task });
    thread.once('message', resolve);
    thread.once('error', reject);
    thread.once('exit', (code) => {
      reject(new Error(`the thread that reads the configuration ended with code ${String(code)}`));
    });
  });
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
