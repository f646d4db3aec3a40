/** A master, a replica and three sentinels that watch them, each a process on 127.0.0.1. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { freePort, RedisServer } from './redis-server.js';

export interface SentinelOptions {
  /** Of the master and its replica. */
  readonly password?: string;
  /** Of the sentinels themselves. */
  readonly sentinelPassword?: string;
  /** Everything speaks TLS; paths of PEM files. */
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string };
}

export const MASTER_NAME = 'counters';
const READY_MS = 20_000;

export class SentinelGroup {
  private readonly directory = mkdtempSync(join(tmpdir(), 'weir-sentinel-'));
  private readonly processes: ChildProcess[] = [];
  readonly sentinelPorts: number[] = [];
  readonly servers: RedisServer[] = [];

  private constructor(private readonly options: SentinelOptions) {}

  /** Resolves when the sentinels know each other and the replica. */
  static async start(options: SentinelOptions = {}): Promise<SentinelGroup> {
    const group = new SentinelGroup(options);
    try {
      const master = await group.startServer();
      await group.startServer(master.port);
      for (let i = 0; i < 3; i++) await group.startSentinel(master.port);
      for (const port of group.sentinelPorts) await group.knowsAll(port);
    } catch (error) {
      await group.stop();
      throw error;
    }
    return group;
  }

  /** The port of the master, as the first sentinel knows it. */
  async masterPort(): Promise<number> {
    const [port = 0] = this.sentinelPorts;
    const address = await this.ask(port, 'sentinel', 'get-master-addr-by-name', MASTER_NAME);
    return Number((address as string[])[1]); // as Redis documents it
  }

  /** The replica becomes master; resolves when it is. */
  async failOver(): Promise<void> {
    const before = await this.masterPort();
    const [port = 0] = this.sentinelPorts;
    await this.ask(port, 'sentinel', 'failover', MASTER_NAME);
    const giveUpMs = performance.now() + READY_MS;
    while ((await this.masterPort()) === before) {
      if (performance.now() > giveUpMs) throw new Error('the sentinels do not fail over');
      await sleep(50);
    }
  }

  server(port: number): RedisServer {
    const server = this.servers.find((one) => one.port === port);
    if (server === undefined) throw new Error(`no server on port ${port}`);
    return server;
  }

  async stop(): Promise<void> {
    for (const child of this.processes) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    await Promise.all(this.servers.map((server) => server.stop()));
    rmSync(this.directory, { recursive: true, force: true });
  }

  private async startServer(masterPort?: number): Promise<RedisServer> {
    const { password, tls } = this.options;
    const port = await freePort();
    const args = [...listenArgs(port, tls), '--repl-diskless-sync-delay', '0'];
    if (password !== undefined) args.push('--requirepass', password, '--masterauth', password);
    if (masterPort !== undefined) args.push('--replicaof', `127.0.0.1 ${masterPort}`);
    const server = await RedisServer.start({ port, args });
    this.servers.push(server);
    return server;
  }

  private async startSentinel(masterPort: number): Promise<void> {
    const { password, sentinelPassword, tls } = this.options;
    const port = await freePort();
    const lines = [
      'bind 127.0.0.1',
      `dir ${this.directory}`,
      ...listenSettings(port, tls).map(([name, value]) => `${name} ${value}`),
      `sentinel monitor ${MASTER_NAME} 127.0.0.1 ${masterPort} 2`,
      `sentinel down-after-milliseconds ${MASTER_NAME} 1000`,
      `sentinel failover-timeout ${MASTER_NAME} 5000`,
    ];
    if (password !== undefined) lines.push(`sentinel auth-pass ${MASTER_NAME} ${quote(password)}`);
    if (sentinelPassword !== undefined) {
      lines.push(`requirepass ${quote(sentinelPassword)}`);
      lines.push(`sentinel sentinel-pass ${quote(sentinelPassword)}`);
    }
    const file = join(this.directory, `sentinel-${port}.conf`);
    writeFileSync(file, lines.join('\n') + '\n');
    this.processes.push(spawn('redis-sentinel', [file], { stdio: 'ignore' }));
    this.sentinelPorts.push(port);
  }

  private async knowsAll(port: number): Promise<void> {
    const giveUpMs = performance.now() + READY_MS;
    for (;;) {
      try {
        const facts = (await this.ask(port, 'sentinel', 'master', MASTER_NAME)) as string[]; // names and values in turn
        const fact = (name: string): string | undefined => facts[facts.indexOf(name) + 1];
        if (fact('num-slaves') === '1' && fact('num-other-sentinels') === '2') return;
      } catch {
        // It does not listen yet.
      }
      if (performance.now() > giveUpMs) throw new Error('the sentinels do not find each other');
      await sleep(50);
    }
  }

  /** One command, to a sentinel or a server. */
  async ask(port: number, ...command: [string, ...string[]]): Promise<unknown> {
    const { password, sentinelPassword, tls } = this.options;
    const own = this.sentinelPorts.includes(port) ? sentinelPassword : password;
    const redis = new Redis({
      host: '127.0.0.1',
      port,
      // The test itself trusts what it has started.
      ...(tls === undefined ? {} : { tls: { rejectUnauthorized: false } }),
      ...(own === undefined ? {} : { password: own }),
      lazyConnect: true,
      enableReadyCheck: false,
      retryStrategy: () => null,
    });
    redis.on('error', () => undefined);
    try {
      await redis.connect();
      const [name, ...args] = command;
      return await redis.call(name, ...args);
    } finally {
      redis.disconnect();
    }
  }
}

/** Arguments of a redis-server that listens on this port, with TLS alone if it is asked for. */
export function listenArgs(port: number, tls: SentinelOptions['tls']): string[] {
  return listenSettings(port, tls).flatMap(([name, value]) => [`--${name}`, value]);
}

function listenSettings(port: number, tls: SentinelOptions['tls']): [string, string][] {
  if (tls === undefined) return [['port', String(port)]];
  return [
    ['port', '0'],
    ['tls-port', String(port)],
    ['tls-cert-file', tls.cert],
    ['tls-key-file', tls.key],
    ['tls-ca-cert-file', tls.ca],
    ['tls-replication', 'yes'],
    ['tls-auth-clients', 'optional'],
  ];
}

function quote(text: string): string {
  return JSON.stringify(text);
}
