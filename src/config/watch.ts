/**
 * Keeps the configuration of a directory loaded: reads it once, then whenever something changes, and
 * hands over snapshots. What is bad is reported once, and the last good snapshot stays.
 */
import type { Snapshot } from '../model.js';
import {
  loadReading,
  loadReadingAside,
  readConfigDir,
  type DirectoryReading,
} from './directory.js';
import { ConfigInForce, type ConfigUser } from './in-force.js';
import type { LoadOptions } from './load.js';
import { ConfigError, type Problem } from './problems.js';
import { WatchedPaths } from './watched-paths.js';

/** Changes come in bursts; after the last one it waits so long before it reads. */
const QUIET_MS = 75;
/** But while they keep coming, it reads at least so often. */
const MAX_WAIT_MS = 1000;
const DEFAULT_POLL_INTERVAL_MS = 10_000;

export interface ConfigWatcherOptions extends ConfigUser {
  /** The directory with the files, complete: root, sub-directory and app directory. */
  readonly directory: string;
  /** RUNTIME_ROOT, which may be a symlink that is swapped. */
  readonly root: string;
  /** Whether a swap of `root` is looked out for; if not, only the poll notices it. */
  readonly watchRoot: boolean;
  /** How often it is read without a notice of a change; default 10 s. */
  readonly pollIntervalMs?: number;
  readonly load: Pick<LoadOptions, 'mergeDomains' | 'defaultOnStoreError'>;
  /** The wall clock, in ms since the epoch. */
  readonly now: () => number;
  /** The file that a thread runs to read a large configuration; where this code is not compiled. */
  readonly thread?: URL;
}

/** Has a life: `start` once, `stop` once. Never throws, also not when a callback does. */
export class ConfigWatcher {
  private readonly inForce: ConfigInForce;
  private readonly paths: WatchedPaths;
  private quietTimer: NodeJS.Timeout | undefined;
  private waitingSinceMs: number | undefined;
  private pollTimer: NodeJS.Timeout | undefined;
  private running: Promise<void> | undefined;
  private again = false;
  private readonly end = new AbortController();

  constructor(private readonly options: ConfigWatcherOptions) {
    const { directory, root, watchRoot, logger } = options;
    this.inForce = new ConfigInForce(options);
    this.paths = new WatchedPaths({
      directory,
      root: watchRoot ? root : undefined,
      onChange: () => {
        this.changed();
      },
      logger,
    });
  }

  /** The last good snapshot; undefined while there has been none. */
  current(): Snapshot | undefined {
    return this.inForce.snapshot;
  }

  /** What is wrong with the files as they are; empty when they are in force. */
  get lastProblems(): readonly Problem[] {
    return this.inForce.problems;
  }

  /** What is doubtful about the files that are in force. */
  get lastWarnings(): readonly Problem[] {
    return this.inForce.warnings;
  }

  /** Loads once, then watches. Resolves when the first load has been accepted or rejected. */
  async start(): Promise<void> {
    const intervalMs = this.options.pollIntervalMs ?? DEFAULT_POLL_INTERVAL_MS;
    this.pollTimer = setInterval(() => {
      void this.check();
    }, intervalMs);
    this.pollTimer.unref();
    await this.check();
  }

  /** Ends watching; resolves when nothing of it runs any more. */
  async stop(): Promise<void> {
    this.end.abort();
    clearInterval(this.pollTimer);
    clearTimeout(this.quietTimer);
    this.paths.close();
    await this.running;
  }

  /** Something may have changed: waits for quiet, then looks. */
  private changed(): void {
    if (this.end.signal.aborted) return;
    const nowMs = performance.now();
    this.waitingSinceMs ??= nowMs;
    const leftMs = this.waitingSinceMs + MAX_WAIT_MS - nowMs;
    clearTimeout(this.quietTimer);
    this.quietTimer = setTimeout(
      () => {
        this.waitingSinceMs = undefined;
        void this.check();
      },
      Math.max(0, Math.min(QUIET_MS, leftMs)),
    );
    this.quietTimer.unref();
  }

  /** Looks at the files, one look at a time; a call during a look makes it look once more. */
  private check(): Promise<void> {
    if (this.running !== undefined) {
      this.again = true;
      return this.running;
    }
    this.running = this.lookUntilCalm().finally(() => {
      this.running = undefined;
    });
    return this.running;
  }

  private async lookUntilCalm(): Promise<void> {
    try {
      await this.look();
    } catch (error) {
      this.options.logger.error({ err: error }, 'the configuration could not be looked at');
    }
    if (!this.again || this.end.signal.aborted) return;
    this.again = false;
    await this.lookUntilCalm();
  }

  private async look(): Promise<void> {
    // Watched before it is read, so that nothing that changes in between is missed.
    await this.paths.arm([]);
    const reading = await readConfigDir(this.options.directory);
    if (await this.paths.arm(reading.files.map((file) => file.name))) this.changed();
    if (this.end.signal.aborted || this.inForce.isRefused(reading.digest)) return;
    if (this.inForce.isLoaded(reading.digest)) {
      this.inForce.restore('the configuration files are back to what is in force');
    } else await this.load(reading);
  }

  private async load(reading: DirectoryReading): Promise<void> {
    const { snapshot, nextGeneration } = this.inForce;
    const { thread } = this.options;
    try {
      if (snapshot !== undefined && reading.files.length === 0) throw this.emptied(reading);
      const options = {
        ...this.options.load,
        generation: nextGeneration,
        nowMs: this.options.now(),
      };
      // At the start there is nothing that a pause could hold up.
      const loaded =
        snapshot === undefined
          ? loadReading(reading, options)
          : await loadReadingAside(reading, options, { signal: this.end.signal, thread });
      if (!this.end.signal.aborted) this.inForce.load(reading.digest, loaded);
    } catch (error) {
      if (!this.end.signal.aborted) this.inForce.refuse(reading.digest, error);
    }
  }

  /** A service that has rules does not drop them because all files are gone: that is an accident. */
  private emptied(reading: DirectoryReading): ConfigError {
    if (reading.problems.length > 0) return new ConfigError(reading.problems);
    const message = 'all configuration files are gone';
    return new ConfigError([
      { file: this.options.directory, line: 1, column: 1, path: '', message },
    ]);
  }
}
