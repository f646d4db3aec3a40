/**
 * Settings → where the store connects: reads the certificate files, names the sentinels. Opens no
 * connection.
 */
import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';
import type { RedisSettings, RedisTls } from '../settings/redis.js';
import type { RedisPlace } from './connect.js';
import type { RedisConnection } from './redis-client.js';

/** Throws when a certificate file cannot be read. */
export function toRedisPlace(redis: RedisSettings): RedisPlace {
  const { type, nodes, path, username, password, db, tls, connectTimeoutMs } = redis;
  const [node = { host: '127.0.0.1', port: 6379 }] = nodes;
  const connection: RedisConnection = {
    host: node.host,
    port: node.port,
    ...(path !== undefined && { path }),
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(tls !== undefined && { tls: toTlsOptions(tls) }),
    db,
    connectTimeoutMs,
  };
  if (type === 'cluster') return { type: 'cluster', seeds: nodes, connection };
  if (type === 'single') return { type: 'server', connection };
  const { masterName = '', sentinelUsername, sentinelPassword } = redis;
  const sentinels = {
    nodes,
    masterName,
    ...(sentinelUsername !== undefined && { username: sentinelUsername }),
    ...(sentinelPassword !== undefined && { password: sentinelPassword }),
  };
  return { type: 'server', connection: { ...connection, sentinels } };
}

function toTlsOptions(tls: RedisTls): ConnectionOptions {
  const { caFile, certFile, keyFile, skipHostnameVerification } = tls;
  return {
    ...(caFile !== undefined && { ca: readFileSync(caFile) }),
    ...(certFile !== undefined && { cert: readFileSync(certFile) }),
    ...(keyFile !== undefined && { key: readFileSync(keyFile) }),
    // The chain is verified all the same.
    ...(skipHostnameVerification && { checkServerIdentity: () => undefined }),
  };
}
