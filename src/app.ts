/**
 * Builds the service in the order of a request's path, starts it, and stops it in reverse. The only
 * place that knows every stage; decides nothing itself.
 */
import { hostname } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { createAdminSources, watchedBy } from './admin/service-sources.js';
import { RecentDecisions } from './admin/recent-decisions.js';
import { reportRecent } from './admin/recent-report.js';
import { createAdminServer } from './admin/server.js';
import { formatProblem } from './config/problems.js';
import { ConfigWatcher } from './config/watch.js';
import { XdsConfigSource } from './config/xds.js';
import type { XdsConfigSourceOptions } from './config/xds.js';
import { createLimiter } from './limiter.js';
import type { Log } from './log/log.js';
import { Metrics, NO_METRICS } from './metrics/metrics.js';
import type { Snapshot } from './model.js';
import { RefusalLog } from './log/refusal-log.js';
import { compileRules } from './rules/rules.js';
import { ServiceHealth } from './transport/service-health.js';
import type { Settings } from './settings/settings.js';
import { createStorage } from './storage.js';
import type { Storage } from './storage.js';
import { CounterKeys } from './store/keys.js';
import { SharedActiveKeys } from './store/shared-active-keys.js';
import { createTracer, type Tracer } from './log/tracing.js';
import type { EnvoyOptions } from './transport/envoy.js';
import { GrpcServer } from './transport/grpc.js';
import type { GrpcDependencies } from './transport/grpc.js';
import { HttpServer, MetricsServer } from './transport/http.js';
import type { HttpDependencies } from './transport/http.js';
import type { Crew } from './workers/crew.js';
import type { TlsFiles } from './transport/tls.js';

/** How long the first connection to Redis may hold up the start. */
const CONNECT_PATIENCE_MS = 500;
/** What HTTP answers takes milliseconds: when gRPC has drained, stragglers are not waited for long. */
const HTTP_STOP_MS = 2000;
/** How often conditions of health that nobody announces are looked at. */
const HEALTH_INTERVAL_MS = 1000;

/** A service that is built; `start` once, `stop` once or more. */
export interface App {
  /** Resolves when everything listens. Rejects when a port cannot be had. */
  start(): Promise<void>;
  /**
   * Drains and ends everything; a second call hurries the first. Resolves when all is closed. `atOnce`
   * leaves out DRAIN_DELAY, when nobody balances load over this process.
   */
  stop(atOnce?: boolean): Promise<void>;
  /** What is wrong with the configuration as it is now, a line each; empty when it is in force. */
  readonly configProblems: readonly string[];
}

/**
 * Starts nothing. Throws when certificate files cannot be used. `crew`: the other workers, where this
 * process is one of several (WORKERS).
 */
