/**
 * The JSON API under /api/v1, which the page and the command line use. Reads look at counters and take
 * nothing; the one change is a reset, of counters that an exact descriptor names.
 */
import type { FastifyInstance, FastifyReply } from 'fastify';
import { RequestError } from '../limiter.js';
import type { Descriptor, Entry } from '../model.js';
import { refuseChange, type AccessOptions } from './access.js';
import { DescriptorTextError, parseDescriptor } from './descriptor-text.js';
import { explainRequest, type ExplainedDescriptor } from './explanation.js';
import type { AdminSources, Identity } from './sources.js';
import { findRule, heaviestOf, limitedRules, refusalsOf, rulesOf, statusOf } from './views.js';

const MOST_DESCRIPTORS = 32;
// As for decisions; each entry is held against every rule.
const MOST_ENTRIES = 32;
const MOST_ATTRIBUTES = 16;
const MOST_VALUES = 200;

/** What is wrong with a question; its message is for the one who asked. */
class QuestionError extends Error {
  override readonly name = 'QuestionError';
  readonly code = 'question_error';
}

/** What `explain`, `inspect` and `reset` take as their body, checked. */
interface Question {
  readonly domain: string;
  readonly descriptors: readonly Descriptor[];
}

export function addApi(
  server: FastifyInstance,
  sources: AdminSources,
  access: AccessOptions,
): void {
  server.get('/api/v1/status', () => statusOf(sources));

  server.get('/api/v1/settings', () => sources.settings());

  server.get<{ Querystring: { domain?: string } }>('/api/v1/rules', async ({ query }) => ({
    nowMs: sources.nowMs(),
    rules: await rulesOf(sources, query.domain),
  }));

  server.get<{ Querystring: { domain?: string; rule?: string; by?: string; n?: string } }>(
    '/api/v1/top',
    async ({ query }, reply) => {
      const by = query.by === 'rejected' ? 'rejected' : 'requests';
      const most = Math.min(MOST_VALUES, Math.max(1, Number(query.n ?? 20) || 20));
      if (query.rule === undefined) {
        const rules = limitedRules(sources).filter(
          (rule) => query.domain === undefined || rule.domain === query.domain,
        );
        const recent = await sources.recent({ kind: 'values' });
        const values = heaviestOf(recent, rules, most, by);
        return { nowMs: sources.nowMs(), values, refusals: [] };
      }
      const rule = findRule(sources, query.domain ?? '', query.rule);
      if (rule === undefined) {
        return problem(reply, 404, 'there is no such rule in that domain');
      }
      const { domain, path } = rule;
      const recent = await sources.recent({ kind: 'values', rule: { domain, path } });
      return {
        nowMs: sources.nowMs(),
        values: heaviestOf(recent, [rule], most, by),
        refusals: refusalsOf(recent, rule, most),
      };
    },
  );

  server.post('/api/v1/explain', async ({ body }) => {
    const { domain, descriptors } = readQuestion(body, sources, 'any');
    return explainRequest(sources, domain, descriptors);
  });

  server.post('/api/v1/inspect', async ({ body }) => {
    const { domain, descriptors } = readQuestion(body, sources, 'any');
    const explained = await explainRequest(sources, domain, descriptors);
    // What a counter says, without the rules that do not count it.
    return { ...explained, descriptors: explained.descriptors.map(withoutRules) };
  });

  server.post('/api/v1/reset', async ({ body, headers, method, ip }, reply) => {
    const refused = refuseChange({ headers, method, address: ip, isShell: false }, access);
    if (refused !== undefined) return problem(reply, refused.status, refused.message);
    const { domain, descriptors } = readQuestion(body, sources, 'exact');
    const before = await explainRequest(sources, domain, descriptors);
    const only = readKeys(body);
    const keys = before.descriptors
      .flatMap(({ counters }) => counters.map(({ key }) => key))
      .filter((key) => only === undefined || only.includes(key));
    if (keys.length === 0) return problem(reply, 404, 'no limit counts this descriptor');
    const existed = await sources.reset(keys);
    const [first] = before.descriptors;
    sources.logger.warn(
      { domain, descriptor: first?.descriptor, rule: first?.rule?.path, existed, from: ip },
      'counters were reset by hand',
    );
    return {
      reset: keys,
      existed,
      before: before.descriptors,
      after: await explainRequest(sources, domain, descriptors),
    };
  });

  server.setErrorHandler((error, _request, reply) => {
    if (error instanceof QuestionError || error instanceof DescriptorTextError) {
      return problem(reply, 400, error.message);
    }
    if (error instanceof RequestError) {
      return problem(reply, error.code === 'invalid_argument' ? 400 : 503, error.message);
    }
    const status = statusCodeOf(error);
    if (status !== undefined && status < 500) return problem(reply, status, messageOf(error));
    sources.logger.error({ err: error }, 'the admin server failed to answer');
    return problem(reply, 500, 'the server failed to answer; its log says why');
  });
}

