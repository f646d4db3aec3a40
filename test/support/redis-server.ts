/** Starts and stops private Redis servers for tests, each on a free port with a directory of its own. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export interface RedisServerOptions {
  /** More arguments of redis-server, such as `['--requirepass', 'x']`. */
  readonly args?: readonly string[];
  /** The port to listen on; default: a free one. */
  readonly port?: number;
  /** The address to listen on; default 127.0.0.1. */
  readonly host?: string;
  /** Default `redis-server`. */
  readonly command?: string;
}

/** What a test that failed left behind ends with the process. */
const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export class RedisServer {
  private constructor(
    readonly host: string,
    readonly port: number,
    readonly directory: string,
    private readonly process: ChildProcess,
    private readonly exited: Promise<void>,
  ) {}

  get pid(): number {
    return this.process.pid ?? 0;
  }

  /** Resolves when the server accepts connections. */
  static async start(options: RedisServerOptions = {}): Promise<RedisServer> {
    const { host = '127.0.0.1' } = options;
    const port = options.port ?? (await freePort());
    const directory = await mkdtemp(join(tmpdir(), 'weir-redis-'));
    const args = ['--port', String(port), '--bind', host, '--dir', directory];
    args.push('--save', '', '--appendonly', 'no', '--daemonize', 'no', ...(options.args ?? []));
    const child = spawn(options.command ?? 'redis-server', args, { stdio: 'ignore' });
    const exited = new Promise<void>((resolve) => {
      child.once('exit', () => {
        resolve();
      });
      child.once('error', () => {
        resolve();
      });
    });
    running.add(child);
    const server = new RedisServer(host, port, directory, child, exited);
    for (let i = 0; i < 200; i++) {
      if (child.exitCode !== null) break;
      if (await accepts(host, port)) return server;
      await sleep(25);
    }
    await server.stop();
    throw new Error(`redis-server did not start on port ${String(port)}`);
  }

  /** Ends the server as if it crashed, and removes its directory. A second call does nothing. */
  async stop(): Promise<void> {
    this.process.kill('SIGKILL');
    await this.exited;
    running.delete(this.process);
    await rm(this.directory, { recursive: true, force: true });
  }

  /** The process stands still, its sockets stay open. */
  pause(): void {
    this.process.kill('SIGSTOP');
  }

  resume(): void {
    this.process.kill('SIGCONT');
  }
}

/** A port that nobody listens on right now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => {
    server.close(() => {
      resolve();
    });
  });
  return port;
}

function accepts(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => {
      resolve(false);
    });
  });
}
