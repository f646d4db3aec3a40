/**
 * Fills in what the admin server needs, out of the parts of the service. Knows how they are asked, not how
 * they work.
 */
import type { AdminSources, ReloadState, StoreState } from './sources.js';
import type { RecentDecisions, RecentReader } from './recent-decisions.js';
import {
  mergeReports,
  reportRecent,
  type RecentReport,
  type RecentScope,
} from './recent-report.js';
import { formatProblem, type Problem } from '../config/problems.js';
import type { Limiter } from '../limiter.js';
import { textOf } from '../metrics/exposition.js';
import type { StoreFacts } from '../metrics/metrics.js';
import type { Decision, Logger, Snapshot } from '../model.js';
import type { Settings } from '../settings/settings.js';
import { VARIABLES, type Variable } from '../settings/table.js';
import type { Storage } from '../storage.js';
import type { TransportObserver } from '../transport/front-door.js';
import { toDecisionRequest } from '../transport/native.js';

/** A person waits longer than a proxy. */
const LOOK_PATIENCE_MS = 1000;

export interface AdminParts {
  readonly settings: Settings;
  /** The environment that the settings were read from. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly version: string;
  readonly instanceId: string;
  readonly limiter: Limiter;
  readonly storage: Pick<Storage, 'kind' | 'description' | 'states' | 'reset' | 'connected'>;
  readonly config: {
    current(): Snapshot | undefined;
    readonly lastProblems: readonly Problem[];
    readonly lastWarnings: readonly Problem[];
  };
  readonly recent: RecentDecisions;
  /** What the other processes say that serve together with this one; undefined when it is alone. */
  readonly others?: ((scope: RecentScope) => Promise<readonly RecentReport[]>) | undefined;
  readonly observer: Pick<TransportObserver, 'exposition'> & { statsd(): string };
  readonly instances: () => number;
  readonly storeFacts: () => StoreFacts;
  readonly logger: Logger;
}

export function createAdminSources(parts: AdminParts): AdminSources {
  const { settings, storage, config } = parts;
  return {
    version: parts.version,
    instanceId: parts.instanceId,
    startedAtMs: Date.now(),
    nowMs: () => Date.now(),
    recent: (scope) => gatherRecent(parts, scope),
    snapshot: () => config.current(),
    reload: (): ReloadState => ({
      problems: config.lastProblems.map(formatProblem),
      warnings: config.lastWarnings.map(formatProblem),
    }),
    stores: () => storeStates(parts),
    instances: parts.instances,
    look: (domain, descriptors, hits) =>
      new Promise<Decision>((resolve, reject) => {
        const deadlineMs = performance.now() + LOOK_PATIENCE_MS;
        try {
          parts.limiter.decide({ domain, descriptors, hits, mode: 'peek' }, deadlineMs, resolve);
        } catch (error) {
          reject(error instanceof Error ? error : new Error(String(error)));
        }
      }),
    describe: ({ endpoint = '', user = '', ip = '', api_key = '', attributes = {} }) => {
      const known = new Map(Object.entries(attributes));
      const descriptor = { endpoint, user, ip, apiKey: api_key, attributes: known };
      const wire = { domain: '', descriptor, hits: undefined, mode: 0 };
      return toDecisionRequest(wire, settings.limits.ipv6Prefix).descriptors;
    },
    reset: async (keys) => {
      const existed = await storage.reset(keys);
      parts.recent.forget(keys);
      return existed;
    },
    settings: () => shownSettings(parts.env),
    stats: async () => {
      const flat = textOf(await parts.observer.exposition(undefined))
        .split('\n')
        .filter((line) => line !== '' && !line.startsWith('#'))
        .map((line) => `${line.replace(/ (\S+)$/, ': $1')}\n`)
        .join('');
      return parts.observer.statsd() + flat;
    },
    logger: parts.logger,
  };
}

/**
 * Passes on to the observer what the front doors say, and lets `recent` see the decisions. Where this
 * process is one of several, `crew` answers scrapes for all of them.
 */
export function watchedBy(
  observer: TransportObserver,
  recent: Pick<RecentDecisions, 'observe'>,
  crew?: Pick<TransportObserver, 'exposition'>,
): TransportObserver {
  return {
    observeDecision: (decision) => {
      observer.observeDecision(decision);
      recent.observe(decision);
    },
    observeRequest: (method, seconds) => observer.observeRequest(method, seconds),
    invalidRequest: () => observer.invalidRequest(),
    deadlineExceeded: () => observer.deadlineExceeded(),
    exposition: (accept) => (crew ?? observer).exposition(accept),
  };
}

async function gatherRecent(parts: AdminParts, scope: RecentScope): Promise<RecentReader> {
  const { recent, others, config } = parts;
  if (others === undefined) return recent;
  const reports = await others(scope);
  return mergeReports([reportRecent(recent, config.current()?.rules ?? [], scope), ...reports]);
}

function storeStates({ storage, storeFacts }: AdminParts): readonly StoreState[] {
  const states = storage.states();
  const { kind, description } = storage;
  if (states.length === 0) {
    return [{ name: description, kind, breakerOpen: false, lastFailure: undefined }];
  }
  const { clockSkewSeconds, evictionPolicyUnsafe, evictedKeys } = storeFacts();
  return states.map((state) => ({
    name: states.length === 1 ? description : `${description}: ${state.name}`,
    kind,
    breakerOpen: state.breakerOpen,
    lastFailure: state.lastFailure,
    clockSkewSeconds,
    facts: {
      Connection: storage.connected() ? 'open' : 'not open',
      ...(evictionPolicyUnsafe && { Eviction: 'its maxmemory-policy may drop counters' }),
      ...(evictedKeys > 0 && { 'Keys dropped': evictedKeys }),
    },
  }));
}

/** What the environment sets; what is secret only as set. */
function shownSettings(env: AdminParts['env']): Readonly<Record<string, string>> {
  const shown: Record<string, string> = {};
  for (const [name, variable] of Object.entries<Variable>(VARIABLES)) {
    const value = env[name];
    if (value === undefined || value === '') continue;
    const note = variable.use === 'ignored' ? ' (not used)' : '';
    shown[name] = variable.secret ? '(set, not shown)' : value + note;
  }
  return shown;
}
