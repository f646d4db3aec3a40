/**
 * The connection to Redis: builds the client and translates what it throws. With `redis.ts` the only
 * place that knows ioredis. Knows nothing of scripts or requests.
 */
import { Redis, SentinelConnector } from 'ioredis';
import type { RedisOptions, SentinelConnectionOptions } from 'ioredis';
import type { ConnectionOptions } from 'node:tls';
import type { FailureKind } from '../model.js';
import { StoreError } from './store.js';

/** Where Redis is and how to log in. */
export interface RedisConnection {
  readonly host: string;
  readonly port: number;
  /** Path of a Unix socket; goes before host and port. */
  readonly path?: string;
  readonly username?: string;
  readonly password?: string;
  readonly db?: number;
  readonly tls?: ConnectionOptions;
  /** Ask these where the master is; goes before host and port. */
  readonly sentinels?: SentinelContacts;
  /** For connecting only; a decision has a deadline of its own. */
  readonly connectTimeoutMs: number;
}

/** Sentinels, which have credentials of their own; TLS is as towards Redis. */
export interface SentinelContacts {
  readonly nodes: readonly { readonly host: string; readonly port: number }[];
  readonly masterName: string;
  readonly username?: string;
  readonly password?: string;
}

const FIRST_DELAY_MS = 50;
/** With its jitter below 1.4 attempts a second, and a Redis that is back is found within 2 s. */
const LONGEST_DELAY_MS = 1000;

/**
 * A client that connects when told to, and never gives up. Nothing is queued while offline and nothing
 * is sent twice: a lost reply must not make a hit count twice. `retryDelayMs` is asked before each
 * new attempt; `warning` hears once what is odd and does no harm.
 */
export function createClient(
  connection: RedisConnection,
  retryDelayMs: () => number,
  warning: (message: string) => void,
): Redis {
  const { username, password, db, tls, connectTimeoutMs } = connection;
  const warn = once(warning);
  const client = new Redis({
    ...placeOf(connection, retryDelayMs),
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
    ...(tls === undefined ? {} : { tls }),
    db: db ?? 0,
    connectTimeout: connectTimeoutMs,
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // A Redis that loads its data says so to each call; asking INFO first would need one more permission.
    enableReadyCheck: false,
    disableClientInfo: true,
    protocol: 2,
    retryStrategy: retryDelayMs,
    ...(connection.sentinels === undefined ? {} : { Connector: createSentinelConnector(warn) }),
  });
  bearNeedlessPassword(client, warn);
  return client;
}

/**
 * The library's own, save that it writes nothing to stderr: it does so for errors of the clients with which
 * it waits for a failover, as nobody listens to them. They go on trying; who asks for the master reports.
 */
function createSentinelConnector(
  warn: (message: string) => void,
): NonNullable<RedisOptions['Connector']> {
  return class extends SentinelConnector {
    constructor(options: unknown) {
      super(options as SentinelConnectionOptions); // what `createClient` says below `sentinels`
      // Private in its types only; a test of ours looks at what is written.
      const own = this as unknown as { connectToSentinel: (...args: unknown[]) => Redis };
      const connect = own.connectToSentinel.bind(this);
      own.connectToSentinel = (...args) => {
        const client = connect(...args);
        client.on('error', () => undefined);
        bearNeedlessPassword(client, warn);
        return client;
      };
    }
  };
}

/** A server without a password refuses one, which does no harm; the library would tell stderr each time. */
function bearNeedlessPassword(client: Redis, warn: (message: string) => void): void {
  const auth = client.auth.bind(client) as (...args: unknown[]) => Promise<'OK'>;
  client.auth = (...args: unknown[]) =>
    auth(...args).catch((error: unknown) => {
      const needless = /no password is set|without any password configured/;
      if (!(error instanceof Error) || !needless.test(error.message)) throw error;
      warn('a password is set for Redis, or for a sentinel, that asks for none');
      return 'OK';
    });
}

function once(tell: (message: string) => void): (message: string) => void {
  let told = false;
  return (message) => {
    if (!told) tell(message);
    told = true;
  };
}

