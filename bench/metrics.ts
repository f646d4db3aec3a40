/**
 * What metrics, the admin page's figures and the sampled log cost on the path of a request: the CPU time of a
 * service over gRPC and Redis with all of it, against the same service without. Runs alternate, and the
 * median of the differences counts. Then the share of a CPU profile that was in their functions, which does
 * not depend on who else runs; what they cost the garbage collector is not in it.
 * `npx tsx bench/metrics.ts [seconds a run] [pairs]`
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Profiler } from 'node:inspector';
import { Session } from 'node:inspector/promises';
import { watchedBy } from '../src/admin/service-sources.js';
import { RecentDecisions } from '../src/admin/recent-decisions.js';
import { loadConfig } from '../src/config/load.js';
import { createLimiter } from '../src/limiter.js';
import { Metrics, NO_METRICS } from '../src/metrics/metrics.js';
import type { Logger } from '../src/model.js';
import { RefusalLog } from '../src/log/refusal-log.js';
import { parseSettings } from '../src/settings/settings.js';
import { createStorage } from '../src/storage.js';
import { CounterKeys } from '../src/store/keys.js';
import { GrpcServer } from '../src/transport/grpc.js';
import { RedisServer } from '../test/support/redis-server.js';
import { Caller, closedLoop, Tally } from './caller.js';
import { encodeOne } from './wire.js';

const RULES = `
domain: bench
descriptors:
  - key: endpoint
    value: /pay
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 100 }
`;
const USERS = 10_000;
const IN_FLIGHT = 64;
const PROFILE_MS = 4000;

const nothing = (): void => undefined;
const silent: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing };

/** The part of busy time that was in what observes decisions, or in what that calls. */
function shareOf({ nodes, samples, timeDeltas }: Profiler.Profile): number {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Map(
    nodes.flatMap(({ id, children }) => (children ?? []).map((c) => [c, id])),
  );
  let busy = 0;
  let observing = 0;
  for (const [i, sample] of (samples ?? []).entries()) {
    const spent = timeDeltas?.[i] ?? 0;
    if (byId.get(sample)?.callFrame.functionName === '(idle)') continue;
    busy += spent;
    for (let id: number | undefined = sample; id !== undefined; id = parents.get(id)) {
      const { functionName = '', url = '' } = byId.get(id)?.callFrame ?? {};
      if (!/^observe(?:Decision|Request)$/.test(functionName) || !url.includes('/src/')) continue;
      observing += spent;
      break;
    }
  }
  return observing / busy;
}

/** Serves until told to end; says its port, then at each question its CPU time in µs. */
async function serve(redisPort: number, watched: boolean): Promise<void> {
  const { settings } = parseSettings({ REDIS_URL: `127.0.0.1:${redisPort}` });
  const { snapshot } = loadConfig([{ name: 'bench.yaml', text: RULES }], {
    mergeDomains: false,
    defaultOnStoreError: 'allow',
    generation: 1,
    nowMs: Date.now(),
  });
  const nowMs = (): number => performance.now();
  const metrics = new Metrics({
    version: '',
    store: 'redis',
    nearLimitRatio: 0.8,
    detailedMaxSeries: 500,
    nowMs: () => Date.now(),
  });
  const nowUs = (): number => Date.now() * 1000;
  const storage = createStorage({ settings, observer: metrics, logger: silent, nowMs, nowUs });
  const limiter = createLimiter({
    snapshot: () => snapshot,
    keys: new CounterKeys(''),
    gate: storage.gate,
    fallback: storage.fallback,
    instances: () => 1,
    nowUs,
    shadowMode: false,
    quotaMode: false,
    stopIncrement: undefined,
    defaultOnStoreError: 'allow',
  });
  const refusals = new RefusalLog({ logger: silent, nowMs });
  const recent = new RecentDecisions({
    nowMs: () => Date.now(),
    refused: (rule, limit) => {
      refusals.refused(rule, limit);
    },
  });
  const server = new GrpcServer(
    {
      address: { host: '127.0.0.1', port: 0 },
      tls: undefined,
      maxMessageBytes: settings.grpc.maxMessageBytes,
      maxConcurrentStreams: settings.grpc.maxConcurrentStreams,
      maxConnectionAgeMs: settings.grpc.maxConnectionAgeMs,
      maxConnectionAgeGraceMs: settings.grpc.graceMs,
      ipv6Prefix: 64,
      decisionTimeoutMs: 1000,
      maxDescriptors: 128,
      envoy: { headers: undefined, dynamicMetadata: false },
    },
    {
      limiter,
      observer: watched ? watchedBy(metrics, recent) : NO_METRICS,
      health: { serving: () => true, onChange: nothing, ready: () => ({ ok: true, reason: '' }) },
      logger: silent,
    },
  );
  storage.start();
  const port = await server.start();
  const session = new Session();
  process.on('message', (question) => {
    if (question === 'cpu') {
      const { user, system } = process.cpuUsage();
      process.send?.({ cpuUs: user + system });
      return;
    }
    void (async () => {
      session.connect();
      await session.post('Profiler.enable');
      await session.post('Profiler.start');
      await new Promise((resolve) => setTimeout(resolve, PROFILE_MS));
      const { profile } = await session.post('Profiler.stop');
      process.send?.({ share: shareOf(profile) });
    })();
  });
  process.on('disconnect', () => {
    process.exit();
  });
  process.send?.({ port });
}

