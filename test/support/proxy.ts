/**
 * A TCP proxy whose faults a test switches on and off: it stands between the service and a Redis, and
 * does to the connections what broken networks and dying servers do.
 */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

/** Where a proxy passes new connections on to. */
export interface ProxyTarget {
  readonly port: number;
}

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
  /** What a black hole has swallowed: TCP sends it again once there is a way. */
  readonly held: (() => void)[];
}

export class Proxy {
  private readonly pairs = new Set<Pair>();
  private readonly server: Server;
  private target: ProxyTarget;
  private swallowing = false;
  private refusing = false;
  private latencyMs = 0;
  private losing: { readonly containing: string; readonly lost: () => void } | undefined;
  /** When each connection was attempted, on the clock of `performance.now()`. */
  readonly attemptsMs: number[] = [];
  /** Bytes that came from clients. */
  received = 0;

  private constructor(target: ProxyTarget) {
    this.target = target;
    this.server = createServer((client) => {
      this.accept(client);
    });
    this.server.unref();
  }

  /** Listens on a free port of 127.0.0.1, or on the one given. */
  static async start(target: ProxyTarget, port = 0): Promise<Proxy> {
    const proxy = new Proxy(target);
    proxy.server.listen(port, '127.0.0.1');
    await once(proxy.server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port; // bound to TCP, so it is an AddressInfo
  }

  get connections(): number {
    return this.pairs.size;
  }

  /** Ends every fault; connections that were cut stay cut. */
  pass(): void {
    this.swallowing = this.refusing = false;
    this.latencyMs = 0;
    this.losing = undefined;
    for (const { held } of this.pairs) for (const deliver of held.splice(0)) deliver();
  }

  /** No byte arrives in either direction until it passes again; sockets stay open, new ones can be opened. */
  blackhole(): void {
    this.swallowing = true;
  }

  /** Resets every connection. */
  cut(): void {
    for (const { client, server } of this.pairs) {
      client.resetAndDestroy();
      server.destroy();
    }
    this.pairs.clear();
  }

  /** Resets new connections as soon as they are open. */
  refuse(refusing = true): void {
    this.refusing = refusing;
  }

  /** Delays every byte that the server sends. */
  delayReplies(ms: number): void {
    this.latencyMs = ms;
  }

  /**
   * Lets the next chunk with this text through to the server, drops what that answers, and resets the
   * connection. Resolves when it has.
   */
  loseReplyTo(containing: string): Promise<void> {
    return new Promise((lost) => {
      this.losing = { containing, lost };
    });
  }

  /** New connections go there; open ones stay where they are. */
  switchTo(target: ProxyTarget): void {
    this.target = target;
  }

  async stop(): Promise<void> {
    this.cut();
    this.server.close();
    await once(this.server, 'close');
  }

  private accept(client: Socket): void {
    this.attemptsMs.push(performance.now());
    client.on('error', ignore);
    if (this.refusing) {
      client.resetAndDestroy();
      return;
    }
    client.setNoDelay(true);
    client.unref();
    const server = connect({ port: this.target.port, host: '127.0.0.1', noDelay: true });
    server.unref();
    const pair: Pair = { client, server, held: [] };
    this.pairs.add(pair);
    let losing: (() => void) | undefined;

    client.on('data', (chunk) => {
      this.received += chunk.length;
      if (this.swallowing) {
        pair.held.push(() => server.write(chunk));
        return;
      }
      if (this.losing !== undefined && chunk.includes(this.losing.containing)) {
        losing = this.losing.lost;
        this.losing = undefined;
      }
      server.write(chunk);
    });
    server.on('data', (chunk) => {
      if (this.swallowing) {
        pair.held.push(() => client.write(chunk));
        return;
      }
      if (losing !== undefined) {
        client.resetAndDestroy();
        server.destroy();
        losing();
        return;
      }
      if (this.latencyMs === 0) client.write(chunk);
      else setTimeout(() => client.write(chunk), this.latencyMs).unref();
    });
    // A black hole does not tell either side that the other has gone.
    client.on('close', () => {
      this.pairs.delete(pair);
      server.destroy();
    });
    server.on('error', ignore);
    server.on('close', (hadError) => {
      if (this.swallowing) return;
      this.pairs.delete(pair);
      if (hadError) client.resetAndDestroy();
      else client.end();
    });
  }
}

function ignore(): void {
  // A fault is what this proxy is for; both sides see their sockets close.
}
