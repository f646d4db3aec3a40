/**
 * Keeps the configuration of an xDS management server loaded: subscribes to all rules, takes each answer
 * as the whole state of the world, accepts or refuses it, and connects again for ever. What is bad stays
 * out, and the last good snapshot stays. Knows no transport beyond `xds-stream` and no rule.
 */
import type { Logger, Snapshot } from '../model.js';
import type { XdsSettings } from '../settings/settings.js';
import { loadConfig, type Loaded, type LoadOptions } from './load.js';
import { ConfigError, formatProblem, type Problem } from './problems.js';
import { CONFIG_TYPE_URL, readResources, type ResourceReading } from './xds-resource.js';
import { openXdsStream, type XdsStream } from './xds-stream.js';
import { loadXdsWire, type DiscoveryResponse, type XdsNode, type XdsWire } from './xds-wire.js';

/** Problems that are named in one line of the log, and to the server. */
const MAX_NAMED_PROBLEMS = 20;
/** gRPC's code for "what you sent is wrong". */
const INVALID_ARGUMENT = 3;
/**
 * Many servers answer a refusal by sending the same again, at once. From the second time on the refusal
 * is held back: so long, then twice as long, up to the other.
 */
const FIRST_REFUSAL_DELAY_MS = 1000;
const LONGEST_REFUSAL_DELAY_MS = 5000;

export interface XdsConfigSourceOptions {
  readonly settings: XdsSettings;
  readonly load: Pick<LoadOptions, 'mergeDomains' | 'defaultOnStoreError'>;
  /** The wall clock, in ms since the epoch. */
  readonly now: () => number;
  /**
   * A snapshot to use from now on; or the current one again, when after a rejected change the server
   * is back to what it sent before.
   */
  readonly onLoaded: (snapshot: Snapshot, warnings: readonly Problem[]) => void;
  /** The resources are bad; called once for each bad state of them. `current()` stays as it was. */
  readonly onRejected: (error: ConfigError) => void;
  readonly logger: Logger;
}

/** Has a life: `start` once, `stop` once. Never throws, also not when a callback does. */
export class XdsConfigSource {
  private readonly node: XdsNode;
  private wire: XdsWire | undefined;
  private stream: XdsStream | undefined;
  private snapshot: Snapshot | undefined;
  private warnings: readonly Problem[] = [];
  private problems: readonly Problem[] = [];
  private failure: string | undefined;
  /** Of the resources that `snapshot` was made of, and of those that were refused last. */
  private loadedDigest: string | undefined;
  private refusedDigest: string | undefined;
  /** How often in a row the same resources were refused. */
  private refusals = 0;
  /** The version that this stream was told is in force. */
  private streamVersion = '';
  /** Streams in a row that brought nothing. */
  private failures = 0;
  private reconnectTimer: NodeJS.Timeout | undefined;
  private refusalTimer: NodeJS.Timeout | undefined;

  constructor(private readonly options: XdsConfigSourceOptions) {
    const { nodeId, nodeMetadata } = options.settings;
    const fields = Object.entries(nodeMetadata).map(([key, stringValue]) => [key, { stringValue }]);
    this.node = {
      id: nodeId,
      metadata: { fields: Object.fromEntries(fields) as XdsNode['metadata']['fields'] },
      user_agent_name: 'weir',
    };
  }

  /** The last good snapshot; undefined while there has been none. */
  current(): Snapshot | undefined {
    return this.snapshot;
  }

  /** What is wrong with the resources that the server sent last; empty when they are in force. */
  get lastProblems(): readonly Problem[] {
    return this.problems;
  }

  /** What is doubtful about the resources that are in force. */
  get lastWarnings(): readonly Problem[] {
    return this.warnings;
  }

  /** Why the last stream ended, for people; undefined once the server has answered on a new one. */
  get connectionFailure(): string | undefined {
    return this.failure;
  }

  /**
   * Connects, and goes on connecting. Resolves at once: the server may not be there yet, and
   * `onLoaded` tells when its rules are.
   */
  start(): Promise<void> {
    const { server, nodeId, tls } = this.options.settings;
    this.options.logger.info(
      { server, nodeId, tls: tls !== undefined },
      'the configuration comes from an xDS server',
    );
    this.connect();
    return Promise.resolve();
  }

  /** Ends the stream; resolves when nothing of it runs any more. */
  stop(): Promise<void> {
    clearTimeout(this.reconnectTimer);
    clearTimeout(this.refusalTimer);
    this.stream?.close();
    return Promise.resolve();
  }

  private connect(): void {
    this.streamVersion = '';
    try {
      const wire = (this.wire ??= loadXdsWire());
      const stream = openXdsStream(this.options.settings, wire, {
        onResponse: (response) => {
          if (this.failures > 0) this.options.logger.info({}, 'the xDS server answers again');
          this.failures = 0;
          this.failure = undefined;
          this.answer(response, readResources(wire, response.resources));
        },
        onEnd: (reason) => {
          this.lost(reason);
        },
      });
      this.stream = stream;
      // Without a version, whatever was in force: a server that was restarted may count its versions
      // from 1 again, and would keep rules to itself that are new under an old number.
      this.say(stream, '', undefined);
    } catch (error) {
      this.lost(error instanceof Error ? error.message : 'unknown error');
    }
  }

