/**
 * Settings: the environment → one validated, frozen object, grouped by who uses it. All that is wrong
 * is reported at once. Opens no connection.
 */
import { join } from 'node:path';
import type { StoreErrorPolicy } from '../model.js';
import { ValueError, type HostPort, type LogLevel } from './parse.js';
import {
  hideCredentials,
  parseAuth,
  parseRedisUrl,
  type Credentials,
  type RedisSettings,
  type RedisTls,
} from './redis.js';
import { Reader, type Environment, type FileName, type Notice } from './reader.js';

/** What the service was told by its environment. Durations are in ms. Frozen at its first level. */
export interface Settings {
  readonly grpc: {
    readonly host: string;
    readonly port: number;
    /** Listen on this unix socket instead of host and port. */
    readonly uds: string | undefined;
    /** gRPC is served by our own HTTP/2 server, and not by the gRPC library. */
    readonly direct: boolean;
    readonly maxConnectionAgeMs: number;
    readonly graceMs: number;
    readonly maxMessageBytes: number;
    readonly maxConcurrentStreams: number;
    readonly tls: GrpcTls | undefined;
  };
  readonly http: HostPort;
  readonly admin: HostPort & { readonly token: string | undefined };
  readonly log: { readonly level: LogLevel; readonly format: 'text' | 'json' };
  readonly config: {
    readonly type: 'FILE' | 'GRPC_XDS_SOTW';
    /** Where the files are. */
    readonly directory: string;
    readonly root: string;
    readonly watchRoot: boolean;
    readonly mergeDomains: boolean;
    readonly forceStartWithoutInitialConfig: boolean;
    readonly healthyWithAtLeastOneConfigLoaded: boolean;
  };
  readonly limits: {
    readonly shadowMode: boolean;
    readonly quotaMode: boolean;
    /** Undefined when the environment does not say; then charges made afterwards count. */
    readonly stopIncrement: boolean | undefined;
    readonly nearLimitRatio: number;
    readonly keyPrefix: string;
    readonly defaultOnStoreError: StoreErrorPolicy;
    readonly expirationJitterMs: number;
    readonly ipv6Prefix: number;
    readonly maxDescriptors: number;
    readonly decisionTimeoutMs: number;
    /** 0: learn it from Redis. */
    readonly instances: number;
    /** Undefined: choose a random one. */
    readonly instanceId: string | undefined;
    readonly denyCacheEntries: number;
  };
  readonly headers: {
    readonly enabled: boolean;
    readonly limit: string;
    readonly remaining: string;
    readonly reset: string;
    /** Undefined: left out. */
    readonly retryAfter: string | undefined;
  };
  readonly responseDynamicMetadata: boolean;
  readonly backend: 'memory' | 'redis';
  /** Counters in this process's own memory, whichever the backend. */
  readonly memoryMaxCounters: number;
  /** Undefined with `memory`. */
  readonly redis: RedisSettings | undefined;
  /** A second Redis for limits per second, if there is one. */
  readonly redisPerSecond: RedisSettings | undefined;
  readonly redisHealthCheckActiveConnection: boolean;
  readonly drain: { readonly delayMs: number; readonly timeoutMs: number };
  readonly metrics: {
    readonly disabled: boolean;
    readonly detailedMaxSeries: number;
    readonly alsoMilliseconds: boolean;
    /** The names of the usual service too. */
    readonly compat: boolean;
  };
  /** Where to serve metrics besides the HTTP port. */
  readonly prometheus: (HostPort & { readonly path: string }) | undefined;
  readonly tracing: {
    readonly enabled: boolean;
    readonly serviceName: string;
    readonly serviceNamespace: string;
    readonly instanceId: string | undefined;
    readonly protocol: 'http' | 'grpc';
    readonly samplingRate: number;
  };
  readonly xds: XdsSettings;
  readonly workers: number;
}

/** TLS of the gRPC server. Files are paths; they were readable at start. */
export interface GrpcTls {
  readonly certFile: string;
  readonly keyFile: string;
  /** When set, clients need a certificate of this CA, */
  readonly clientCaFile: string | undefined;
  /** and it must have this DNS name. */
  readonly clientSan: string | undefined;
}

