/**
 * Settings, the table: every environment variable, with its kind, default and meaning. The single
 * source of `parseSettings`, `weir settings` and docs/settings.md. Reads nothing.
 */
import { STORE_ERROR_POLICIES } from '../model.js';
import {
  bool,
  choice,
  decimal,
  duration,
  integer,
  listenAddress,
  logLevel,
  map,
  optionalBool,
  optionalChoice,
  optionalInteger,
  port,
  text,
  type Kind,
} from './parse.js';

/** One environment variable. */
export interface Variable<T = unknown> {
  readonly kind: Kind<T>;
  /** As one would write it in the environment. */
  readonly default: string;
  readonly meaning: string;
  /** `partly` and `ignored` say why when set to something else than the default. */
  readonly use: 'honoured' | 'partly' | 'ignored';
  readonly why: string;
  /** The value is shown nowhere. */
  readonly secret: boolean;
  /** Set but empty is a value of its own, not the same as unset. */
  readonly mayBeEmpty: boolean;
}

interface More {
  readonly secret?: true;
  readonly mayBeEmpty?: true;
}

function honoured<T>(
  kind: Kind<T>,
  defaultText: string,
  meaning: string,
  more: More = {},
): Variable<T> {
  return {
    kind,
    default: defaultText,
    meaning,
    use: 'honoured',
    why: '',
    secret: more.secret ?? false,
    mayBeEmpty: more.mayBeEmpty ?? false,
  };
}

function partly<T>(kind: Kind<T>, defaultText: string, meaning: string, why: string): Variable<T> {
  return { ...honoured(kind, defaultText, meaning), use: 'partly', why };
}

function ignored(defaultText: string, meaning: string, why: string): Variable<string> {
  return { ...honoured(text, defaultText, meaning), use: 'ignored', why };
}

const FOR_EVER = 'Redis being absent is no error: it is looked for once a second until it is there';

const LISTEN = {
  HOST: honoured(text, '0.0.0.0', 'HTTP: the address to listen on'),
  PORT: honoured(port, '8080', 'HTTP: `/json`, `/healthcheck`, `/healthz`, `/readyz`, `/metrics`'),
  DEBUG_HOST: honoured(
    text,
    '127.0.0.1',
    'Admin: the address to listen on. Loopback unless told otherwise, as it can reset counters',
  ),
  DEBUG_PORT: honoured(port, '6070', 'Admin: dashboard, explain, inspect and reset'),
  ADMIN_TOKEN: honoured(
    text,
    '',
    'Admin: a bearer token that every question then needs. Without it, what can change counters is ' +
      'taken from this host only',
    {
      secret: true,
    },
  ),
  GRPC_HOST: honoured(text, '0.0.0.0', 'gRPC: the address to listen on'),
  GRPC_PORT: honoured(port, '8081', 'gRPC: the port'),
  GRPC_UDS: honoured(text, '', 'gRPC: listen on this unix socket instead of TCP'),
  GRPC_SERVER: honoured(
    choice(['http2', 'grpc-js']),
    'http2',
    'What speaks HTTP/2 for gRPC: Weir itself, or, at several times the cost, the gRPC library for Node',
  ),
  GRPC_MAX_CONNECTION_AGE: honoured(
    duration(1),
    '24h',
    'A connection is told to go away at this age, give or take 10 %',
  ),
  GRPC_MAX_CONNECTION_AGE_GRACE: honoured(duration(), '1h', 'and is closed after this much more'),
  GRPC_MAX_MESSAGE_BYTES: honoured(
    integer(1024, 8_388_608),
    '1048576',
    'The largest request, in bytes',
  ),
  GRPC_MAX_CONCURRENT_STREAMS: honoured(
    integer(1),
    '1000',
    'Calls that one connection may have in flight',
  ),
  GRPC_SERVER_USE_TLS: honoured(bool, 'false', 'TLS on gRPC'),
  GRPC_SERVER_TLS_CERT: honoured(
    text,
    '',
    'Certificate chain, a PEM file; reloaded when it changes',
  ),
  GRPC_SERVER_TLS_KEY: honoured(text, '', 'Its key, a PEM file; reloaded when it changes'),
  GRPC_CLIENT_TLS_CACERT: honoured(
    text,
    '',
    'CA of client certificates, a PEM file; when set, clients need a certificate',
  ),
  GRPC_CLIENT_TLS_SAN: honoured(text, '', 'The DNS name that client certificates must have'),
};

