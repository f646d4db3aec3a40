/**
 * The file system watches behind a configuration directory: itself, its files, and the directories
 * above it in which it or its root can be swapped, vanish and return. Knows no configuration.
 */
import { watch, type FSWatcher } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import type { Logger } from '../model.js';

/** Files that are watched one by one; more are left to the directory's watch and the poll. */
const MAX_WATCHED_FILES = 256;

export interface WatchedPathsOptions {
  readonly directory: string;
  /** The topmost path whose swap is looked out for; undefined: the directory itself. */
  readonly root: string | undefined;
  readonly onChange: () => void;
  readonly logger: Logger;
}

interface Watched {
  readonly watcher: FSWatcher;
  /**
   * Device, inode and birth: another file under the same path needs a watch of its own, also when it
   * was given the number of the one that is gone.
   */
  readonly identity: string;
}

/** Set up anew by each `arm`, so that what was replaced or came back is watched again. */
export class WatchedPaths {
  private readonly watched = new Map<string, Watched>();
  private closed = false;
  private warned = false;

  constructor(private readonly options: WatchedPathsOptions) {}

  /**
   * Watches the directory, what is above it, and these files in it (no names: the files that are
   * watched already). A path that does not exist is passed over: the one above it tells when it comes.
   * True when something is watched that was not before: what changed until now was not noticed.
   */
  async arm(fileNames: readonly string[]): Promise<boolean> {
    const { directory } = this.options;
    const wanted = new Map<string, string | undefined>();
    for (const { path, step } of this.steps()) wanted.set(path, step);
    wanted.set(directory, undefined);
    // A file is watched by itself as well: one that is mounted alone, or a link to one elsewhere,
    // changes without a notice from this directory.
    for (const name of fileNames.slice(0, MAX_WATCHED_FILES)) {
      wanted.set(join(directory, name), undefined);
    }
    if (fileNames.length > 0) this.dropAllBut(wanted);
    let armed = false;
    for (const [path, step] of wanted) armed = (await this.watchPath(path, step)) || armed;
    return armed;
  }

  /** Ends every watch. */
  close(): void {
    this.closed = true;
    for (const path of [...this.watched.keys()]) this.drop(path);
  }

  /** The directories above, each with the name in it that matters. */
  private steps(): { readonly path: string; readonly step: string }[] {
    const directory = resolve(this.options.directory);
    const root = resolve(this.options.root ?? directory);
    const below = relative(root, directory);
    const inside = below !== '..' && !below.startsWith(`..${sep}`);
    const top = inside ? root : directory;
    const steps = [{ path: dirname(top), step: basename(top) }];
    if (inside && below !== '') {
      let path = root;
      for (const step of below.split(sep)) {
        steps.push({ path, step });
        path = join(path, step);
      }
    }
    return steps;
  }

  /** Whether a new watch was set up. */
  private async watchPath(path: string, step: string | undefined): Promise<boolean> {
    const found = await stat(path, { bigint: true }).catch(() => undefined);
    const identity = found && [found.dev, found.ino, found.birthtimeNs].join(' ');
    if (this.watched.get(path)?.identity === identity) return false;
    this.drop(path);
    if (identity === undefined || this.closed) return false;
    try {
      const watcher = watch(path, { persistent: false }, (_event, name) => {
        if (step === undefined || name === null || name === step) this.options.onChange();
      });
      watcher.on('error', () => {
        // The path is gone or the system has no watches left; the poll goes on, and arms it again.
        this.drop(path);
      });
      this.watched.set(path, { watcher, identity });
      return true;
    } catch (error) {
      if (!this.warned) {
        this.warned = true;
        this.options.logger.warn(
          { err: error, path },
          'changes of the configuration cannot be watched; it is read from time to time instead',
        );
      }
      return false;
    }
  }

  private dropAllBut(wanted: ReadonlyMap<string, unknown>): void {
    for (const path of [...this.watched.keys()]) if (!wanted.has(path)) this.drop(path);
  }

  private drop(path: string): void {
    this.watched.get(path)?.watcher.close();
    this.watched.delete(path);
  }
}