export function createApp(settings: Settings, version: string, log: Log, crew?: Crew): App {
  const nowMs = (): number => performance.now();
  const nowUs = (): number => Date.now() * 1000;
  const metrics = new Metrics({
    version,
    store: settings.backend,
    nearLimitRatio: settings.limits.nearLimitRatio,
    detailedMaxSeries: settings.metrics.detailedMaxSeries,
    alsoMilliseconds: settings.metrics.alsoMilliseconds,
    compat: settings.metrics.compat ? { shadowMode: settings.limits.shadowMode } : undefined,
    nowMs: () => Date.now(),
  });
  const storage = createStorage({ settings, observer: metrics, logger: log, nowMs, nowUs });
  const health = new ServiceHealth({
    loaded: () => config.current() !== undefined,
    mayLackConfiguration: settings.config.forceStartWithoutInitialConfig,
    needsDomain: settings.config.healthyWithAtLeastOneConfigLoaded,
    domains: () => config.current()?.domains.size ?? 0,
    needsConnection: settings.redisHealthCheckActiveConnection,
    connected: () => storage.connected(),
  });
  const config = createConfigSource(settings, {
    load: {
      mergeDomains: settings.config.mergeDomains,
      defaultOnStoreError: settings.limits.defaultOnStoreError,
    },
    now: () => Date.now(),
    onLoaded: (snapshot: Snapshot) => {
      storage.forgetDenials();
      metrics.configLoaded(snapshot);
      refusals.clear();
      health.changed();
    },
    onRejected: () => {
      metrics.configRejected();
      health.changed();
    },
    logger: log,
  });
  const unconfigured = settings.config.forceStartWithoutInitialConfig ? noRules() : undefined;
  const limiter = createLimiter({
    snapshot: () => config.current() ?? unconfigured,
    keys: new CounterKeys(settings.limits.keyPrefix),
    gate: storage.gate,
    fallback: storage.fallback,
    instances: () => storage.instances(),
    nowUs,
    shadowMode: settings.limits.shadowMode,
    quotaMode: settings.limits.quotaMode,
    stopIncrement: settings.limits.stopIncrement,
    defaultOnStoreError: settings.limits.defaultOnStoreError,
  });

  const refusals = new RefusalLog({ logger: log, nowMs });
  const recent = new RecentDecisions({
    nowMs: () => Date.now(),
    refused: (rule, limit) => {
      refusals.refused(rule, limit);
    },
    unknownDomain: (domain) => {
      refusals.unknownDomain(domain);
    },
  });
  // Its packages are loaded at start, and only when it is on.
  let tracer: Tracer | undefined;
  const observer = settings.metrics.disabled ? NO_METRICS : metrics;
  crew?.join({
    collect: () => (settings.metrics.disabled ? Promise.resolve([]) : metrics.collect()),
    report: (scope) => reportRecent(recent, config.current()?.rules ?? [], scope),
    forget: (keys) => {
      recent.forget(keys);
      storage.forget(keys);
    },
  });
  const doors = {
    limiter,
    observer: watchedBy(observer, recent, crew),
    tracer: settings.tracing.enabled
      ? {
          start: (...request: Parameters<Tracer['start']>) => tracer?.start(...request),
        }
      : undefined,
    health,
    logger: log,
  };
  const grpc = createGrpcServer(settings, doors);
  const http = createHttpServer(settings, doors);
  const prometheus =
    settings.prometheus === undefined ? undefined : new MetricsServer(settings.prometheus, doors);
  const admin = createAdminServer(
    settings.admin,
    createAdminSources({
      settings,
      env: process.env,
      version,
      instanceId: settings.limits.instanceId ?? hostname(),
      limiter,
      storage: crew === undefined ? storage : resettingForAll(storage, crew),
      config,
      recent,
      others: crew === undefined ? undefined : (scope) => crew.others(scope),
      observer,
      storeFacts: () => metrics.storeFacts,
      instances: () => storage.instances(),
      logger: log,
    }),
  );
  let healthTimer: NodeJS.Timeout | undefined;
  let stopping: Promise<void> | undefined;

  async function stop(atOnce: boolean): Promise<void> {
    const { delayMs, timeoutMs } = settings.drain;
    http.drain();
    await grpc.drain({ delayMs: atOnce ? 0 : delayMs, timeoutMs });
    await Promise.all([http.stop(HTTP_STOP_MS), prometheus?.stop(HTTP_STOP_MS), admin.stop()]);
    clearInterval(healthTimer);
    await config.stop();
    await storage.stop();
    metrics.stop();
    await tracer?.stop();
  }

  return {
    get configProblems() {
      return config.lastProblems.map(formatProblem);
    },

    async start() {
      if (settings.tracing.enabled) {
        tracer = await createTracer({ settings: settings.tracing, version, logger: log });
      }
      storage.start();
      metrics.start(
        storage.commands && new SharedActiveKeys(storage.commands, settings.limits.keyPrefix),
      );
      await config.start();
      await connected(storage);
      healthTimer = setInterval(() => {
        health.changed();
      }, HEALTH_INTERVAL_MS);
      const grpcPort = await grpc.start();
      const httpPort = await http.start();
      await prometheus?.start();
      const { port: adminPort } = await admin.start();
      log.always(addresses(settings, grpcPort, httpPort, adminPort), 'weir listens');
      log.always({ store: storage.description }, storeLine(storage));
    },

    stop(atOnce = false) {
      if (stopping === undefined) stopping = stop(atOnce);
      else void grpc.drain({ delayMs: 0, timeoutMs: 0 });
      return stopping;
    },
  };
}