/** How to ask an xDS server for rules. */
export interface XdsSettings {
  readonly nodeId: string;
  readonly nodeMetadata: Readonly<Record<string, string>>;
  readonly server: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls:
    | {
        readonly caFile: string | undefined;
        readonly certFile: string | undefined;
        readonly keyFile: string | undefined;
        readonly serverName: string | undefined;
      }
    | undefined;
  readonly backoffInitialMs: number;
  readonly backoffMaxMs: number;
  readonly maxMessageBytes: number | undefined;
}

/** Every variable that is wrong, at once. Names no secret. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';
  readonly code = 'settings_error';

  constructor(readonly problems: readonly string[]) {
    const count =
      problems.length === 1 ? 'A setting is wrong' : `${problems.length} settings are wrong`;
    super(`${count}:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
  }
}

/**
 * Reads the environment. Set but empty is unset, as env files have it (save RUNTIME_APPDIRECTORY and
 * LIMIT_RETRY_AFTER_HEADER). Throws SettingsError.
 */
export function parseSettings(env: Environment): { settings: Settings; notices: Notice[] } {
  const reader = new Reader(env);
  const settings = Object.freeze(assemble(reader));
  if (reader.problems.length > 0) throw new SettingsError(reader.problems);
  return { settings, notices: reader.notices };
}

function assemble(reader: Reader): Settings {
  const { values: v } = reader;
  const backend = chooseBackend(reader);
  const redis = backend === 'redis' ? readRedis(reader, 'REDIS') : undefined;
  return {
    grpc: {
      host: v.GRPC_HOST,
      port: v.GRPC_PORT,
      uds: orUndefined(v.GRPC_UDS),
      direct: v.GRPC_SERVER === 'http2',
      maxConnectionAgeMs: v.GRPC_MAX_CONNECTION_AGE,
      graceMs: v.GRPC_MAX_CONNECTION_AGE_GRACE,
      maxMessageBytes: v.GRPC_MAX_MESSAGE_BYTES,
      maxConcurrentStreams: v.GRPC_MAX_CONCURRENT_STREAMS,
      tls: readGrpcTls(reader),
    },
    http: { host: v.HOST, port: v.PORT },
    admin: { host: v.DEBUG_HOST, port: v.DEBUG_PORT, token: orUndefined(v.ADMIN_TOKEN) },
    log: { level: v.LOG_LEVEL, format: v.LOG_FORMAT },
    config: {
      type: v.CONFIG_TYPE,
      directory: join(v.RUNTIME_ROOT, v.RUNTIME_SUBDIRECTORY, v.RUNTIME_APPDIRECTORY),
      root: v.RUNTIME_ROOT,
      watchRoot: v.RUNTIME_WATCH_ROOT,
      mergeDomains: v.MERGE_DOMAIN_CONFIG,
      forceStartWithoutInitialConfig: v.FORCE_START_WITHOUT_INITIAL_CONFIG,
      healthyWithAtLeastOneConfigLoaded: v.HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED,
    },
    limits: {
      shadowMode: v.SHADOW_MODE,
      quotaMode: v.QUOTA_MODE,
      stopIncrement: v.STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT,
      nearLimitRatio: v.NEAR_LIMIT_RATIO,
      keyPrefix: v.CACHE_KEY_PREFIX,
      defaultOnStoreError: v.DEFAULT_ON_STORE_ERROR,
      expirationJitterMs: v.EXPIRATION_JITTER_MAX_SECONDS * 1000,
      ipv6Prefix: v.IPV6_PREFIX,
      maxDescriptors: v.MAX_DESCRIPTORS,
      decisionTimeoutMs: v.DECISION_TIMEOUT,
      instances: v.INSTANCES,
      instanceId: orUndefined(v.INSTANCE_ID),
      denyCacheEntries: v.DENY_CACHE_ENTRIES,
    },
    headers: {
      enabled: v.LIMIT_RESPONSE_HEADERS_ENABLED,
      limit: v.LIMIT_LIMIT_HEADER,
      remaining: v.LIMIT_REMAINING_HEADER,
      reset: v.LIMIT_RESET_HEADER,
      retryAfter: orUndefined(v.LIMIT_RETRY_AFTER_HEADER),
    },
    responseDynamicMetadata: v.RESPONSE_DYNAMIC_METADATA,
    backend,
    memoryMaxCounters: v.MEMORY_MAX_COUNTERS,
    redis,
    redisPerSecond: readPerSecond(reader, redis),
    redisHealthCheckActiveConnection: v.REDIS_HEALTH_CHECK_ACTIVE_CONNECTION,
    drain: { delayMs: v.DRAIN_DELAY, timeoutMs: v.DRAIN_TIMEOUT },
    metrics: {
      disabled: v.DISABLE_STATS,
      detailedMaxSeries: v.DETAILED_METRIC_MAX_SERIES,
      alsoMilliseconds: v.PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS,
      compat: v.METRICS_COMPAT,
    },
    prometheus: v.USE_PROMETHEUS ? { ...v.PROMETHEUS_ADDR, path: v.PROMETHEUS_PATH } : undefined,
    tracing: {
      enabled: v.TRACING_ENABLED,
      serviceName: v.TRACING_SERVICE_NAME,
      serviceNamespace: v.TRACING_SERVICE_NAMESPACE,
      instanceId: orUndefined(v.TRACING_SERVICE_INSTANCE_ID),
      protocol: v.TRACING_EXPORTER_PROTOCOL,
      samplingRate: v.TRACING_SAMPLING_RATE,
    },
    xds: readXds(reader),
    workers: v.WORKERS,
  };
}

