/**
 * Settings, the part that says where a Redis is: the forms of its URL and of its credentials.
 * Reads no environment and opens nothing; what it throws names no secret.
 */
import { ValueError, parseHostPort, type HostPort } from './parse.js';

/** How to talk TLS to a Redis and its sentinels. Files are paths; they were readable at start. */
export interface RedisTls {
  readonly caFile: string | undefined;
  readonly certFile: string | undefined;
  readonly keyFile: string | undefined;
  /** The chain is verified all the same. */
  readonly skipHostnameVerification: boolean;
}

/** A user's name and password; without user the default one is meant. */
export interface Credentials {
  readonly username: string | undefined;
  readonly password: string | undefined;
}

/** Where a Redis is and how to enter it. */
export interface RedisSettings {
  readonly type: 'single' | 'sentinel' | 'cluster';
  /** One for `single`; the sentinels; or the cluster's first contacts. Empty with `path`. */
  readonly nodes: readonly HostPort[];
  /** A unix socket, `single` only. */
  readonly path: string | undefined;
  /** `sentinel` only. */
  readonly masterName: string | undefined;
  readonly username: string | undefined;
  readonly password: string | undefined;
  /** 0 unless the URL names another; always 0 in a cluster. */
  readonly db: number;
  readonly tls: RedisTls | undefined;
  readonly sentinelUsername: string | undefined;
  readonly sentinelPassword: string | undefined;
  readonly connectTimeoutMs: number;
}

/** What a URL itself says. */
export interface RedisAddress extends Credentials {
  readonly nodes: readonly HostPort[];
  readonly path: string | undefined;
  readonly masterName: string | undefined;
  readonly db: number;
  /** `rediss://`. */
  readonly tls: boolean;
}

const REDIS_PORT = 6379;
const SENTINEL_PORT = 26_379;
const NOWHERE: RedisAddress = {
  nodes: [],
  path: undefined,
  masterName: undefined,
  username: undefined,
  password: undefined,
  db: 0,
  tls: false,
};

/**
 * Reads REDIS_URL. Single: one address; cluster: a list of them; sentinel: the master's name, then a
 * list of sentinels. Throws ValueError.
 */
export function parseRedisUrl(url: string, type: RedisSettings['type']): RedisAddress {
  if (type === 'single') return parseOne(url, REDIS_PORT);
  const parts = url.split(',').map((part) => part.trim());
  const masterName = type === 'sentinel' ? parts.shift() : undefined;
  if (masterName === '' || (masterName !== undefined && /[:/]/.test(masterName))) {
    throw new ValueError('a master name, then its sentinels: mymaster,host:port,host:port');
  }
  if (parts.length === 0 || parts.includes('')) {
    throw new ValueError(
      type === 'sentinel'
        ? 'a master name, then its sentinels: mymaster,host:port,host:port'
        : 'a list of nodes: host:port,host:port',
    );
  }
  const defaultPort = type === 'sentinel' ? SENTINEL_PORT : REDIS_PORT;
  const addresses = parts.map((part) => parseOne(part, defaultPort));
  if (addresses.some((address) => address.path !== undefined)) {
    throw new ValueError(`a list of host:port: a ${type} has no unix sockets`);
  }
  const named = addresses.find((address) => address.password !== undefined) ?? NOWHERE;
  const db = addresses.find((address) => address.db !== 0)?.db ?? 0;
  if (type === 'cluster' && db !== 0) {
    throw new ValueError('a cluster: it has database 0 only');
  }
  return {
    nodes: addresses.flatMap((address) => address.nodes),
    path: undefined,
    masterName,
    username: named.username,
    password: named.password,
    db,
    tls: addresses.some((address) => address.tls),
  };
}

function parseOne(url: string, defaultPort: number): RedisAddress {
  if (url.startsWith('/')) return { ...NOWHERE, path: url };
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(url)?.[1]?.toLowerCase();
  if (scheme === undefined) return { ...NOWHERE, nodes: [node(url, defaultPort)] };
  if (scheme !== 'redis' && scheme !== 'rediss' && scheme !== 'unix') {
    throw new ValueError(
      'an address: host:port, redis://…, rediss://… (TLS), or a socket: /path, unix:///path',
    );
  }
  // The last @ ends the credentials, so that a password may hold anything, percent-encoded or not.
  const rest = url.slice(scheme.length + 3);
  const at = rest.lastIndexOf('@');
  const credentials = at < 0 ? NOWHERE : parseUserInfo(rest.slice(0, at));
  const [place = '', query] = rest.slice(at + 1).split('?', 2);
  const found: RedisAddress = {
    ...NOWHERE,
    username: credentials.username,
    password: credentials.password,
    db: parseDb(new URLSearchParams(query ?? '').get('db') ?? ''),
    tls: scheme === 'rediss',
  };
  if (scheme === 'unix') {
    if (!place.startsWith('/')) throw new ValueError('a socket: unix:///path');
    return { ...found, path: decode(place) };
  }
  const slash = place.indexOf('/');
  const authority = slash < 0 ? place : place.slice(0, slash);
  const db = slash < 0 ? '' : place.slice(slash + 1).replace(/\/$/, '');
  return {
    ...found,
    nodes: [node(authority, defaultPort)],
    db: db === '' ? found.db : parseDb(db),
  };
}

function node(text: string, defaultPort: number): HostPort {
  const { host, port } = parseHostPort(text, defaultPort);
  return { host: host === '' ? '127.0.0.1' : host, port };
}

function parseDb(text: string): number {
  if (text === '') return 0;
  if (!/^\d{1,5}$/.test(text)) throw new ValueError('an address: the database must be a number');
  return Number(text);
}

/** As redis-cli reads it: `user:password`, `:password`, and a lone word is the password. */
function parseUserInfo(info: string): Credentials {
  const colon = info.indexOf(':');
  const username = colon > 0 ? decode(info.slice(0, colon)) : undefined;
  const password = decode(info.slice(colon + 1));
  return { username, password: password === '' ? undefined : password };
}

/** A stray % is itself: who writes a password without encoding it means what is written. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Reads REDIS_AUTH: a password, or `user:password`, split at the first colon. Empty: no credentials. */
export function parseAuth(auth: string): Credentials {
  if (auth === '') return { username: undefined, password: undefined };
  const colon = auth.indexOf(':');
  return {
    username: colon > 0 ? auth.slice(0, colon) : undefined,
    password: auth.slice(colon + 1),
  };
}

/** A Redis URL as it may be shown: nothing that stands before the last @, save the scheme. */
export function hideCredentials(url: string): string {
  return url.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, '$1***@');
}

/** Where a Redis is, for log lines: `127.0.0.1:6379`, `sentinel mymaster of a:1, b:2`. No secrets. */
export function describeRedis(redis: RedisSettings): string {
  const nodes = redis.nodes.map(({ host, port }) =>
    host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`,
  );
  const place = redis.path ?? nodes.join(', ');
  const tls = redis.tls === undefined ? '' : ' with TLS';
  const db = redis.db === 0 ? '' : ` database ${redis.db}`;
  if (redis.type === 'sentinel')
    return `${redis.masterName ?? ''} of sentinels ${place}${db}${tls}`;
  return `${redis.type === 'cluster' ? 'cluster ' : ''}${place}${db}${tls}`;
}
