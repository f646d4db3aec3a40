/**
 * The socket that the gRPC server listens on: TCP or unix, plain or TLS. Owns every connection until
 * it ends, so that a shutdown can end those that do not speak HTTP/2 or do not answer. Knows no gRPC.
 */
import { lstatSync, unlinkSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:tls';
import type { Logger } from '../model.js';
import { hasDnsName, readCertificates, watchCertificates, type TlsFiles } from './tls.js';

export type ListenAddress =
  { readonly host: string; readonly port: number } | { readonly path: string };

/** A client that has not finished its TLS handshake by then is dropped. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** What may wait to be accepted: a fleet of Envoys reconnects at once after a restart. */
const BACKLOG = 1024;

export interface ListenerOptions {
  readonly address: ListenAddress;
  readonly tls: TlsFiles | undefined;
  readonly logger: Logger;
  /** How often certificate files are looked at; for tests. */
  readonly certificateIntervalMs?: number;
}

/** Accepts connections and passes them on, once TLS is done and the client's name is right. */
export class Listener {
  private readonly server: Server | TlsServer;
  private readonly sockets = new Set<Socket>();
  private readonly stopWatching: () => void;

  /** Throws when certificate files cannot be used. */
  constructor(
    private readonly options: ListenerOptions,
    onConnection: (connection: Socket) => void,
  ) {
    const { tls, logger } = options;
    if (tls === undefined) {
      // Not half open: a client that ends its side has gone, as far as calls are concerned.
      this.server = createServer({ allowHalfOpen: false, noDelay: true }, onConnection);
      this.stopWatching = () => undefined;
    } else {
      const server = createSecureServer(tls, onConnection, logger);
      this.server = server;
      this.stopWatching = watchCertificates(
        tls,
        (certificates) => {
          server.setSecureContext(certificates);
        },
        logger,
        options.certificateIntervalMs,
      );
    }
    this.server.on('connection', (socket: Socket) => {
      this.sockets.add(socket);
      socket.once('close', () => this.sockets.delete(socket));
      // A reset connection is the client's business; without a listener it would end the process.
      socket.on('error', () => undefined);
    });
  }

  /** Connections that are open now, TLS or not. */
  get connections(): number {
    return this.sockets.size;
  }

  /** Resolves with where it listens: the port, or 0 for a unix socket. Rejects when it cannot. */
  async listen(): Promise<number> {
    const { address } = this.options;
    if ('path' in address) await removeStaleSocket(address.path);
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen({ ...address, backlog: BACKLOG }, () => {
        this.server.off('error', reject);
        this.server.on('error', (error: Error) => {
          this.options.logger.error({ err: error.message }, 'gRPC listener failed');
        });
        resolve();
      });
    });
    const bound = this.server.address();
    return typeof bound === 'object' && bound !== null ? bound.port : 0;
  }

  /** Accepts nothing more; open connections stay. */
  close(): void {
    this.stopWatching();
    this.server.close();
  }

  /** Ends what is still open, whatever it is doing. */
  destroyConnections(): void {
    for (const socket of this.sockets) socket.destroy();
  }
}

function createSecureServer(
  tls: TlsFiles,
  onConnection: (connection: Socket) => void,
  logger: Logger,
): TlsServer {
  const server = createTlsServer({
    ...readCertificates(tls),
    ALPNProtocols: ['h2'],
    handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
    requestCert: tls.clientCa !== undefined,
    rejectUnauthorized: tls.clientCa !== undefined,
    noDelay: true,
  });
  server.on('secureConnection', (socket) => {
    socket.on('error', () => undefined);
    if (tls.clientSan !== undefined && !hasDnsName(socket.getPeerCertificate(), tls.clientSan)) {
      logger.warn({ peer: socket.remoteAddress }, 'client certificate lacks the wanted DNS name');
      socket.destroy();
      return;
    }
    onConnection(socket);
  });
  server.on('tlsClientError', (error, socket) => {
    logger.debug({ peer: socket.remoteAddress, err: error.message }, 'TLS handshake failed');
  });
  return server;
}

/**
 * A process that was killed leaves its socket file behind. It is removed only if nobody listens on it,
 * and never if it is something else than a socket.
 */
async function removeStaleSocket(path: string): Promise<void> {
  try {
    if (!lstatSync(path).isSocket()) return;
  } catch {
    // Not there: nothing to remove. Anything else will be said by listen.
    return;
  }
  const alive = await new Promise<boolean>((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', () => {
      resolve(false);
    });
  });
  if (!alive) unlinkSync(path);
}
