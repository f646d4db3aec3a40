/**
 * Who may ask the admin server for what. It can reset counters, so a page of another site must not be
 * able to use the browser of somebody who can reach it: not by a form, a script or a rebound name.
 */
import { timingSafeEqual, createHash } from 'node:crypto';
import { isIP } from 'node:net';
import { hostname } from 'node:os';

/** The header that each change has to carry. A form cannot send it, a script of another site may not. */
export const CHANGE_HEADER = 'x-weir-admin';

export interface AccessOptions {
  /** ADMIN_TOKEN; undefined: none is needed. */
  readonly token: string | undefined;
  /** Where the server listens: a name that is fine in `Host`. */
  readonly host: string;
}

/** What of a request matters here. Header names are in lower case. */
export interface AccessRequest {
  readonly method: string;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** The peer's address. */
  readonly address: string;
  /** The page's own files: they hold no data, and a browser cannot send a token for them. */
  readonly isShell: boolean;
}

export interface Refusal {
  readonly status: 401 | 403 | 415;
  readonly message: string;
}

/** Undefined when the request may go on. */
export function refuseAccess(request: AccessRequest, options: AccessOptions): Refusal | undefined {
  const { headers } = request;
  const host = text(headers.host);
  if (options.token === undefined && !isOurName(host, options.host)) {
    return { status: 403, message: `the name \`${host}\` is not one of this server's` };
  }
  if (request.isShell) return undefined;
  // A page of another site could make a browser ask, without reading the answer: for a profile, say.
  if (/^(?:cross-site|same-site)$/.test(text(headers['sec-fetch-site']))) {
    return { status: 403, message: 'not from another site' };
  }
  if (options.token !== undefined && !hasToken(text(headers.authorization), options.token)) {
    return { status: 401, message: 'the admin token is needed: Authorization: Bearer …' };
  }
  if (request.method === 'GET' || request.method === 'HEAD') return undefined;
  const origin = text(headers.origin);
  if (origin !== '' && hostOf(origin) !== host.toLowerCase()) {
    return { status: 403, message: `not from another site (${origin})` };
  }
  if (!/^application\/json(?:\s*;|$)/i.test(text(headers['content-type']))) {
    return { status: 415, message: 'the body must be application/json' };
  }
  return undefined;
}

/** For what changes something, in addition. Undefined when it may go on. */
export function refuseChange(request: AccessRequest, options: AccessOptions): Refusal | undefined {
  if (text(request.headers[CHANGE_HEADER]) !== '1') {
    return { status: 403, message: 'a change needs the header X-Weir-Admin: 1' };
  }
  if (options.token === undefined && !isLoopback(request.address)) {
    return {
      status: 403,
      message: 'without an ADMIN_TOKEN, changes are taken from this host only',
    };
  }
  return undefined;
}

/** Without a token, only names that no stranger's DNS can point here are taken. */
function isOurName(host: string, listening: string): boolean {
  const name = host.toLowerCase().replace(/:\d+$/, '');
  const bare = name.replace(/^\[(.*)\]$/, '$1');
  return (
    isIP(bare) !== 0 ||
    bare === 'localhost' ||
    bare.endsWith('.localhost') ||
    bare === listening.toLowerCase() ||
    bare === hostname().toLowerCase()
  );
}

function hasToken(authorization: string, token: string): boolean {
  const given = /^Bearer (.+)$/i.exec(authorization)?.[1] ?? '';
  // Digests have one length, which the comparison needs, whatever was sent.
  return timingSafeEqual(sha256(given), sha256(token));
}

function sha256(value: string): Buffer {
  return createHash('sha256').update(value).digest();
}

function hostOf(origin: string): string | undefined {
  return URL.canParse(origin) ? new URL(origin).host : undefined;
}

function isLoopback(address: string): boolean {
  return address === '::1' || /^(?:::ffff:)?127\./.test(address);
}

function text(header: string | readonly string[] | undefined): string {
  return typeof header === 'string' ? header : '';
}