const CONFIGURATION = {
  CONFIG_TYPE: honoured(choice(['FILE', 'GRPC_XDS_SOTW']), 'FILE', 'Where rules come from'),
  RUNTIME_ROOT: honoured(
    text,
    '/srv/runtime_data/current',
    'Rules are the YAML files in `RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY`',
  ),
  RUNTIME_SUBDIRECTORY: honoured(text, '', 'The middle part of that path; may be empty'),
  RUNTIME_APPDIRECTORY: honoured(
    text,
    'config',
    'The last part of that path; set but empty, there is none',
    { mayBeEmpty: true },
  ),
  RUNTIME_WATCH_ROOT: honoured(
    bool,
    'true',
    'Reload on a swap of the RUNTIME_ROOT symlink too, not only on changes in the directory',
  ),
  RUNTIME_IGNOREDOTFILES: ignored(
    'false',
    'Skip names that begin with a dot',
    'names that begin with a dot are never configuration',
  ),
  MERGE_DOMAIN_CONFIG: honoured(
    bool,
    'false',
    'Several files may hold the same domain; their rules are merged, in the order of file names',
  ),
  FORCE_START_WITHOUT_INITIAL_CONFIG: honoured(
    bool,
    'false',
    'Serve, with no limits, before the first configuration is there',
  ),
  HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED: honoured(
    bool,
    'false',
    'Healthy only while at least one domain is loaded',
  ),
};

const DECISIONS = {
  SHADOW_MODE: honoured(
    bool,
    'false',
    'Refuse nothing; statuses and metrics still say what would be',
  ),
  QUOTA_MODE: honoured(bool, 'false', 'Treat every rule as `quota_mode: true`'),
  STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: honoured(
    optionalBool,
    '',
    'Unset: a refused request costs nothing, save charges made afterwards. `true`: a refused request ' +
      'costs nothing, always. `false`: every hit counts, refused or not',
  ),
  NEAR_LIMIT_RATIO: honoured(
    decimal(0, 1),
    '0.8',
    'Hits above this part of a limit count as near it',
  ),
  CACHE_KEY_PREFIX: honoured(text, '', 'What every key in the store begins with'),
  EXPIRATION_JITTER_MAX_SECONDS: honoured(
    integer(0, 86_400),
    '300',
    'Keys live up to this much longer than they must, so that they do not all expire at once',
  ),
  DECISION_TIMEOUT: honoured(
    duration(1),
    '100ms',
    'The most that a decision may take, even when the caller would wait longer',
  ),
  DEFAULT_ON_STORE_ERROR: honoured(
    choice(STORE_ERROR_POLICIES),
    'allow',
    'What happens when the store gives no answer in time and the rule does not say',
  ),
  INSTANCES: honoured(
    integer(0),
    '0',
    'How many instances share a limit when the store is away; 0 learns it from Redis',
  ),
  INSTANCE_ID: honoured(text, '', 'The name of this instance; random when unset'),
  DENY_CACHE_ENTRIES: honoured(
    integer(0),
    '100000',
    'Refused counters that are remembered, so as not to ask the store again; 0 switches it off',
  ),
  LOCAL_CACHE_SIZE_IN_BYTES: ignored(
    '0',
    'Size of the over-limit cache',
    'the deny cache is on by default; its size is DENY_CACHE_ENTRIES',
  ),
  IPV6_PREFIX: honoured(
    integer(1, 128),
    '64',
    'IPv6 addresses that share this many bits count as one',
  ),
  MAX_DESCRIPTORS: honoured(integer(1), '128', 'Descriptors that a request may have'),
};

