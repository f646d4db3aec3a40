/**
 * From the resources of an xDS answer to a snapshot: at once when they are few, else beside everything
 * that goes on. Knows no connection, and not what is done with a snapshot.
 */
import { compileInParts, readAside, type AsideOptions } from './load-aside.js';
import { loadConfig, type Loaded, type LoadOptions } from './load.js';
import { afterProblems, ConfigError } from './problems.js';
import { readResources } from './xds-resource.js';
import type { AnyMessage, XdsWire } from './xds-wire.js';

/** From so many bytes on, which are some 130 rules, reading takes more than 10 ms. */
const LARGE_BYTES = 4000;

/** What came of it: one of `loaded` and `error`, or neither when the digest was known before. */
export interface LoadedResources {
  readonly digest: string;
  readonly loaded?: Loaded;
  /** A ConfigError, or a fault of ours. */
  readonly error?: unknown;
}

/** Whether to load them aside. Otherwise it is over before a thread has begun. */
export function areLarge(resources: readonly AnyMessage[]): boolean {
  let bytes = 0;
  for (const { value } of resources) bytes += value.length;
  return bytes > LARGE_BYTES;
}

/** Loads them now, unless their digest is known. Never throws. */
export function loadResources(
  wire: XdsWire,
  resources: readonly AnyMessage[],
  options: LoadOptions,
  knownDigests: readonly string[],
): LoadedResources {
  const { files, problems, digest } = readResources(wire, resources);
  if (knownDigests.includes(digest)) return { digest };
  try {
    return { digest, loaded: afterProblems(problems, () => loadConfig(files, options)) };
  } catch (error) {
    return { digest, error };
  }
}

/** As `loadResources`, while something else goes on. Rejects with the signal's reason, and only so. */
export async function loadResourcesAside(
  wire: XdsWire,
  resources: readonly AnyMessage[],
  options: LoadOptions,
  knownDigests: readonly string[],
  aside: AsideOptions,
): Promise<LoadedResources> {
  const { mergeDomains, defaultOnStoreError } = options;
  const task = { resources, knownDigests, options: { mergeDomains, defaultOnStoreError } };
  try {
    const { digest, problems, rules } = await readAside(task, aside);
    if (problems !== undefined) return { digest, error: new ConfigError(problems) };
    if (rules === undefined) return { digest };
    return { digest, loaded: await compileInParts(rules, options, aside.signal) };
  } catch {
    aside.signal?.throwIfAborted();
    // Where there can be no thread, a pause is better than rules that are old.
    return loadResources(wire, resources, options, knownDigests);
  }
}