/** What one worker deletes, the others must not remember. */
function resettingForAll(storage: Storage, crew: Crew): Storage {
  return {
    ...storage,
    reset: async (keys) => {
      const count = await storage.reset(keys);
      crew.reset(keys);
      return count;
    },
  };
}

/**
 * Resolves when Redis is connected, so that not even the first calls are answered by policy; or after a
 * moment, as a Redis that is away must not keep the service from starting.
 */
async function connected(storage: Storage): Promise<void> {
  const latestMs = performance.now() + CONNECT_PATIENCE_MS;
  while (!storage.connected() && performance.now() < latestMs) await pause(10);
}

/** Rules come from files, or from an xDS server. */
function createConfigSource(
  settings: Settings,
  shared: Omit<XdsConfigSourceOptions, 'settings'>,
): ConfigWatcher | XdsConfigSource {
  if (settings.config.type === 'GRPC_XDS_SOTW') {
    return new XdsConfigSource({ ...shared, settings: settings.xds });
  }
  const { directory, root, watchRoot } = settings.config;
  return new ConfigWatcher({ ...shared, directory, root, watchRoot });
}

function noRules(): Snapshot {
  return { generation: 0, loadedAtMs: 0, files: [], ...compileRules([]) };
}

function createGrpcServer(settings: Settings, doors: GrpcDependencies): GrpcServer {
  const { grpc, limits } = settings;
  const options = {
    address: grpc.uds === undefined ? { host: grpc.host, port: grpc.port } : { path: grpc.uds },
    tls: tlsFiles(settings),
    decisionTimeoutMs: limits.decisionTimeoutMs,
    maxDescriptors: limits.maxDescriptors,
    maxMessageBytes: grpc.maxMessageBytes,
    maxConcurrentStreams: grpc.maxConcurrentStreams,
    maxConnectionAgeMs: grpc.maxConnectionAgeMs,
    maxConnectionAgeGraceMs: grpc.graceMs,
    direct: grpc.direct,
    ipv6Prefix: limits.ipv6Prefix,
    envoy: envoyOptions(settings),
  };
  return new GrpcServer(options, doors);
}

function createHttpServer(settings: Settings, doors: HttpDependencies): HttpServer {
  const { decisionTimeoutMs, maxDescriptors } = settings.limits;
  const options = {
    ...settings.http,
    decisionTimeoutMs,
    maxDescriptors,
    maxBodyBytes: settings.grpc.maxMessageBytes,
    envoy: envoyOptions(settings),
  };
  return new HttpServer(options, doors);
}

function tlsFiles(settings: Settings): TlsFiles | undefined {
  const { tls } = settings.grpc;
  return (
    tls && {
      certificate: tls.certFile,
      key: tls.keyFile,
      clientCa: tls.clientCaFile,
      clientSan: tls.clientSan,
    }
  );
}

function envoyOptions(settings: Settings): EnvoyOptions {
  const { enabled, limit, remaining, reset, retryAfter } = settings.headers;
  return {
    headers: enabled ? { limit, remaining, reset, retryAfter: retryAfter ?? '' } : undefined,
    dynamicMetadata: settings.responseDynamicMetadata,
    quotaMode: settings.limits.quotaMode,
  };
}

function addresses(
  settings: Settings,
  grpcPort: number,
  httpPort: number,
  adminPort: number,
): Record<string, string> {
  return {
    grpc: settings.grpc.uds ?? `${settings.grpc.host}:${String(grpcPort)}`,
    http: `http://${settings.http.host}:${String(httpPort)}`,
    admin: `http://${settings.admin.host}:${String(adminPort)}`,
    config: settings.config.type === 'FILE' ? settings.config.directory : settings.xds.server,
  };
}

function storeLine(storage: Storage): string {
  return storage.kind === 'memory'
    ? 'counters are in the memory of this process: for one process alone. Set REDIS_URL to share them'
    : `counters are in ${storage.description}`;
}
