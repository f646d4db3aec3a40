/**
 * The admin server: the page, the API behind it and the debug endpoints, on a port of its own. Bound to
 * loopback unless DEBUG_HOST says otherwise.
 */
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { fastify, type FastifyInstance } from 'fastify';
import { refuseAccess } from './access.js';
import { addApi, problem } from './api.js';
import { addDebugging } from './debugging.js';
import type { AdminSources } from './sources.js';

const MAX_BODY_BYTES = 256 * 1024;

/** The page's own files, by the path under which they are served. */
const SHELL: ReadonlyMap<string, { readonly file: string; readonly type: string }> = new Map([
  ['/', { file: 'index.html', type: 'text/html; charset=utf-8' }],
  ['/page.css', { file: 'page.css', type: 'text/css; charset=utf-8' }],
  ['/page.js', { file: 'page.js', type: 'text/javascript; charset=utf-8' }],
  ['/favicon.svg', { file: 'favicon.svg', type: 'image/svg+xml' }],
]);

const HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cache-control': 'no-store',
};

export interface AdminServerOptions {
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  /** ADMIN_TOKEN; undefined: reads are open to who can reach the port, changes to this host only. */
  readonly token: string | undefined;
}

export interface AdminServer {
  /** Resolves with where it listens, once it does. */
  start(): Promise<{ readonly host: string; readonly port: number }>;
  /** Answers no more; resolves when all connections are closed. */
  stop(): Promise<void>;
}

/** Starts nothing. Throws when a file of the page is missing. */
export function createAdminServer(options: AdminServerOptions, sources: AdminSources): AdminServer {
  const server = fastify({ bodyLimit: MAX_BODY_BYTES, forceCloseConnections: true });
  const access = { token: options.token, host: options.host };
  // A form of another site can send text/plain without asking; nobody else needs it.
  server.removeContentTypeParser('text/plain');

  server.addHook('onRequest', async ({ headers, method, ip, url }, reply) => {
    void reply.headers(HEADERS);
    const path = url.split('?')[0] ?? '';
    const isShell = (SHELL.has(path) || path === '/healthz') && method === 'GET';
    const refused = refuseAccess({ headers, method, address: ip, isShell }, access);
    if (refused === undefined) return;
    if (refused.status === 401) void reply.header('www-authenticate', 'Bearer realm="weir"');
    await problem(reply, refused.status, refused.message);
  });

  server.get('/healthz', (_request, reply) => reply.type('text/plain').send('OK'));
  addShell(server);
  addApi(server, sources, access);
  addDebugging(server, sources);
  server.setNotFoundHandler((_request, reply) => problem(reply, 404, 'there is nothing here'));

  return {
    async start() {
      await server.listen({ host: options.host, port: options.port });
      const address = server.server.address();
      const { port } = address as AddressInfo; // it listens on TCP, so there is one
      return { host: options.host, port };
    },
    async stop() {
      await server.close();
    },
  };
}

function addShell(server: FastifyInstance): void {
  for (const [path, { file, type }] of SHELL) {
    const content = readFileSync(new URL(`./page/${file}`, import.meta.url));
    server.get(path, (_request, reply) => reply.type(type).send(content));
  }
}
