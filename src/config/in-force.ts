/**
 * The configuration in force: the snapshot that requests use, what is doubtful about it, and what is
 * wrong with what was refused after it. Both sources keep one; it knows neither files nor a server.
 */
import type { Logger, Snapshot } from '../model.js';
import type { Loaded } from './load.js';
import { ConfigError, nameFirst, nameProblems, type Problem } from './problems.js';

/** Who is told, and where it is logged. */
export interface ConfigUser {
  /**
   * A snapshot to use from now on; or the current one again, when what was refused in between has been
   * taken back.
   */
  readonly onLoaded: (snapshot: Snapshot, warnings: readonly Problem[]) => void;
  /** A configuration is bad; called once for each bad state of it. What is in force stays. */
  readonly onRejected: (error: ConfigError) => void;
  readonly logger: Logger;
}

/** Configurations are told apart by digests: same digest, same configuration. Never throws. */
export class ConfigInForce {
  private current: Snapshot | undefined;
  private doubts: readonly Problem[] = [];
  private wrong: readonly Problem[] = [];
  private loadedDigest: string | undefined;
  /** Of what was refused since, if anything was. */
  private refusedDigest: string | undefined;

  constructor(private readonly user: ConfigUser) {}

  /** The last good snapshot; undefined while there has been none. */
  get snapshot(): Snapshot | undefined {
    return this.current;
  }

  /** What is doubtful about what is in force. */
  get warnings(): readonly Problem[] {
    return this.doubts;
  }

  /** What is wrong with what was refused last; empty when the newest configuration is in force. */
  get problems(): readonly Problem[] {
    return this.wrong;
  }

  /** The number of the snapshot that is loaded next; loads that succeed count from 1. */
  get nextGeneration(): number {
    return (this.current?.generation ?? 0) + 1;
  }

  isLoaded(digest: string): boolean {
    return this.loadedDigest === digest;
  }

  /** Whether it is the one that was refused last, with nothing accepted since. */
  isRefused(digest: string): boolean {
    return this.refusedDigest === digest;
  }

  /** Of what need not be loaded: what is in force, and what was refused last. */
  get knownDigests(): readonly string[] {
    return [this.loadedDigest, this.refusedDigest].filter((digest) => digest !== undefined);
  }

  /** Puts a new snapshot into force; `message` is what the log says of it. */
  load(digest: string, loaded: Loaded, message = 'the configuration is loaded'): void {
    this.loadedDigest = digest;
    this.current = loaded.snapshot;
    this.doubts = loaded.warnings;
    this.logLoaded(loaded, message);
    this.tellLoaded();
  }

  /** The newest configuration is the one in force; says so, with `message`, if one was refused. */
  restore(message: string): void {
    this.refusedDigest = undefined;
    if (this.wrong.length === 0) return;
    this.user.logger.info({}, message);
    this.tellLoaded();
  }

  /** What was wrong when it was to be loaded. Anything but a ConfigError is a fault of ours. */
  refuse(digest: string, error: unknown): void {
    const isNew = !this.isRefused(digest);
    this.refusedDigest = digest;
    if (!(error instanceof ConfigError)) {
      this.user.logger.error({ err: error }, 'the configuration could not be loaded');
    } else if (isNew) {
      this.wrong = error.problems;
      this.logRefused(error);
      this.tell(() => {
        this.user.onRejected(error);
      });
    }
  }

  private logLoaded({ snapshot, warnings }: Loaded, message: string): void {
    const { generation, files, rules, domains } = snapshot;
    this.user.logger.info(
      { generation, files: names(files), rules: rules.length, domains: names([...domains]) },
      message,
    );
    if (warnings.length === 0) return;
    const named = nameProblems(warnings);
    this.user.logger.warn(
      { warnings: named, warningCount: warnings.length },
      `the configuration is doubtful: ${named[0] ?? ''}`,
    );
  }

  private logRefused({ problems }: ConfigError): void {
    const kept = this.current === undefined ? 'there is none to use' : 'the last good one stays';
    const named = nameProblems(problems);
    this.user.logger.error(
      { problems: named, problemCount: problems.length, generation: this.current?.generation },
      `the configuration is rejected, ${kept}: ${named[0] ?? ''}`,
    );
  }

  private tellLoaded(): void {
    const { current, doubts } = this;
    this.wrong = [];
    this.refusedDigest = undefined;
    if (current === undefined) return;
    this.tell(() => {
      this.user.onLoaded(current, doubts);
    });
  }

  /** What uses the configuration may throw; that must not end who keeps it loaded. */
  private tell(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      this.user.logger.error({ err: error }, 'what uses the configuration failed to take it');
    }
  }
}

function names(list: readonly string[]): string[] {
  return nameFirst(list, (name) => name);
}