const RESPONSE = {
  LIMIT_RESPONSE_HEADERS_ENABLED: honoured(bool, 'false', "Add headers to Envoy's answers"),
  LIMIT_LIMIT_HEADER: honoured(text, 'RateLimit-Limit', 'Header: the limit'),
  LIMIT_REMAINING_HEADER: honoured(text, 'RateLimit-Remaining', 'Header: what is left'),
  LIMIT_RESET_HEADER: honoured(text, 'RateLimit-Reset', 'Header: seconds until the limit resets'),
  LIMIT_RETRY_AFTER_HEADER: honoured(
    text,
    'Retry-After',
    'Header, on a refusal only: seconds to wait; set but empty, it is left out',
    { mayBeEmpty: true },
  ),
  RESPONSE_DYNAMIC_METADATA: honoured(bool, 'false', "Add dynamic metadata to Envoy's answers"),
};

const STORE = {
  BACKEND_TYPE: honoured(
    optionalChoice(['redis', 'memory', 'memcache']),
    '',
    '`redis` or `memory`. Unset: `redis` when REDIS_URL is set, else `memory`, for one process alone. ' +
      '`memcache` is refused: it cannot decide atomically',
  ),
  MEMORY_MAX_COUNTERS: honoured(
    integer(1, 10_000_000),
    '500000',
    'Counters in the memory of this process, at most: all of them with `memory`, those of ' +
      '`on_store_error: local` with `redis`. A new one above that takes the place of one little used',
  ),
  REDIS_URL: honoured(
    text,
    '',
    'Single: `host:port`, `redis://user:password@host:port/db`, `rediss://…` (TLS), `/path` or ' +
      '`unix:///path?db=1`. Sentinel: `mymaster,host:port,host:port`. Cluster: `host:port,host:port`',
    { secret: true },
  ),
  REDIS_TYPE: honoured(choice(['SINGLE', 'SENTINEL', 'CLUSTER']), 'SINGLE', 'The kind of Redis'),
  REDIS_SOCKET_TYPE: partly(
    optionalChoice(['unix', 'tcp']),
    '',
    'Accepted; the form of REDIS_URL decides',
    'the form of the URL decides whether it is a socket or TCP',
  ),
  REDIS_AUTH: honoured(text, '', '`password`, or `user:password`, split at the first colon', {
    secret: true,
  }),
  REDIS_AUTH_FILE: honoured(text, '', 'A file with what REDIS_AUTH would say'),
  REDIS_SENTINEL_AUTH: honoured(text, '', 'As REDIS_AUTH, for the sentinels', { secret: true }),
  REDIS_SENTINEL_AUTH_FILE: honoured(text, '', 'A file with what REDIS_SENTINEL_AUTH would say'),
  REDIS_TLS: honoured(bool, 'false', 'TLS towards Redis and its sentinels'),
  REDIS_TLS_CACERT: honoured(text, '', 'CA of Redis, a PEM file; unset: the usual ones'),
  REDIS_TLS_CLIENT_CERT: honoured(text, '', 'Client certificate, a PEM file'),
  REDIS_TLS_CLIENT_KEY: honoured(text, '', 'Its key, a PEM file'),
  REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: honoured(
    bool,
    'false',
    'Do not compare the host name; the chain is verified all the same',
  ),
  REDIS_TIMEOUT: honoured(
    duration(1),
    '2s',
    'For connecting only; a decision has DECISION_TIMEOUT',
  ),
  REDIS_HEALTH_CHECK_ACTIVE_CONNECTION: honoured(
    bool,
    'false',
    'Unhealthy while there is no connection to Redis',
  ),
  REDIS_STARTUP_INITIAL_INTERVAL: partly(
    duration(1),
    '1s',
    'Accepted; an absent Redis is looked for after 50 ms, then ever less often down to once a second',
    FOR_EVER,
  ),
  REDIS_STARTUP_MAX_INTERVAL: partly(
    duration(1),
    '30s',
    'As REDIS_STARTUP_INITIAL_INTERVAL',
    FOR_EVER,
  ),
  REDIS_STARTUP_MAX_ELAPSED_TIME: partly(
    duration(),
    '0',
    'Accepted; the service serves by policy for as long as Redis is absent',
    FOR_EVER,
  ),
  REDIS_POOL_SIZE: partly(
    integer(1),
    '10',
    'Accepted; one pipelined connection carries everything',
    'one connection carries all batches, pipelined',
  ),
  REDIS_POOL_ON_EMPTY_BEHAVIOR: partly(
    text,
    'WAIT',
    'Accepted; there is no pool to be empty',
    'there is no pool to be empty',
  ),
  REDIS_POOL_ON_EMPTY_WAIT_DURATION: ignored(
    '',
    'Wait for the pool',
    'there is no pool to be empty',
  ),
  REDIS_PIPELINE_WINDOW: partly(
    duration(),
    '0',
    'Accepted; batches are made without a timer',
    'requests are batched without a timer',
  ),
  REDIS_PIPELINE_LIMIT: ignored('0', 'Without effect', 'it has no effect'),
  REDIS_CLUSTER_PIPELINE_PARALLELISM: partly(
    integer(0),
    '1',
    'Accepted; the nodes of a cluster are always asked in parallel',
    'the nodes of a cluster are always asked in parallel',
  ),
  REDIS_PERSECOND: honoured(bool, 'false', 'A second Redis for limits per second'),
  REDIS_PERSECOND_URL: honoured(text, '', 'As REDIS_URL, for that one', { secret: true }),
  REDIS_PERSECOND_TYPE: honoured(
    choice(['SINGLE', 'SENTINEL', 'CLUSTER']),
    'SINGLE',
    'As REDIS_TYPE',
  ),
  REDIS_PERSECOND_SOCKET_TYPE: partly(
    optionalChoice(['unix', 'tcp']),
    '',
    'As REDIS_SOCKET_TYPE',
    'the form of the URL decides whether it is a socket or TCP',
  ),
  REDIS_PERSECOND_AUTH: honoured(text, '', 'As REDIS_AUTH', { secret: true }),
  REDIS_PERSECOND_AUTH_FILE: honoured(text, '', 'A file with what REDIS_PERSECOND_AUTH would say'),
  REDIS_PERSECOND_SENTINEL_AUTH: honoured(text, '', 'As REDIS_SENTINEL_AUTH', { secret: true }),
  REDIS_PERSECOND_SENTINEL_AUTH_FILE: honoured(
    text,
    '',
    'A file with what REDIS_PERSECOND_SENTINEL_AUTH would say',
  ),
  REDIS_PERSECOND_TLS: honoured(bool, 'false', 'As REDIS_TLS; the certificate files are shared'),
  REDIS_PERSECOND_TIMEOUT: honoured(duration(1), '2s', 'As REDIS_TIMEOUT'),
  REDIS_PERSECOND_POOL_SIZE: partly(
    integer(1),
    '10',
    'As REDIS_POOL_SIZE',
    'one connection carries all batches, pipelined',
  ),
  REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR: partly(
    text,
    'WAIT',
    'As REDIS_POOL_ON_EMPTY_BEHAVIOR',
    'there is no pool to be empty',
  ),
  REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION: ignored(
    '',
    'Wait for the pool',
    'there is no pool to be empty',
  ),
  REDIS_PERSECOND_PIPELINE_WINDOW: partly(
    duration(),
    '0',
    'As REDIS_PIPELINE_WINDOW',
    'requests are batched without a timer',
  ),
  REDIS_PERSECOND_PIPELINE_LIMIT: ignored('0', 'Without effect', 'it has no effect'),
  REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM: partly(
    integer(0),
    '1',
    'As REDIS_CLUSTER_PIPELINE_PARALLELISM',
    'the nodes of a cluster are always asked in parallel',
  ),
};

