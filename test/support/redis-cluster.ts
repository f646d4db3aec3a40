/** A Redis Cluster of processes on 127.0.0.1, by default three masters with a replica each. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { freePort, RedisServer } from './redis-server.js';

const run = promisify(execFile);

export interface RedisClusterOptions {
  readonly masters?: number;
  /** For each master. */
  readonly replicas?: number;
  /** More arguments of every redis-server, or of the one on a port. */
  readonly args?: readonly string[] | ((port: number) => readonly string[]);
  /** After so long without contact a node counts as failed. Default 1000. */
  readonly nodeTimeoutMs?: number;
}

const READY_MS = 15_000;

export class RedisCluster {
  private readonly dead = new Set<number>();
  /** What nodes know of their cluster outlives them here. */
  private readonly directory = mkdtempSync(join(tmpdir(), 'weir-cluster-'));

  private constructor(
    readonly servers: RedisServer[],
    private readonly options: RedisClusterOptions,
  ) {}

  /** Resolves when every node says that all slots are served. */
  static async start(options: RedisClusterOptions = {}): Promise<RedisCluster> {
    const { masters = 3, replicas = 1 } = options;
    const cluster = new RedisCluster([], options);
    try {
      for (let i = 0; i < masters * (1 + replicas); i++) {
        cluster.servers.push(await cluster.startNode());
      }
      const nodes = cluster.ports.map((port) => `127.0.0.1:${port}`);
      const replicasOption = ['--cluster-replicas', String(replicas), '--cluster-yes'];
      await run('redis-cli', ['--cluster', 'create', ...nodes, ...replicasOption]);
      await cluster.settled();
    } catch (error) {
      await cluster.stop();
      throw error;
    }
    return cluster;
  }

  /** Of the nodes that live. */
  get ports(): number[] {
    return this.servers.map(({ port }) => port).filter((port) => !this.dead.has(port));
  }

  /** One command, sent to one node. */
  async call(port: number, ...command: [string, ...string[]]): Promise<unknown> {
    const redis = new Redis(port, this.server(port).host, {
      lazyConnect: true,
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

  /** Resolves when every living node says that all slots are served, and replicas have their data. */
  async settled(): Promise<void> {
    await this.until(async () => {
      for (const port of this.ports) {
        const [state, replication] = [
          String(await this.call(port, 'cluster', 'info')),
          String(await this.call(port, 'info', 'replication')),
        ];
        if (!state.includes('cluster_state:ok')) return false;
        if (replication.includes('master_link_status:down')) return false;
      }
      return true;
    });
  }

  /** The port of the master that has the key's slot, as the first living node knows it. */
  async masterOf(key: string): Promise<number> {
    const slot = Number(await this.call(this.anyPort, 'cluster', 'keyslot', key));
    const ranges = (await this.call(this.anyPort, 'cluster', 'slots')) as [
      number,
      number,
      [string, number],
    ][]; // what Redis documents, read from a server of our own
    const range = ranges.find(([first, last]) => first <= slot && slot <= last);
    if (range === undefined) throw new Error(`nobody has slot ${slot}`);
    return range[2][1];
  }

  /** Ports of the nodes in this role, as the first living node knows it. */
  async portsOf(role: 'master' | 'slave'): Promise<number[]> {
    const lines = (await this.nodeLines()).filter(
      ([, , flags = '']) => flags.includes(role) && !flags.includes('fail'),
    );
    return lines.map(([, address = '']) => portOf(address));
  }

  /** The port of a replica of the master on this port. */
  async replicaOf(master: number): Promise<number> {
    const id = await this.idOf(master);
    const line = (await this.nodeLines()).find(
      ([, address = '', , of]) => of === id && this.ports.includes(portOf(address)),
    );
    if (line === undefined) throw new Error(`${master} has no replica`);
    return portOf(line[1] ?? '');
  }

  server(port: number): RedisServer {
    const server = this.servers.find((one) => one.port === port);
    if (server === undefined) throw new Error(`no node on port ${port}`);
    return server;
  }

  /** Ends a node as if it crashed. */
  async kill(port: number): Promise<void> {
    this.dead.add(port);
    await this.server(port).stop();
  }

  /** Starts a node that was killed again, on its port, without its keys; where it was or elsewhere. */
  async restart(port: number, host?: string): Promise<void> {
    const place = this.servers.findIndex((server) => server.port === port);
    this.servers[place] = await this.startNode(port, host);
    this.dead.delete(port);
  }

  /** The replica takes over from its living master; resolves when all nodes know. */
  async failOver(replica: number): Promise<void> {
    await this.call(replica, 'cluster', 'failover');
    await this.until(async () => (await this.portsOf('master')).includes(replica));
    await this.settled();
  }

  /** Moves slots, with their keys, from one master to another. */
  async reshard(from: number, to: number, slots: number): Promise<void> {
    const [fromId, toId] = await Promise.all([this.idOf(from), this.idOf(to)]);
    const ends = ['--cluster-from', fromId, '--cluster-to', toId, '--cluster-yes'];
    const count = ['--cluster-slots', String(slots), '--cluster-pipeline', '10'];
    await run('redis-cli', ['--cluster', 'reshard', `127.0.0.1:${from}`, ...ends, ...count], {
      maxBuffer: 1 << 26,
    });
    await this.settled();
  }

  /** Waits until it holds; at most as long as a cluster takes to become ready. */
  async until(holds: () => Promise<boolean>): Promise<void> {
    const giveUpMs = performance.now() + READY_MS;
    while (!(await holds())) {
      if (performance.now() > giveUpMs) throw new Error('it does not come true');
      await sleep(50);
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.stop()));
    rmSync(this.directory, { recursive: true, force: true });
  }

  private get anyPort(): number {
    const port = this.ports[0];
    if (port === undefined) throw new Error('no node lives');
    return port;
  }

  private async startNode(known?: number, host = '127.0.0.1'): Promise<RedisServer> {
    const [port, busPort] = [known ?? (await freePort()), await freePort()];
    const timeout = String(this.options.nodeTimeoutMs ?? 1000);
    const config = join(this.directory, `${port}.conf`);
    const cluster = ['--cluster-enabled', 'yes', '--cluster-config-file', config];
    const bus = ['--cluster-port', String(busPort), '--cluster-node-timeout', timeout];
    const failing = ['--cluster-require-full-coverage', 'no', '--repl-diskless-sync-delay', '0'];
    const { args: more = [] } = this.options;
    const own = typeof more === 'function' ? more(port) : more;
    return RedisServer.start({ host, port, args: [...cluster, ...bus, ...failing, ...own] });
  }

  private async nodeLines(): Promise<string[][]> {
    const text = String(await this.call(this.anyPort, 'cluster', 'nodes'));
    return text
      .trim()
      .split('\n')
      .map((line) => line.split(' '));
  }

  private async idOf(port: number): Promise<string> {
    return String(await this.call(port, 'cluster', 'myid'));
  }
}

/** `127.0.0.1:7000@17000` → 7000 */
function portOf(address: string): number {
  return Number(/:(\d+)/.exec(address)?.[1]);
}
