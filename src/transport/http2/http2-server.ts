/** Carries calls on HTTP/2 connections of our own making, at a fraction of what the gRPC library costs. */
import type { Socket } from 'node:net';
import type { Logger } from '../../model.js';
import type { CallLimits, CallServer, Methods } from '../calls.js';
import { Connection } from './connection.js';

export class Http2Server implements CallServer {
  private readonly connections = new Set<Connection>();
  private done: (() => void) | undefined;

  constructor(
    private readonly methods: Methods,
    private readonly limits: CallLimits,
    private readonly logger: Logger,
  ) {}

  accept(socket: Socket): void {
    const connection = new Connection(socket, this.methods, this.limits, {
      closed: (gone) => {
        this.connections.delete(gone);
        if (this.connections.size === 0) this.done?.();
      },
      failed: (error) => {
        this.logger.error({ err: error }, 'gRPC connection failed');
      },
    });
    this.connections.add(connection);
    if (this.done !== undefined) connection.leave();
  }

  get isAnswering(): boolean {
    for (const connection of this.connections) if (connection.isAnswering) return true;
    return false;
  }

  shutdown(done: () => void): void {
    this.done = done;
    for (const connection of this.connections) connection.leave();
    if (this.connections.size === 0) done();
  }

  destroy(): void {
    for (const connection of this.connections) connection.destroy();
  }
}