const NO_MEMCACHE = 'counters are never in memcached';
const MEMCACHE = {
  MEMCACHE_HOST_PORT: ignored('', 'Servers', NO_MEMCACHE),
  MEMCACHE_MAX_IDLE_CONNS: ignored('2', 'Idle connections', NO_MEMCACHE),
  MEMCACHE_SRV: ignored('', 'SRV record of the servers', NO_MEMCACHE),
  MEMCACHE_SRV_REFRESH: ignored('0', 'How often to look it up', NO_MEMCACHE),
  MEMCACHE_TLS: ignored('false', 'TLS', NO_MEMCACHE),
  MEMCACHE_TLS_CLIENT_CERT: ignored('', 'Client certificate', NO_MEMCACHE),
  MEMCACHE_TLS_CLIENT_KEY: ignored('', 'Its key', NO_MEMCACHE),
  MEMCACHE_TLS_CACERT: ignored('', 'CA', NO_MEMCACHE),
  MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION: ignored('false', 'No host name check', NO_MEMCACHE),
};

const PROCESS = {
  LOG_LEVEL: honoured(
    logLevel,
    'WARN',
    '`trace`, `debug`, `info`, `warn`, `error`, `fatal`, in any case. Where it listens and which store ' +
      'it uses is printed at every level',
  ),
  LOG_FORMAT: honoured(choice(['text', 'json']), 'text', 'For people, or a JSON object a line'),
  WORKERS: honoured(integer(1, 256), '1', 'Processes that share the ports'),
  DRAIN_DELAY: honoured(
    duration(),
    '5s',
    'After SIGTERM: unhealthy for this long before connections are told to go',
  ),
  DRAIN_TIMEOUT: honoured(duration(), '30s', 'and then this long for what is in flight'),
};

