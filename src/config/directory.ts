/**
 * Reads a directory of configuration files as one consistent whole, whatever is swapped meanwhile.
 * Knows which names are configuration; knows nothing of what the files say.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { loadAside, type AsideOptions } from './load-aside.js';
import { loadConfig, type ConfigFile, type Loaded, type LoadOptions } from './load.js';
import { ConfigError, type Problem } from './problems.js';

/** A larger file is refused. */
const MAX_FILE_BYTES = 8 * 1024 * 1024;
/** From so many characters on, reading takes more than some 5 ms. */
const LARGE = 10_000;
/** How often a directory that changes while it is read is read again. */
const MAX_ATTEMPTS = 10;
const RETRY_PAUSE_MS = 20;

/** What a directory held at one moment. */
export interface DirectoryReading {
  /** False when there is no such directory. */
  readonly found: boolean;
  readonly files: readonly ConfigFile[];
  /** What could not be read. */
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
  /** The same for the same names, contents and problems. */
  readonly digest: string;
}

/**
 * Reads every regular file of the directory (or symlink to one), sorted by name. Names that begin
 * with a dot (Kubernetes' `..data`, editors' swap files) or end with `~` (backups) are passed over,
 * sub-directories too. Never rejects: what cannot be read is a problem of the reading.
 */
export async function readConfigDir(directory: string): Promise<DirectoryReading> {
  for (let attempt = 1; ; attempt++) {
    const before = await fingerprint(directory);
    const reading = await readOnce(directory);
    // Files of two generations must not meet: if anything was swapped meanwhile, it is read again.
    if (attempt === MAX_ATTEMPTS || before === (await fingerprint(directory))) return reading;
    await pause(RETRY_PAUSE_MS);
  }
}

/** Turns a reading into a snapshot. Throws ConfigError with what could not be read, too. */
export function loadReading(reading: DirectoryReading, options: LoadOptions): Loaded {
  try {
    return addFindings(reading, loadConfig(reading.files, options));
  } catch (error) {
    throw addProblems(reading, error);
  }
}

/**
 * As `loadReading`, while something else goes on. What is small is loaded at once, which is over before
 * a thread has begun. Rejects with the signal's reason once that is aborted.
 */
export async function loadReadingAside(
  reading: DirectoryReading,
  options: LoadOptions,
  aside: AsideOptions,
): Promise<Loaded> {
  const size = reading.files.reduce((sum, { text }) => sum + text.length, 0);
  if (size < LARGE) return loadReading(reading, options);
  try {
    return addFindings(reading, await loadAside(reading.files, options, aside));
  } catch (error) {
    aside.signal?.throwIfAborted();
    // Where there can be no thread, a pause is better than rules that are old.
    if (!(error instanceof ConfigError)) return loadReading(reading, options);
    throw addProblems(reading, error);
  }
}

function addFindings(reading: DirectoryReading, loaded: Loaded): Loaded {
  if (reading.problems.length > 0) throw new ConfigError([]);
  return { ...loaded, warnings: [...reading.warnings, ...loaded.warnings] };
}

function addProblems(reading: DirectoryReading, error: unknown): unknown {
  if (!(error instanceof ConfigError)) return error;
  return new ConfigError([...reading.problems, ...error.problems]);
}

async function readOnce(directory: string): Promise<DirectoryReading> {
  const files: ConfigFile[] = [];
  const problems: Problem[] = [];
  const warnings: Problem[] = [];
  let found = true;
  try {
    for (const name of await configNames(directory)) {
      const read = await readConfigFile(directory, name);
      if (typeof read === 'string') files.push({ name, text: read });
      else (read.fatal ? problems : warnings).push(wholeFile(name, read.message));
    }
  } catch (error) {
    found = !isMissing(error);
    const message = found ? `cannot be read: ${reason(error)}` : 'there is no such directory';
    problems.push(wholeFile(directory, message));
  }
  return { found, files, problems, warnings, digest: digestOf(files, problems) };
}

async function configNames(directory: string): Promise<string[]> {
  const names = await readdir(directory);
  return names.filter((name) => !name.startsWith('.') && !name.endsWith('~')).sort();
}

/** The text, or why there is none. */
async function readConfigFile(
  directory: string,
  name: string,
): Promise<string | { readonly fatal: boolean; readonly message: string }> {
  const path = join(directory, name);
  try {
    const { size, ...kind } = await statKind(path);
    if (kind.directory) return { fatal: false, message: 'is a directory, which is not read' };
    // Opening a pipe or a device could wait for ever.
    if (!kind.file) return { fatal: false, message: 'is not a file, so it is not read' };
    if (size > MAX_FILE_BYTES) {
      return { fatal: true, message: `is larger than ${String(MAX_FILE_BYTES)} bytes` };
    }
    return new TextDecoder('utf-8', { fatal: true }).decode(await readFile(path));
  } catch (error) {
    if (error instanceof TypeError) return { fatal: true, message: 'is not UTF-8 text' };
    return { fatal: true, message: `cannot be read: ${reason(error)}` };
  }
}

async function statKind(
  path: string,
): Promise<{ readonly size: number; readonly directory: boolean; readonly file: boolean }> {
  const found = await stat(path);
  return { size: found.size, directory: found.isDirectory(), file: found.isFile() };
}

/** What changes when a file is written, replaced, added or removed, or a link is swapped. */
async function fingerprint(directory: string): Promise<string> {
  try {
    // The directory's own time tells of a swap that was swapped back.
    const { mtimeNs } = await stat(directory, { bigint: true });
    const parts = [await realpath(directory), String(mtimeNs)];
    for (const name of await configNames(directory)) {
      const path = join(directory, name);
      const target = await realpath(path).catch(() => '');
      const found = await stat(path, { bigint: true }).catch(() => undefined);
      const state = found && [found.dev, found.ino, found.size, found.mtimeNs, found.ctimeNs];
      parts.push(name, target, state?.join(' ') ?? '');
    }
    return parts.join('\0');
  } catch (error) {
    return reason(error);
  }
}

function digestOf(files: readonly ConfigFile[], problems: readonly Problem[]): string {
  const hash = createHash('sha256');
  const parts = [
    ...files.map(({ name, text }) => [name, text]),
    ...problems.map(({ file, message }) => [file, message, '']),
  ];
  return hash.update(JSON.stringify(parts)).digest('base64url');
}

function wholeFile(file: string, message: string): Problem {
  return { file, line: 1, column: 1, path: '', message };
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

/** The system's code, which says enough; its message repeats the path. */
function reason(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error';
}
