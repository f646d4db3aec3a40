/**
 * Keeps the configuration of an xDS management server loaded: subscribes to all rules, takes each answer
 * as the whole state of the world, accepts or refuses it, and connects again for ever. What is bad stays
 * out, and the last good snapshot stays. Knows no transport beyond `xds-stream` and no rule.
 */
import type { Snapshot } from '../model.js';
import type { XdsSettings } from '../settings/settings.js';
import { ConfigInForce, type ConfigUser } from './in-force.js';
import type { LoadOptions } from './load.js';
import { ConfigError, nameProblems, type Problem } from './problems.js';
import { areLarge, loadResources, loadResourcesAside, type LoadedResources } from './xds-load.js';
import { CONFIG_TYPE_URL } from './xds-resource.js';
import { openXdsStream, type XdsStream } from './xds-stream.js';
import { loadXdsWire, type DiscoveryResponse, type XdsNode, type XdsWire } from './xds-wire.js';

/** gRPC's code for "what you sent is wrong". */
const INVALID_ARGUMENT = 3;
/**
 * Many servers answer a refusal by sending the same again, at once. From the second time on the refusal
 * is held back: so long, then twice as long, up to the other.
 */
const FIRST_REFUSAL_DELAY_MS = 1000;
const LONGEST_REFUSAL_DELAY_MS = 5000;

export interface XdsConfigSourceOptions extends ConfigUser {
  readonly settings: XdsSettings;
  readonly load: Pick<LoadOptions, 'mergeDomains' | 'defaultOnStoreError'>;
  /** The wall clock, in ms since the epoch. */
  readonly now: () => number;
  /** The file that a thread runs to read a large configuration; where this code is not compiled. */
  readonly thread?: URL;
}

/** A stream, and the version that it was told is in force. */
interface Session {
  readonly stream: XdsStream;
  version: string;
}

/** An answer that is being loaded. */
interface Loading {
  readonly end: AbortController;
  readonly over: Promise<unknown>;
}

/** Has a life: `start` once, `stop` once. Never throws, also not when a callback does. */
export class XdsConfigSource {
  private readonly node: XdsNode;
  private readonly inForce: ConfigInForce;
  private wire: XdsWire | undefined;
  private session: Session | undefined;
  private failure: string | undefined;
  /** The newest answer, while it is loaded beside everything else. */
  private loading: Loading | undefined;
  /** How often in a row the same resources were refused, and what was said of them. */
  private refusals = 0;
  private refusal = '';
  /** Streams in a row that brought nothing. */
  private failures = 0;
  private reconnectTimer: NodeJS.Timeout | undefined;
  private refusalTimer: NodeJS.Timeout | undefined;

  constructor(private readonly options: XdsConfigSourceOptions) {
    this.inForce = new ConfigInForce(options);
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
    return this.inForce.snapshot;
  }

  /** What is wrong with the resources that the server sent last; empty when they are in force. */
  get lastProblems(): readonly Problem[] {
    return this.inForce.problems;
  }