interface Told {
  readonly port?: number;
  readonly cpuUs?: number;
  readonly share?: number;
}

async function told(child: ChildProcess): Promise<Told> {
  const [message] = (await once(child, 'message')) as [Told]; // as `serve` sends it
  return message;
}

/** CPU time of the service for one request, in µs; or the share of its time that observing takes. */
async function run(
  redisPort: number,
  watched: boolean,
  seconds: number,
  what: 'cpu' | 'share' = 'cpu',
): Promise<number> {
  const child = fork(process.argv[1] ?? '', ['serve', String(redisPort), String(watched)], {
    execArgv: ['--import', 'tsx'],
  });
  const { port } = await told(child);
  const caller = await Caller.open(port ?? 0, 4);
  const requests = Array.from({ length: USERS }, (_, i) => encodeOne('/pay', String(i)));
  const send = (tally: Tally) => (done: () => void) => {
    const request = requests[Math.floor(Math.random() * USERS)] ?? Buffer.alloc(0);
    caller.ask(request, (verdict, ms) => {
      tally.note(verdict, ms);
      done();
    });
  };
  const cpuUs = async (): Promise<number> => {
    child.send('cpu');
    return (await told(child)).cpuUs ?? 0;
  };
  await closedLoop(IN_FLIGHT, 2, send(new Tally())); // code gets warm
  const before = await cpuUs();
  const tally = new Tally();
  if (what === 'share') child.send('profile');
  const share = what === 'share' ? told(child) : undefined;
  await closedLoop(IN_FLIGHT, seconds, send(tally));
  const used = share === undefined ? (await cpuUs()) - before : ((await share).share ?? 0);
  caller.close();
  child.disconnect();
  await once(child, 'exit');
  return share === undefined ? used / tally.count : used;
}

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

if (process.argv[2] === 'serve') {
  await serve(Number(process.argv[3]), process.argv[4] === 'true');
} else {
  const seconds = Number(process.argv[2] ?? 4);
  const pairs = Number(process.argv[3] ?? 5);
  const redis = await RedisServer.start();
  try {
    const without: number[] = [];
    const withAll: number[] = [];
    for (let i = 0; i < pairs; i++) {
      without.push(await run(redis.port, false, seconds));
      withAll.push(await run(redis.port, true, seconds));
    }
    const cost = median(withAll.map((each, i) => each - (without[i] ?? NaN)));
    console.log(
      `CPU a request: ${median(without).toFixed(1)} µs without, ${median(withAll).toFixed(1)} with`,
    );
    console.log(
      `metrics cost ${cost.toFixed(2)} µs a request, ${((cost / median(without)) * 100).toFixed(1)} %`,
    );
    const share = await run(redis.port, true, PROFILE_MS / 1000 + 1, 'share');
    console.log(`share of the service's time by its profile: ${(share * 100).toFixed(1)} %`);
  } finally {
    await redis.stop();
  }
}
