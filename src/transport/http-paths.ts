/**
 * An HTTP server of a few fixed paths: methods, time-outs against slow clients, bodies with a bound, and
 * answers. Knows nothing of what the paths are for.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';

/** Longer than load balancers keep an idle connection, so that it is they who close it. */
const KEEP_ALIVE_MS = 75_000;
const MAX_HEADER_BYTES = 16_384;

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** What a path answers, and to which methods. */
export interface Route {
  readonly methods: readonly string[];
  readonly handle: Handler;
}

/** The methods of a path that is only read. */
export const READING: readonly string[] = ['GET', 'HEAD'];

/**
 * A server that does not listen yet. Other paths are 404, other methods 405; a request that has not come
 * in whole within `requestTimeoutMs` is 408.
 */
export function createHttpServer(
  routes: ReadonlyMap<string, Route>,
  requestTimeoutMs: number,
): Server {
  return createServer(
    {
      requestTimeout: requestTimeoutMs,
      headersTimeout: requestTimeoutMs,
      connectionsCheckingInterval: Math.min(1000, requestTimeoutMs),
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      noDelay: true,
    },
    (request, response) => {
      const path = (request.url ?? '/').split('?', 1)[0] ?? '/';
      const route = routes.get(path);
      if (route === undefined) {
        sendError(response, 404, 'no such path');
      } else if (!route.methods.includes(request.method ?? '')) {
        response.setHeader('allow', route.methods.join(', '));
        sendError(response, 405, `method: ${route.methods.join(' or ')} only`);
      } else route.handle(request, response);
    },
  );
}

/** Resolves with the port once it listens; rejects when it cannot. */
export async function listen(server: Server, host: string, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    // `::` is every address; left out, Node falls back to IPv4 where there is no IPv6.
    server.listen({ port, ...(host !== '::' && { host }) }, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : port;
}

/**
 * Takes no more connections; resolves when requests in flight are answered, or cut after the time-out.
 */
export async function closeServer(server: Server, timeoutMs: number): Promise<void> {
  if (!server.listening) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(() => {
      server.closeAllConnections();
    }, timeoutMs);
    server.close(() => {
      clearTimeout(timer);
      resolve();
    });
    server.closeIdleConnections();
  });
}

/** Gives the body, undefined when it is too long; nothing when the client goes before its end. */
export function readBody(
  request: IncomingMessage,
  maxBytes: number,
  done: (body: Buffer | undefined) => void,
): void {
  const chunks: Buffer[] = [];
  let length = 0;
  request.on('data', (chunk: Buffer) => {
    length += chunk.length;
    if (length <= maxBytes) chunks.push(chunk);
    else if (length - chunk.length <= maxBytes) done(undefined);
  });
  request.on('end', () => {
    if (length <= maxBytes) done(Buffer.concat(chunks));
  });
  // The client is gone; there is nobody to tell.
  request.on('error', () => undefined);
}

/** Answers with exactly this text. */
export function sendText(response: ServerResponse, status: number, text: string): void {
  send(response, status, 'text/plain; charset=utf-8', text);
}

/** Answers `{"error": message}`. */
export function sendError(response: ServerResponse, status: number, message: string): void {
  // What is left of a body that nobody reads must not be taken for the next request.
  sendJson(response, status, { error: message }, status === 413 ? { connection: 'close' } : {});
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string | number>>,
): void {
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  send(response, status, 'application/json', JSON.stringify(body));
}

/** Answers, unless that has been done or nobody is there. */
export function send(
  response: ServerResponse,
  status: number,
  contentType: string,
  body: string | readonly Buffer[],
): void {
  if (response.destroyed || response.headersSent) return;
  const pieces = typeof body === 'string' ? [Buffer.from(body)] : body;
  response.writeHead(status, {
    'content-type': contentType,
    'content-length': pieces.reduce((sum, piece) => sum + piece.length, 0),
    'x-content-type-options': 'nosniff',
  });
  for (const piece of pieces.slice(0, -1)) response.write(piece);
  response.end(pieces.at(-1));
}