function placeOf(connection: RedisConnection, retryDelayMs: () => number) {
  const { host, port, path, sentinels, tls, connectTimeoutMs } = connection;
  if (path !== undefined) return { path };
  if (sentinels === undefined) return { host, port };
  const { nodes, masterName, username, password } = sentinels;
  return {
    sentinels: nodes.map((node) => ({ ...node })),
    name: masterName,
    ...(username === undefined ? {} : { sentinelUsername: username }),
    ...(password === undefined ? {} : { sentinelPassword: password }),
    ...(tls === undefined ? {} : { sentinelTLS: tls, enableTLSForSentinelMode: true }),
    sentinelRetryStrategy: retryDelayMs,
    sentinelCommandTimeout: connectTimeoutMs,
    // What an old master still counts after a failover is lost: leave it as soon as a sentinel says so.
    failoverDetector: true,
    // The sentinels that were configured are enough; listing others would need one more permission.
    updateSentinels: false,
  };
}

/** Exponential, with jitter downwards by a quarter; `attempt` counts from 0, `random` is 0 to 1. */
export function backoffMs(attempt: number, random: number): number {
  const delay = Math.min(FIRST_DELAY_MS * 2 ** Math.min(attempt, 10), LONGEST_DELAY_MS);
  return Math.round(delay * (1 - random / 4));
}

/** First words of Redis's error replies, and what they mean for us. */
const KINDS: Readonly<Record<string, FailureKind>> = {
  READONLY: 'readonly',
  LOADING: 'loading',
  MASTERDOWN: 'loading',
  BUSY: 'loading',
  OOM: 'oom',
  MISCONF: 'loading',
  NOREPLICAS: 'loading',
  NOPERM: 'permission',
  NOAUTH: 'permission',
  WRONGPASS: 'permission',
  CLUSTERDOWN: 'cluster',
  CROSSSLOT: 'cluster',
  TRYAGAIN: 'cluster',
  MOVED: 'cluster',
  ASK: 'cluster',
};

/**
 * What the client threw, as one of our kinds. Keeps no cause: ioredis hangs the command with all its
 * arguments on its errors, the password of AUTH among them.
 */
export function toStoreError(error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  if (!(error instanceof Error)) return new StoreError('connection', 'the connection failed');
  if (/sentinel.*(NOAUTH|WRONGPASS|NOPERM|ERR AUTH)/i.test(error.message)) {
    return new StoreError('permission', 'sentinel authentication failed');
  }
  if (error.name !== 'ReplyError') {
    const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined;
    // What the client's parser says when it does not understand; it would quote what was sent.
    if (code === undefined && /\bRESP\b|ParserError/.test(`${error.name} ${error.message}`)) {
      return new StoreError('reply', 'the reply is not RESP');
    }
    return new StoreError('connection', code ?? error.message);
  }
  const word = errorWord(error);
  const kind = KINDS[word];
  // This one names the command that is not permitted, and nothing secret.
  if (word === 'NOPERM' || error.message.includes('user executing the script can')) {
    return new StoreError('permission', `Redis answers: ${error.message.slice(0, 200)}`);
  }
  if (kind !== undefined) return new StoreError(kind, `Redis answers ${word}`);
  if (/invalid password|operation not permitted/i.test(error.message)) {
    return new StoreError('permission', 'Redis refuses the login');
  }
  // Script errors name a line of ours; they quote no arguments.
  return new StoreError('script', `Redis answers: ${error.message.slice(0, 200)}`);
}

/**
 * The same for what is wrong between connecting and being ready: there is no connection then, whatever
 * Redis refused, such as a database that it does not have.
 */
export function toLoginError(error: unknown): StoreError {
  const found = toStoreError(error);
  return found.kind === 'script' ? new StoreError('connection', found.message) : found;
}

/** True when Redis does not have the script: nothing has run. */
export function isScriptMissing(error: unknown): boolean {
  return error instanceof Error && error.name === 'ReplyError' && errorWord(error) === 'NOSCRIPT';
}

/** Scripts wrap what a command of theirs answers: Redis 6 as `ERR Error running script … -OOM …`. */
function errorWord(error: Error): string {
  const wrapped = /@user_script[^:]*: \d+: -?([A-Z]+) /.exec(error.message)?.[1];
  return wrapped ?? error.message.split(' ', 1)[0] ?? '';
}
