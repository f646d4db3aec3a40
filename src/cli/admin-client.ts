/** What the commands for people on call share: the admin API of a running server, and how to reach it. */
import { Option, type Command } from 'commander';
import { DescriptorTextError, parseDescriptor } from '../admin/descriptor-text.js';
import type { Status } from '../admin/views.js';
import type { Entry } from '../model.js';
import type { Terminal } from './terminal.js';

/** Options of every command that asks the admin server. */
export interface AdminOptions {
  readonly server: string;
  readonly token?: string;
  readonly domain?: string;
  readonly json?: true;
}

/** Why there is no answer, for the one who asked. */
export class NoAnswerError extends Error {
  override readonly name = 'NoAnswerError';
  readonly code = 'no_answer';
}

const PATIENCE_MS = 5000;

/** Adds `--server`, `--token`, `--domain` and `--json`. */
export function withAdminOptions(command: Command, domain: string): Command {
  return command
    .addOption(
      new Option('-s, --server <address>', "the server's admin address (DEBUG_HOST, DEBUG_PORT)")
        .default('127.0.0.1:6070')
        .env('WEIR_ADMIN'),
    )
    .addOption(new Option('--token <token>', 'its ADMIN_TOKEN, if it has one').env('ADMIN_TOKEN'))
    .option('-d, --domain <name>', domain)
    .option('--json', 'print the answer as JSON');
}

/** Asks; a body makes it a POST. Throws NoAnswerError with what the server says, or why it cannot. */
export async function askAdmin(
  options: AdminOptions,
  path: string,
  body?: unknown,
): Promise<unknown> {
  const base = /^https?:\/\//.test(options.server) ? options.server : `http://${options.server}`;
  const headers: Record<string, string> = { 'x-weir-admin': '1' };
  if (options.token !== undefined) headers['authorization'] = `Bearer ${options.token}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response: Response;
  try {
    response = await fetch(new URL(path, base), {
      method: body === undefined ? 'GET' : 'POST',
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    throw new NoAnswerError(
      `cannot reach ${options.server}: is Weir running there, and is this its admin port? ` +
        `(${reasonOf(error)})`,
      { cause: error },
    );
  }
  const answer: unknown = await response.json().catch(() => undefined);
  if (response.ok && answer !== undefined) return answer;
  if (response.status === 401) {
    throw new NoAnswerError(
      `${options.server} wants its admin token: --token, or ADMIN_TOKEN in the environment`,
    );
  }
  const told =
    typeof answer === 'object' && answer !== null && 'error' in answer
      ? String(answer.error)
      : `it answers with HTTP ${String(response.status)}; is this Weir's admin port?`;
  throw new NoAnswerError(`${options.server}: ${told}`);
}

/** The domain that is meant: the one named, or the only one that there is. */
export async function chooseDomain(options: AdminOptions): Promise<string> {
  if (options.domain !== undefined) return options.domain;
  const status = (await askAdmin(options, '/api/v1/status')) as Status; // the API's own type
  const domains = status.config?.domains ?? [];
  const [only] = domains;
  if (only !== undefined && domains.length === 1) return only;
  throw new NoAnswerError(
    domains.length === 0
      ? `${options.server} has no domain loaded`
      : `say which domain with --domain: ${domains.join(', ')}`,
  );
}

/** What a command line asks about: descriptors as they are, or what is known of a caller. */
export function questionOf(
  domain: string,
  descriptors: readonly string[],
  native: boolean,
): { readonly domain: string } & Record<string, unknown> {
  const parsed = descriptors.map(parseDescriptor);
  if (!native) return { domain, descriptors: parsed };
  return { domain, identity: identityOf(parsed.flat()) };
}

function identityOf(entries: readonly Entry[]): Record<string, unknown> {
  const identity: Record<string, string> = {};
  const attributes: Record<string, string> = {};
  for (const { key, value } of entries) {
    if (['endpoint', 'user', 'ip', 'api_key'].includes(key)) identity[key] = value;
    else attributes[key] = value;
  }
  return { ...identity, attributes };
}

/** Runs a command; what goes wrong outside of it is said in a line, with exit code 2. */
export async function answerOrComplain(
  terminal: Terminal,
  run: () => Promise<void>,
): Promise<void> {
  try {
    await run();
  } catch (error) {
    if (!(error instanceof NoAnswerError || error instanceof DescriptorTextError)) throw error;
    terminal.complain(`error: ${error.message}\n`);
    terminal.fail(2);
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error && error.cause.message !== ''
    ? error.cause.message
    : error.message;
}