  /** What is doubtful about the resources that are in force. */
  get lastWarnings(): readonly Problem[] {
    return this.inForce.warnings;
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
  async stop(): Promise<void> {
    clearTimeout(this.reconnectTimer);
    clearTimeout(this.refusalTimer);
    this.session?.stream.close();
    this.loading?.end.abort();
    await this.loading?.over;
  }

  private connect(): void {
    try {
      const wire = (this.wire ??= loadXdsWire());
      const stream = openXdsStream(this.options.settings, wire, {
        onResponse: (response) => {
          if (this.failures > 0) this.options.logger.info({}, 'the xDS server answers again');
          this.failures = 0;
          this.failure = undefined;
          this.take(wire, session, response);
        },
        onEnd: (reason) => {
          this.lost(reason);
        },
      });
      const session = { stream, version: '' };
      this.session = session;
      // Without a version, whatever was in force: a server that was restarted may count its versions
      // from 1 again, and would keep rules to itself that are new under an old number.
      this.say(session, '', undefined);
    } catch (error) {
      this.lost(error instanceof Error ? error.message : 'unknown error');
    }
  }

  private lost(reason: string): void {
    clearTimeout(this.refusalTimer);
    this.session = undefined;
    // What is being loaded goes on: the server has said so, and may be away for long.
    this.failure = reason;
    const { snapshot } = this.inForce;
    const { server, backoffInitialMs, backoffMaxMs } = this.options.settings;
    const longestMs = Math.min(backoffInitialMs * 2 ** this.failures, backoffMaxMs);
    // Half of it by chance, or all instances of a service would come back at once.
    const delayMs = Math.round(longestMs * (0.5 + Math.random() / 2));
    this.failures++;
    this.options.logger.warn(
      { server, reason, retryMs: delayMs, generation: snapshot?.generation },
      snapshot === undefined
        ? 'no stream to the xDS server, and no configuration so far'
        : 'no stream to the xDS server; the last configuration stays',
    );
    this.reconnectTimer = setTimeout(() => {
      this.connect();
    }, delayMs);
  }

  /** Loads an answer, in place of any that came before it and is not loaded yet: the newest counts. */
  private take(wire: XdsWire, session: Session, response: DiscoveryResponse): void {
    const { type_url: typeUrl, resources } = response;
    if (typeUrl !== '' && typeUrl !== CONFIG_TYPE_URL) {
      this.options.logger.warn(
        { typeUrl },
        'the xDS server sent what was not asked for; it is passed over',
      );
      return;
    }
    // What was held back is about an answer that this one takes the place of.
    clearTimeout(this.refusalTimer);
    this.loading?.end.abort();
    const { nextGeneration: generation, knownDigests } = this.inForce;
    const options = { ...this.options.load, generation, nowMs: this.options.now() };
    if (!areLarge(resources)) {
      this.answer(session, response, loadResources(wire, resources, options, knownDigests));
      return;
    }
    const end = new AbortController();
    const aside = { signal: end.signal, thread: this.options.thread };
    const load = loadResourcesAside(wire, resources, options, knownDigests, aside).then(
      (result) => {
        if (!end.signal.aborted) this.answer(session, response, result);
      },
      () => undefined, // only an end from here makes it fail, and of that nobody need be told
    );
    // Threads that were ended take a moment to go.
    const before = this.loading?.over;
    this.loading = { end, over: load.then(() => before) };
  }

  /** Accepts or refuses an answer, once it has been used or not. */
  private answer(session: Session, response: DiscoveryResponse, result: LoadedResources): void {
    const refusal = this.use(result);
    if (refusal === undefined) {
      session.version = response.version_info;
      this.say(session, response.nonce, undefined);
      return;
    }
    const delayMs = refusalDelayMs(this.refusals);
    if (delayMs === 0) this.say(session, response.nonce, refusal);
    else if (session === this.session) {
      this.refusalTimer = setTimeout(() => {
        this.say(session, response.nonce, refusal);
      }, delayMs);
    }
  }

  /** Puts the resources into force, or says why not. */
  private use({ digest, loaded, error }: LoadedResources): string | undefined {
    const { inForce } = this;
    if (loaded !== undefined) {
      const none = 'the xDS server says that there are no rules';
      inForce.load(digest, loaded, loaded.snapshot.files.length === 0 ? none : undefined);
      return undefined;
    }
    if (error === undefined && inForce.isLoaded(digest)) {
      inForce.restore('the xDS server is back to the rules that are in force');
      return undefined;
    }
    if (inForce.isRefused(digest)) this.refusals++;
    else {
      inForce.refuse(digest, error);
      this.refusals = 1;
      this.refusal =
        error instanceof ConfigError
          ? nameProblems(error.problems).join('\n')
          : 'internal error while loading the resources';
    }
    return this.refusal;
  }

  /** To a stream that has ended nothing is said. */
  private say(session: Session, nonce: string, refusal: string | undefined): void {
    session.stream.send({
      version_info: session.version,
      node: this.node,
      type_url: CONFIG_TYPE_URL,
      response_nonce: nonce,
      ...(refusal === undefined
        ? {}
        : { error_detail: { code: INVALID_ARGUMENT, message: refusal } }),
    });
  }
}

/** How long to hold back the refusal of what has been refused so often in a row. */
function refusalDelayMs(refusals: number): number {
  if (refusals <= 1) return 0;
  return Math.min(FIRST_REFUSAL_DELAY_MS * 2 ** (refusals - 2), LONGEST_REFUSAL_DELAY_MS);
}