const ONLY_PROMETHEUS = 'metrics are for Prometheus only, on PORT';
const METRICS = {
  DISABLE_STATS: honoured(bool, 'false', 'No metrics at all'),
  USE_PROMETHEUS: honoured(
    bool,
    'false',
    'Serve metrics on PROMETHEUS_ADDR too; on PORT they always are',
  ),
  PROMETHEUS_ADDR: honoured(listenAddress, ':9090', 'Where, then'),
  PROMETHEUS_PATH: honoured(text, '/metrics', 'Under which path, there'),
  PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS: honoured(
    bool,
    'false',
    'Adds the histogram `weir_request_duration_milliseconds`; the one in seconds stays',
  ),
  PROMETHEUS_MAPPER_YAML: ignored(
    '',
    'Mapping of statsd names',
    'metrics have labels from the start; docs/metrics.md lists them',
  ),
  METRICS_COMPAT: honoured(
    bool,
    'false',
    'Serve the metrics of the usual service too, as its statsd-exporter mapping names them: ' +
      '`ratelimit_service_rate_limit_total_hits` and so on',
  ),
  DETAILED_METRIC_MAX_SERIES: honoured(
    integer(1),
    '500',
    'Values that `detailed_metric` and `value_to_metric` may give a rule; then `other`',
  ),
  USE_STATSD: ignored('', 'statsd sink', ONLY_PROMETHEUS),
  USE_DOG_STATSD: ignored('false', 'DogStatsD sink', ONLY_PROMETHEUS),
  USE_DOG_STATSD_MOGRIFIERS: ignored('', 'Renames metrics', ONLY_PROMETHEUS),
  STATSD_HOST: ignored('localhost', 'Its host', ONLY_PROMETHEUS),
  STATSD_PORT: ignored('8125', 'Its port', ONLY_PROMETHEUS),
  STATSD_PROTOCOL: ignored('tcp', 'Its protocol', ONLY_PROMETHEUS),
  EXTRA_TAGS: ignored('', 'Tags on all metrics', 'labels are added by the scrape configuration'),
  STATS_FLUSH_INTERVAL: ignored('10s', 'How often to send', ONLY_PROMETHEUS),
  GOSTATS_LOGGING_SINK_DISABLED: ignored('', "A library's own", ONLY_PROMETHEUS),
  GOSTATS_FLUSH_INTERVAL_SECONDS: ignored('', "A library's own", ONLY_PROMETHEUS),
};