function orUndefined(value: string): string | undefined {
  return value === '' ? undefined : value;
}

function chooseBackend(reader: Reader): Settings['backend'] {
  const chosen = reader.values.BACKEND_TYPE;
  const hasUrl = reader.isSet('REDIS_URL');
  if (chosen === 'memcache') {
    reader.problem(
      'BACKEND_TYPE',
      'is "memcache", which cannot decide atomically: two requests at once could both take the last ' +
        'hit. Use redis, or memory for one process alone',
    );
  }
  if (chosen === 'redis' && !hasUrl) {
    reader.problem('BACKEND_TYPE', 'is "redis", but REDIS_URL is not set, such as 127.0.0.1:6379');
  }
  if (chosen === 'memory' && hasUrl) {
    reader.notice('warn', 'REDIS_URL', 'REDIS_URL is not used, as BACKEND_TYPE is memory');
  }
  if (chosen === undefined) return hasUrl ? 'redis' : 'memory';
  return chosen === 'memory' ? 'memory' : 'redis';
}

function readRedis(reader: Reader, prefix: 'REDIS' | 'REDIS_PERSECOND'): RedisSettings | undefined {
  const { values } = reader;
  const url = values[`${prefix}_URL`];
  if (url === '') return undefined;
  const type = lower(values[`${prefix}_TYPE`]);
  try {
    const address = parseRedisUrl(url, type);
    reportSocketType(reader, prefix, address.path !== undefined);
    const auth = readAuth(reader, prefix, 'AUTH');
    const sentinel = readAuth(reader, prefix, 'SENTINEL_AUTH');
    const own = auth.password === undefined ? address : auth;
    if (auth.password !== undefined && address.password !== undefined) {
      reader.notice(
        'warn',
        `${prefix}_AUTH`,
        `${prefix}_AUTH goes before the password in ${prefix}_URL`,
      );
    }
    return {
      type,
      nodes: address.nodes,
      path: address.path,
      masterName: address.masterName,
      username: own.username,
      password: own.password,
      db: address.db,
      tls: address.tls || values[`${prefix}_TLS`] ? readRedisTls(reader) : undefined,
      sentinelUsername: sentinel.username,
      sentinelPassword: sentinel.password,
      connectTimeoutMs: values[`${prefix}_TIMEOUT`],
    };
  } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    const shown = JSON.stringify(hideCredentials(url));
    reader.problem(`${prefix}_URL`, `is ${shown}, which is not ${error.expected}`);
    return undefined;
  }
}

function lower(type: 'SINGLE' | 'SENTINEL' | 'CLUSTER'): RedisSettings['type'] {
  return type === 'SINGLE' ? 'single' : type === 'SENTINEL' ? 'sentinel' : 'cluster';
}

function reportSocketType(
  reader: Reader,
  prefix: 'REDIS' | 'REDIS_PERSECOND',
  isSocket: boolean,
): void {
  const name = `${prefix}_SOCKET_TYPE` as const;
  const claimed = reader.values[name];
  if (claimed === undefined || (claimed === 'unix') === isSocket) return;
  const form = isSocket ? 'a socket' : 'a host and port';
  reader.notice('info', name, `${name} is ignored: the form of ${prefix}_URL, ${form}, decides`);
}

