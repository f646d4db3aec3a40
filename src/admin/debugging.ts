/**
 * What the debug port of Envoy's usual rate limit service has, under the same paths: the loaded rules, the
 * counts, and profiling, here of V8: a profile opens in the developer tools of a Chromium.
 */
import { Session } from 'node:inspector/promises';
import { getHeapStatistics } from 'node:v8';
import type { FastifyInstance } from 'fastify';
import type { Rule } from '../model.js';
import { problem } from './api.js';
import type { AdminSources } from './sources.js';
import { formatLimit } from './wording.js';

const LONGEST_PROFILE_S = 30;

export function addDebugging(server: FastifyInstance, sources: AdminSources): void {
  let profiling = false;

  server.get('/rlconfig', (_request, reply) =>
    reply.type('text/plain; charset=utf-8').send(dumpConfig(sources)),
  );

  server.get('/stats', async (_request, reply) =>
    reply.type('text/plain; charset=utf-8').send(await sources.stats()),
  );

  server.get('/debug/pprof/', (_request, reply) =>
    reply
      .type('text/plain; charset=utf-8')
      .send(
        '/debug/pprof/profile?seconds=5  a CPU profile (.cpuprofile), at most 30 s\n' +
          '/debug/pprof/heap               what the heap holds\n',
      ),
  );

  server.get('/debug/pprof/heap', () => ({
    process: process.memoryUsage(),
    heap: getHeapStatistics(),
  }));

  server.get<{ Querystring: { seconds?: string } }>(
    '/debug/pprof/profile',
    async ({ query }, reply) => {
      const seconds = Number(query.seconds ?? 5);
      if (!(seconds > 0 && seconds <= LONGEST_PROFILE_S)) {
        return problem(reply, 400, `\`seconds\` must be above 0 and at most ${LONGEST_PROFILE_S}`);
      }
      if (profiling) return problem(reply, 409, 'a profile is being taken already');
      profiling = true;
      try {
        const profile = await takeProfile(seconds * 1000);
        return await reply
          .header('content-disposition', 'attachment; filename="weir.cpuprofile"')
          .type('application/json')
          .send(profile);
      } finally {
        profiling = false;
      }
    },
  );
}

/** A line a rule, as the service's own files order them; with the place where each stands. */
function dumpConfig(sources: AdminSources): string {
  const snapshot = sources.snapshot();
  if (snapshot === undefined) return 'no configuration is loaded\n';
  return snapshot.rules
    .filter((rule) => rule.limits.length > 0 || rule.unlimited)
    .map((rule) => `${rule.domain}.${rule.path}: ${describe(rule)}\n`)
    .join('');
}

function describe(rule: Rule): string {
  const { file, line } = rule.position;
  const limits = rule.unlimited
    ? ['unlimited']
    : rule.limits.map((limit) =>
        [
          `unit=${limit.unit.toUpperCase()} requests_per_unit=${limit.requests}`,
          limit.algorithm === 'fixed_window' && limit.unitMultiplier === 1
            ? undefined
            : `(${limit.algorithm}: ${formatLimit(limit)})`,
        ]
          .filter((part) => part !== undefined)
          .join(' '),
      );
  const flags = [rule.shadow ? 'shadow_mode' : '', rule.quota ? 'quota_mode' : '']
    .filter((flag) => flag !== '')
    .map((flag) => `, ${flag}: true`)
    .join('');
  return `${limits.join(' and ')}${flags}  # ${file}:${line}`;
}

async function takeProfile(ms: number): Promise<string> {
  const session = new Session();
  session.connect();
  try {
    await session.post('Profiler.enable');
    await session.post('Profiler.start');
    await new Promise((resolve) => setTimeout(resolve, ms));
    const { profile } = await session.post('Profiler.stop');
    return JSON.stringify(profile);
  } finally {
    session.disconnect();
  }
}
