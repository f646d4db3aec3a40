/**
 * Keeps the configuration of a directory loaded: reads it once, then whenever something changes, and
 * hands over snapshots. What is bad is reported once, and the last good snapshot stays.
 */
import type { Logger, Snapshot } from '../model.js';
import {
  loadReading,
  loadReadingAside,
  readConfigDir,
  type DirectoryReading,
} from './directory.js';
import type { LoadOptions } from './load.js';
import { ConfigError, formatProblem, type Problem } from './problems.js';
import { WatchedPaths } from './watched-paths.js';

/** Changes come in bursts; after the last one it waits so long before it reads. */
const QUIET_MS = 75;
/** But while they keep coming, it reads at least so often. */
const MAX_WAIT_MS = 1000;
const DEFAULT_POLL_INTERVAL_MS = 10_000;
/** Problems that are named in one line of the log. */
const MAX_LOGGED_PROBLEMS = 20;

export interface ConfigWatcherOptions {
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
  /**
   * A snapshot to use from now on; or the current one again, when after a rejected change the files
   * are back to what they were.
   */
  readonly onLoaded: (snapshot: Snapshot, warnings: readonly Problem[]) => void;
  /** The files are bad; called once for each bad state of them. `current()` stays as it was. */
  readonly onRejected: (error: ConfigError) => void;
  readonly logger: Logger;
}

/** Has a life: `start` once, `stop` once. Never throws, also not when a callback does. */
export class ConfigWatcher {
  private snapshot: Snapshot | undefined;
  private warnings: readonly Problem[] = [];
  private problems: readonly Problem[] = [];
  /** Of the files that `snapshot` was made of, and of those that were looked at last. */
  private loadedDigest: string | undefined;
  private seenDigest: string | undefined;
  private readonly paths: WatchedPaths;
  private quietTimer: NodeJS.Timeout | undefined;
  private waitingSinceMs: number | undefined;
  private pollTimer: NodeJS.Timeout | undefined;
  private running: Promise<void> | undefined;
  private again = false;
  private stopped = false;

  constructor(private readonly options: ConfigWatcherOptions) {
    const { directory, root, watchRoot, logger } = options;
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
    return this.snapshot;
  }

  /** What is wrong with the files as they are; empty when they are in force. */
  get lastProblems(): readonly Problem[] {
    return this.problems;
  }

  /** What is doubtful about the files that are in force. */
  get lastWarnings(): readonly Problem[] {
    return this.warnings;
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
    this.stopped = true;
    clearInterval(this.pollTimer);
    clearTimeout(this.quietTimer);
    this.paths.close();
    await this.running;
  }

  /** Something may have changed: waits for quiet, then looks. */
  private changed(): void {
    if (this.stopped) return;
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
    if (!this.again || this.stopped) return;
    this.again = false;
    await this.lookUntilCalm();
  }

  private async look(): Promise<void> {
    // Watched before it is read, so that nothing that changes in between is missed.
    await this.paths.arm([]);
    const reading = await readConfigDir(this.options.directory);
    if (await this.paths.arm(reading.files.map((file) => file.name))) this.changed();
    if (this.stopped || reading.digest === this.seenDigest) return;
    this.seenDigest = reading.digest;
    if (reading.digest === this.loadedDigest && this.snapshot !== undefined) {
      this.options.logger.info({}, 'the configuration files are back to what is in force');
      this.accept(this.snapshot, this.warnings);
    } else await this.load(reading);
  }

  private async load(reading: DirectoryReading): Promise<void> {
    try {
      if (this.snapshot !== undefined && reading.files.length === 0) throw this.emptied(reading);
      const options = {
        ...this.options.load,
        generation: (this.snapshot?.generation ?? 0) + 1,
        nowMs: this.options.now(),
      };
      // At the start there is nothing that a pause could hold up.
      const { snapshot, warnings } =
        this.snapshot === undefined
          ? loadReading(reading, options)
          : await loadReadingAside(reading, options);
      if (this.stopped) return;
      this.loadedDigest = reading.digest;
      this.logLoaded(snapshot, warnings);
      this.accept(snapshot, warnings);
    } catch (error) {
      if (error instanceof ConfigError) this.reject(error);
      else throw error;
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

  private accept(snapshot: Snapshot, warnings: readonly Problem[]): void {
    this.snapshot = snapshot;
    this.warnings = warnings;
    this.problems = [];
    this.call(() => {
      this.options.onLoaded(snapshot, warnings);
    });
  }

  private reject(error: ConfigError): void {
    this.problems = error.problems;
    const kept = this.snapshot === undefined ? 'there is none to use' : 'the last good one stays';
    const problems = error.problems.slice(0, MAX_LOGGED_PROBLEMS).map(formatProblem);
    this.options.logger.error(
      { problems, problemCount: error.problems.length, generation: this.snapshot?.generation },
      `the configuration is rejected, ${kept}: ${problems[0] ?? ''}`,
    );
    this.call(() => {
      this.options.onRejected(error);
    });
  }

  private logLoaded(snapshot: Snapshot, warnings: readonly Problem[]): void {
    const { generation, files, rules, domains } = snapshot;
    this.options.logger.info(
      { generation, files, rules: rules.length, domains: [...domains] },
      'the configuration is loaded',
    );
    if (warnings.length === 0) return;
    const shown = warnings.slice(0, MAX_LOGGED_PROBLEMS).map(formatProblem);
    this.options.logger.warn(
      { warnings: shown, warningCount: warnings.length },
      `the configuration is doubtful: ${shown[0] ?? ''}`,
    );
  }

  private call(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      this.options.logger.error({ err: error }, 'what uses the configuration failed to take it');
    }
  }
}