function readAuth(
  reader: Reader,
  prefix: 'REDIS' | 'REDIS_PERSECOND',
  suffix: 'AUTH' | 'SENTINEL_AUTH',
): Credentials {
  const name = `${prefix}_${suffix}` as const;
  const file = `${name}_FILE` as const;
  if (!reader.isSet(file)) return parseAuth(reader.values[name]);
  if (reader.isSet(name)) reader.problem(file, `and ${name} are both set; set one of them`);
  return parseAuth(reader.contents(file));
}

function readRedisTls(reader: Reader): RedisTls {
  return {
    caFile: reader.file('REDIS_TLS_CACERT'),
    ...certificate(reader, 'REDIS_TLS_CLIENT_CERT', 'REDIS_TLS_CLIENT_KEY'),
    skipHostnameVerification: reader.values.REDIS_TLS_SKIP_HOSTNAME_VERIFICATION,
  };
}

function readPerSecond(
  reader: Reader,
  redis: RedisSettings | undefined,
): RedisSettings | undefined {
  if (!reader.values.REDIS_PERSECOND) return undefined;
  if (!reader.isSet('REDIS_PERSECOND_URL')) {
    reader.problem('REDIS_PERSECOND', 'is true, but REDIS_PERSECOND_URL is not set');
    return undefined;
  }
  if (redis === undefined && !reader.isSet('REDIS_URL')) {
    reader.problem('REDIS_PERSECOND', 'is true, but REDIS_URL is not set');
  }
  return redis === undefined ? undefined : readRedis(reader, 'REDIS_PERSECOND');
}

/** A certificate and its key, both or neither. */
function certificate(
  reader: Reader,
  certName: FileName,
  keyName: FileName,
): { certFile: string | undefined; keyFile: string | undefined } {
  const certFile = reader.file(certName);
  const keyFile = reader.file(keyName);
  if (certFile !== undefined && keyFile === undefined) {
    reader.problem(certName, `is set, but its key, ${keyName}, is not`);
  }
  if (keyFile !== undefined && certFile === undefined) {
    reader.problem(keyName, `is set, but its certificate, ${certName}, is not`);
  }
  return { certFile, keyFile };
}

function readGrpcTls(reader: Reader): GrpcTls | undefined {
  const { values } = reader;
  if (!values.GRPC_SERVER_USE_TLS) {
    for (const name of ['GRPC_SERVER_TLS_CERT', 'GRPC_CLIENT_TLS_CACERT'] as const) {
      if (!reader.isSet(name)) continue;
      reader.notice('warn', name, `${name} is not used, as GRPC_SERVER_USE_TLS is not true`);
    }
    return undefined;
  }
  const { certFile, keyFile } = certificate(reader, 'GRPC_SERVER_TLS_CERT', 'GRPC_SERVER_TLS_KEY');
  const clientCaFile = reader.file('GRPC_CLIENT_TLS_CACERT');
  const clientSan = orUndefined(values.GRPC_CLIENT_TLS_SAN);
  if (clientSan !== undefined && clientCaFile === undefined) {
    reader.problem('GRPC_CLIENT_TLS_SAN', 'is set, but GRPC_CLIENT_TLS_CACERT is not');
  }
  if (certFile === undefined && keyFile === undefined) {
    reader.problem(
      'GRPC_SERVER_USE_TLS',
      'is true, but GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY are not set',
    );
  }
  if (certFile === undefined || keyFile === undefined) return undefined;
  return { certFile, keyFile, clientCaFile, clientSan };
}

function readXds(reader: Reader): XdsSettings {
  const { values } = reader;
  return {
    nodeId: values.CONFIG_GRPC_XDS_NODE_ID,
    nodeMetadata: values.CONFIG_GRPC_XDS_NODE_METADATA,
    server: values.CONFIG_GRPC_XDS_SERVER_URL,
    headers: values.CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS,
    tls: values.CONFIG_GRPC_XDS_SERVER_USE_TLS
      ? {
          caFile: reader.file('CONFIG_GRPC_XDS_SERVER_TLS_CACERT'),
          ...certificate(
            reader,
            'CONFIG_GRPC_XDS_CLIENT_TLS_CERT',
            'CONFIG_GRPC_XDS_CLIENT_TLS_KEY',
          ),
          serverName: orUndefined(values.CONFIG_GRPC_XDS_SERVER_TLS_SAN),
        }
      : undefined,
    backoffInitialMs: values.XDS_CLIENT_BACKOFF_INITIAL_INTERVAL,
    backoffMaxMs: values.XDS_CLIENT_BACKOFF_MAX_INTERVAL,
    maxMessageBytes: values.XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES || undefined,
  };
}
