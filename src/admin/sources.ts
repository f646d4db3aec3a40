/**
 * What the admin server needs of the rest of the service, as one object of small things. Whoever builds
 * the service fills it in; nothing here knows where an answer comes from.
 */
import type { Decision, Descriptor, FailureKind, Logger, Snapshot } from '../model.js';
import type { RecentReader } from './recent-decisions.js';
import type { RecentScope } from './recent-report.js';

/** What is known of a caller, as the native API takes it. An empty or absent field is not known. */
export interface Identity {
  readonly endpoint?: string;
  readonly user?: string;
  readonly ip?: string;
  readonly api_key?: string;
  readonly attributes?: Readonly<Record<string, string>>;
}

/** Where counters live, and how that is doing. */
export interface StoreState {
  /** `memory`, or where Redis is, without credentials. */
  readonly name: string;
  readonly kind: string;
  readonly breakerOpen: boolean;
  readonly lastFailure: { readonly kind: FailureKind; readonly message: string } | undefined;
  /** Redis's clock minus ours; undefined when not known. */
  readonly clockSkewSeconds?: number | undefined;
  /** Further facts by name, such as the version or the number of connections. */
  readonly facts?: Readonly<Record<string, string | number>>;
}

/** What became of the last attempt to load the configuration. */
export interface ReloadState {
  /** What is wrong with the files as they are, a line each; empty when they are in force. */
  readonly problems: readonly string[];
  /** What is doubtful about the configuration that is in force. */
  readonly warnings: readonly string[];
}

export interface AdminSources {
  readonly version: string;
  readonly instanceId: string;
  /** ms since the epoch. */
  readonly startedAtMs: number;
  /** ms since the epoch; the clock of the whole admin server. */
  readonly nowMs: () => number;
  /**
   * The last minute of all processes that serve together, as far as `scope` asks for it; values are
   * those of this moment.
   */
  recent(scope: RecentScope): Promise<RecentReader>;
  /** The configuration in force. */
  snapshot(): Snapshot | undefined;
  reload(): ReloadState;
  stores(): readonly StoreState[];
  /** Live instances, this one included. */
  instances(): number;
  /**
   * Decides as `hits` hits of these descriptors would be decided now, and takes nothing. Rejects while
   * no configuration is loaded.
   */
  look(domain: string, descriptors: readonly Descriptor[], hits: number): Promise<Decision>;
  /** The descriptors that the native API makes of an identity. Throws RequestError. */
  describe(identity: Identity): readonly Descriptor[];
  /** Forgets counters, wherever they are remembered; resolves to how many there were. */
  reset(keys: readonly string[]): Promise<number>;
  /** The settings that were read, by name, without secrets. */
  settings(): Readonly<Record<string, string>>;
  /** Everything that is counted, as plain text, a line each. */
  stats(): Promise<string>;
  readonly logger: Logger;
}