  private lost(reason: string): void {
    clearTimeout(this.refusalTimer);
    this.stream = undefined;
    this.failure = reason;
    const { server, backoffInitialMs, backoffMaxMs } = this.options.settings;
    const longestMs = Math.min(backoffInitialMs * 2 ** this.failures, backoffMaxMs);
    // Half of it by chance, or all instances of a service would come back at once.
    const delayMs = Math.round(longestMs * (0.5 + Math.random() / 2));
    this.failures++;
    this.options.logger.warn(
      { server, reason, retryMs: delayMs, generation: this.snapshot?.generation },
      this.snapshot === undefined
        ? 'no stream to the xDS server, and no configuration so far'
        : 'no stream to the xDS server; the last configuration stays',
    );
    this.reconnectTimer = setTimeout(() => {
      this.connect();
    }, delayMs);
  }

  /** Accepts or refuses an answer, once it has been used or not. */
  private answer(response: DiscoveryResponse, reading: ResourceReading): void {
    // What was held back is about an answer that this one takes the place of.
    clearTimeout(this.refusalTimer);
    if (response.type_url !== '' && response.type_url !== CONFIG_TYPE_URL) {
      this.options.logger.warn(
        { typeUrl: response.type_url },
        'the xDS server sent what was not asked for; it is passed over',
      );
      return;
    }
    const { stream } = this;
    if (stream === undefined) return;
    const refusal = this.use(reading);
    if (refusal === undefined) {
      this.refusedDigest = undefined;
      this.refusals = 0;
      this.streamVersion = response.version_info;
      this.say(stream, response.nonce, undefined);
      return;
    }
    this.refusals = this.refusedDigest === reading.digest ? this.refusals + 1 : 1;
    this.refusedDigest = reading.digest;
    const delayMs = refusalDelayMs(this.refusals);
    if (delayMs === 0) this.say(stream, response.nonce, refusal);
    else {
      this.refusalTimer = setTimeout(() => {
        this.say(stream, response.nonce, refusal);
      }, delayMs);
    }
  }

  private say(stream: XdsStream, nonce: string, refusal: string | undefined): void {
    stream.send({
      version_info: this.streamVersion,
      node: this.node,
      type_url: CONFIG_TYPE_URL,
      response_nonce: nonce,
      ...(refusal === undefined
        ? {}
        : { error_detail: { code: INVALID_ARGUMENT, message: refusal } }),
    });
  }

  /** Puts the resources into force, or says why not. */
  private use(reading: ResourceReading): string | undefined {
    if (reading.digest === this.loadedDigest && this.snapshot !== undefined) {
      if (this.problems.length > 0) {
        this.options.logger.info({}, 'the xDS server is back to the rules that are in force');
        this.accept(this.snapshot, this.warnings);
      }
      return undefined;
    }
    try {
      const { snapshot, warnings } = this.load(reading);
      this.loadedDigest = reading.digest;
      this.logLoaded(snapshot, warnings);
      this.accept(snapshot, warnings);
      return undefined;
    } catch (error) {
      if (!(error instanceof ConfigError)) {
        this.options.logger.error({ err: error }, 'the resources could not be loaded');
        return 'internal error while loading the resources';
      }
      if (reading.digest !== this.refusedDigest) this.reject(error);
      return nameProblems(error.problems).join('\n');
    }
  }

  private load(reading: ResourceReading): Loaded {
    const problems = [...reading.problems];
    try {
      const loaded = loadConfig(reading.files, {
        ...this.options.load,
        generation: (this.snapshot?.generation ?? 0) + 1,
        nowMs: this.options.now(),
      });
      if (problems.length === 0) return loaded;
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      problems.push(...error.problems);
    }
    throw new ConfigError(problems);
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
    const problems = nameProblems(error.problems);
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
      files.length === 0
        ? 'the xDS server says that there are no rules'
        : 'the configuration is loaded',
    );
    if (warnings.length === 0) return;
    const shown = nameProblems(warnings);
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

/** How long to hold back the refusal of what has been refused so often in a row. */
function refusalDelayMs(refusals: number): number {
  if (refusals <= 1) return 0;
  return Math.min(FIRST_REFUSAL_DELAY_MS * 2 ** (refusals - 2), LONGEST_REFUSAL_DELAY_MS);
}

function nameProblems(problems: readonly Problem[]): string[] {
  const named = problems.slice(0, MAX_NAMED_PROBLEMS).map(formatProblem);
  const more = problems.length - named.length;
  return more === 0 ? named : [...named, `and ${String(more)} more`];
}