const TRACING = {
  TRACING_ENABLED: honoured(
    bool,
    'false',
    'OpenTelemetry traces; `OTEL_EXPORTER_OTLP_*` say where to',
  ),
  TRACING_SERVICE_NAME: honoured(text, 'RateLimit', '`service.name`'),
  TRACING_SERVICE_NAMESPACE: honoured(text, '', '`service.namespace`'),
  TRACING_SERVICE_INSTANCE_ID: honoured(text, '', '`service.instance.id`; random when unset'),
  TRACING_EXPORTER_PROTOCOL: honoured(choice(['http', 'grpc']), 'http', 'Protocol of the exporter'),
  TRACING_SAMPLING_RATE: honoured(decimal(0, 1), '1', 'Part of the traces begun here that is kept'),
};

const BACK_OFF = 'it waits between the initial and the maximal interval, doubling, with jitter';
const XDS = {
  CONFIG_GRPC_XDS_NODE_ID: honoured(text, 'default', 'Node id'),
  CONFIG_GRPC_XDS_NODE_METADATA: honoured(map('=:'), '', 'Node metadata'),
  CONFIG_GRPC_XDS_SERVER_URL: honoured(text, 'localhost:18000', 'The xDS server'),
  CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL: partly(
    duration(1),
    '3s',
    'Accepted; see XDS_CLIENT_BACKOFF_INITIAL_INTERVAL',
    BACK_OFF,
  ),
  CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: honoured(map(':'), '', 'Metadata of the stream', {
    secret: true,
  }),
  CONFIG_GRPC_XDS_SERVER_USE_TLS: honoured(bool, 'false', 'TLS towards the xDS server'),
  CONFIG_GRPC_XDS_CLIENT_TLS_CERT: honoured(text, '', 'Client certificate, a PEM file'),
  CONFIG_GRPC_XDS_CLIENT_TLS_KEY: honoured(text, '', 'Its key, a PEM file'),
  CONFIG_GRPC_XDS_SERVER_TLS_CACERT: honoured(text, '', 'CA of the xDS server, a PEM file'),
  CONFIG_GRPC_XDS_SERVER_TLS_SAN: honoured(text, '', 'The name that its certificate must have'),
  XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: honoured(
    duration(1),
    '10s',
    'First wait before a new attempt',
  ),
  XDS_CLIENT_BACKOFF_MAX_INTERVAL: honoured(duration(1), '60s', 'The longest wait'),
  XDS_CLIENT_BACKOFF_RANDOM_FACTOR: partly(decimal(0, 100), '0.5', 'Accepted', BACK_OFF),
  XDS_CLIENT_BACKOFF_JITTER: partly(bool, 'true', 'Accepted', BACK_OFF),
  XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: honoured(
    optionalInteger(0),
    '',
    'The largest message; unset or 0: 4 MiB',
  ),
};

/** Every variable, by name. */
export const VARIABLES = {
  ...LISTEN,
  ...CONFIGURATION,
  ...DECISIONS,
  ...RESPONSE,
  ...STORE,
  ...MEMCACHE,
  ...PROCESS,
  ...METRICS,
  ...TRACING,
  ...XDS,
};

export type VariableName = keyof typeof VARIABLES;

/** What every variable's text was read as. */
export type Values = {
  readonly [Name in VariableName]: (typeof VARIABLES)[Name] extends Variable<infer T> ? T : never;
};

/** The table by chapters, in the order of the documentation. */
export const CHAPTERS: readonly {
  readonly title: string;
  readonly variables: Readonly<Record<string, Variable>>;
}[] = [
  { title: 'Where it listens', variables: LISTEN },
  { title: 'Where the rules come from', variables: CONFIGURATION },
  { title: 'How it decides', variables: DECISIONS },
  { title: 'What it answers', variables: RESPONSE },
  { title: 'Where it counts', variables: STORE },
  { title: 'Logs and the process', variables: PROCESS },
  { title: 'Metrics', variables: METRICS },
  { title: 'Tracing', variables: TRACING },
  { title: 'Rules over xDS', variables: XDS },
  { title: 'Memcached', variables: MEMCACHE },
];