/** Answers with `{ error }`. */
export function problem(reply: FastifyReply, status: number, message: string): FastifyReply {
  return reply.code(status).send({ error: message });
}

function withoutRules(explained: ExplainedDescriptor): ExplainedDescriptor {
  return { ...explained, rules: [] };
}

function statusCodeOf(error: unknown): number | undefined {
  return error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number'
    ? error.statusCode
    : undefined;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * `{ domain, descriptors: ["endpoint=/pay,user=42"] }`, where a descriptor may also be a list of
 * `{ key, value }`, or `{ domain, identity: { endpoint, user, ip, api_key, attributes } }`, which stands
 * for all descriptors that the native API makes of it. `exact` takes one descriptor only.
 */
function readQuestion(body: unknown, sources: AdminSources, kind: 'any' | 'exact'): Question {
  const { domain, descriptors, identity } = asRecord(body, 'the body');
  if (typeof domain !== 'string' || domain === '') throw new QuestionError('`domain` is needed');
  if (identity !== undefined) {
    if (kind === 'exact') {
      throw new QuestionError(
        'a reset takes one descriptor: an identity stands for counters that others share',
      );
    }
    return { domain, descriptors: sources.describe(readIdentity(identity)) };
  }
  if (!Array.isArray(descriptors) || descriptors.length === 0) {
    throw new QuestionError('`descriptors` or `identity` is needed');
  }
  if (kind === 'exact' && descriptors.length !== 1) {
    throw new QuestionError('a reset takes exactly one descriptor');
  }
  if (descriptors.length > MOST_DESCRIPTORS) {
    throw new QuestionError(`at most ${MOST_DESCRIPTORS} descriptors at once`);
  }
  return {
    domain,
    descriptors: descriptors.map((descriptor: unknown) => ({
      entries: readEntries(descriptor),
      override: undefined,
      hits: undefined,
      giveBack: false,
    })),
  };
}

function readEntries(descriptor: unknown): readonly Entry[] {
  if (typeof descriptor === 'string') return bounded(parseDescriptor(descriptor));
  if (!Array.isArray(descriptor) || descriptor.length === 0) {
    throw new QuestionError('a descriptor is a text like `user=42` or a list of { key, value }');
  }
  return bounded(descriptor).map((entry: unknown) => {
    const { key, value } = asRecord(entry, 'an entry');
    if (typeof key !== 'string' || typeof value !== 'string') {
      throw new QuestionError('an entry has a `key` and a `value`, both texts');
    }
    return { key, value };
  });
}

function bounded<Item>(entries: readonly Item[]): readonly Item[] {
  if (entries.length <= MOST_ENTRIES) return entries;
  throw new QuestionError(`a descriptor has at most ${MOST_ENTRIES} entries`);
}

function readIdentity(given: unknown): Identity {
  const { attributes, ...fields } = asRecord(given, '`identity`');
  const identity: Record<string, string> = {};
  for (const name of ['endpoint', 'user', 'ip', 'api_key']) {
    const value = fields[name];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'string') throw new QuestionError(`\`identity.${name}\` must be a text`);
    identity[name] = value;
  }
  if (attributes === undefined) return identity;
  const read: Record<string, string> = {};
  for (const [name, value] of Object.entries(asRecord(attributes, '`identity.attributes`'))) {
    if (typeof value !== 'string') throw new QuestionError(`the attribute ${name} must be a text`);
    read[name] = value;
  }
  if (Object.keys(read).length > MOST_ATTRIBUTES) {
    throw new QuestionError(`an identity has at most ${MOST_ATTRIBUTES} attributes`);
  }
  return { ...identity, attributes: read };
}

function readKeys(body: unknown): readonly string[] | undefined {
  const { keys } = asRecord(body, 'the body');
  if (keys === undefined) return undefined;
  if (!Array.isArray(keys)) throw new QuestionError('`keys` is a list of counter keys');
  return keys.filter((key): key is string => typeof key === 'string');
}

function asRecord(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new QuestionError(`${what} must be a JSON object`);
  }
  return { ...value };
}
