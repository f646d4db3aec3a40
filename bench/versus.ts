/**
 * Weir beside a peer (PEER, a command that serves Envoy's API and reads the usual environment variables), or
 * beside an empty handler: requests a second, CPU of the server and of Redis a request, and latency at a
 * fixed rate. Each server is pinned to core 0; Redis and the load share core 1. Weir's numbers differ from
 * run to run with who else uses the machine; the ratios of one run do not much. Medians over the rounds.
 *
 * `[PEER=…] [ROUNDS=3] [SECONDS=4] [RATE=3000] node --import tsx bench/versus.ts`
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { ALGORITHM_NAMES } from '../src/model.js';
import { freePort } from '../test/support/redis-server.js';
import type { LoadOptions, LoadResult } from './load.js';

const ROUNDS = Number(process.env['ROUNDS'] ?? 3);
const SECONDS = Number(process.env['SECONDS'] ?? 4);
const RATE = Number(process.env['RATE'] ?? 3000);
const { PEER } = process.env;
const KEYS = ['hot', 'uniform', 'zipf'] as const;
type Keys = (typeof KEYS)[number];

interface Contender {
  readonly name: string;
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly keys: readonly Keys[];
  /** By which algorithm its requests are counted: the endpoint that it is asked for. */
  readonly endpoint: string;
  readonly withRedis: boolean;
  /** Limit of a user a minute; by default so many that nothing is refused. */
  readonly limit?: number;
}

interface Figures {
  readonly 'requests/s': number;
  readonly 'server µs': number;
  readonly 'Redis µs': number;
  readonly commands: number;
  readonly 'p50 ms': number;
  readonly 'p99 ms': number;
  readonly 'p99.9 ms': number;
  readonly MB: number;
  readonly failed: number;
}

const weir = ['node', 'dist/main.js', 'serve'];
const baseline: Contender =
  PEER === undefined
    ? {
        name: 'empty handler',
        command: ['node', '--import', 'tsx', 'bench/echo.ts'],
        keys: ['hot'],
        endpoint: '/fixed_window',
        withRedis: false,
      }
    : {
        name: 'peer',
        command: PEER.split(' '),
        keys: KEYS,
        endpoint: '/fixed_window',
        withRedis: true,
      };
const contenders: readonly Contender[] = [
  baseline,
  { name: 'weir', command: weir, keys: KEYS, endpoint: '/fixed_window', withRedis: true },
  {
    name: 'weir, GRPC_SERVER=grpc-js',
    command: weir,
    env: { GRPC_SERVER: 'grpc-js' },
    keys: KEYS,
    endpoint: '/fixed_window',
    withRedis: true,
  },
  ...ALGORITHM_NAMES.slice(1).map((algorithm) => ({
    name: `weir, ${algorithm}`,
    command: weir,
    keys: ['hot', 'uniform'] as const,
    endpoint: `/${algorithm}`,
    withRedis: true,
    ...(algorithm === 'sliding_window' && { limit: 1000 }),
  })),
  {
    name: 'weir, exhausted key',
    command: weir,
    keys: ['hot'],
    endpoint: '/fixed_window',
    withRedis: true,
    limit: 1,
  },
  {
    name: 'weir, in memory',
    command: weir,
    keys: ['hot', 'uniform'],
    endpoint: '/fixed_window',
    withRedis: false,
  },
];

function rules(endpoint: string, limit: number): string {
  const algorithm = endpoint.slice(1);
  const extra = algorithm === 'fixed_window' ? '' : `, algorithm: ${algorithm}`;
  return `
domain: bench
descriptors:
  - key: endpoint
    rate_limit: { unit: hour, requests_per_unit: 4000000000 }
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: ${limit}${extra} }
`;
}

/** What a run that is broken off leaves behind ends with it. */
const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

function pinned(core: number, command: readonly string[], env = process.env): ChildProcess {
  const child = spawn('taskset', ['-c', String(core), ...command], { env, stdio: 'ignore' });
  running.add(child);
  child.once('exit', () => running.delete(child));
  return child;
}

async function load(options: LoadOptions): Promise<LoadResult> {
  const node = ['node', '--import', 'tsx', 'bench/load.ts', JSON.stringify(options)];
  const { stdout } = await promisify(execFile)('taskset', ['-c', '1', ...node]);
  return JSON.parse(stdout) as LoadResult; // printed by bench/load.ts
}

async function untilOpen(port: number): Promise<void> {
  for (let i = 0; i < 400; i++) {
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1');
      socket.on('connect', () => {
        socket.destroy();
        resolve(true);
      });
      socket.on('error', () => {
        resolve(false);
      });
    });
    if (isOpen) return;
    await pause(50);
  }
  throw new Error(`nothing listens on port ${port}`);
}

/** CPU that a process has used so far, in µs; the kernel counts in ticks of 10 ms. */
function cpuUs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

function megabytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024);
}

/** One server from its start to its end: closed loop, then open. */
async function measure(contender: Contender, keys: Keys): Promise<Figures> {
  const root = mkdtempSync(path.join(tmpdir(), 'weir-versus-'));
  const directory = path.join(root, 'ratelimit', 'config');
  mkdirSync(directory, { recursive: true });
  const { endpoint, limit = 100_000_000 } = contender;
  writeFileSync(path.join(directory, 'bench.yaml'), rules(endpoint, limit));
  const [redisPort, port, httpPort, debugPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  const store = pinned(1, ['redis-server', '--port', String(redisPort), '--save', '']);
  await untilOpen(redisPort);
  const redis = new Redis(redisPort);
  const server = pinned(0, contender.command, {
    ...process.env,
    RUNTIME_ROOT: root,
    RUNTIME_SUBDIRECTORY: 'ratelimit',
    RUNTIME_WATCH_ROOT: 'false',
    USE_STATSD: 'false',
    LOG_LEVEL: 'error',
    HOST: '127.0.0.1',
    GRPC_HOST: '127.0.0.1',
    DEBUG_HOST: '127.0.0.1',
    GRPC_PORT: String(port),
    PORT: String(httpPort),
    DEBUG_PORT: String(debugPort),
    ...(contender.withRedis
      ? {
          BACKEND_TYPE: 'redis',
          REDIS_TYPE: 'SINGLE',
          REDIS_SOCKET_TYPE: 'tcp',
          REDIS_URL: `127.0.0.1:${redisPort}`,
        }
      : { BACKEND_TYPE: 'memory' }),
    ...contender.env,
  });
  try {
    await untilOpen(port);
    await pause(500);
    const [serverPid, redisPid] = [server.pid ?? 0, store.pid ?? 0];
    const commands = async (): Promise<number> =>
      Number(/total_commands_processed:(\d+)/.exec(await redis.info('stats'))?.[1]);
    await load({ port, keys, seconds: 2, endpoint }); // code gets warm
    const before = [cpuUs(serverPid), cpuUs(redisPid), await commands()] as const;
    const closed = await load({ port, keys, seconds: SECONDS, endpoint });
    const after = [cpuUs(serverPid), cpuUs(redisPid), await commands()] as const;
    const open = await load({
      port,
      keys,
      seconds: SECONDS,
      warmupSeconds: 1,
      rate: RATE,
      endpoint,
    });
    const count = closed.ok + closed.over + closed.failed;
    return {
      'requests/s': closed.perSecond,
      'server µs': (after[0] - before[0]) / count,
      'Redis µs': contender.withRedis ? (after[1] - before[1]) / count : 0,
      commands: contender.withRedis ? (after[2] - before[2]) / count : 0,
      'p50 ms': open.p50,
      'p99 ms': open.p99,
      'p99.9 ms': open.p999,
      MB: megabytes(serverPid),
      failed: closed.failed + open.failed,
    };
  } finally {
    redis.disconnect();
    server.kill('SIGKILL');
    store.kill('SIGKILL');
    rmSync(root, { recursive: true, force: true });
  }
}

function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  return Math.round((sorted[Math.floor(sorted.length / 2)] ?? NaN) * 100) / 100;
}

const measured = new Map<string, Figures[]>();
for (let round = 0; round < ROUNDS; round++) {
  for (const keys of KEYS) {
    const turn = contenders.filter((contender) => contender.keys.includes(keys));
    // In turns and back: what changes on the machine meets all of them.
    for (const contender of round % 2 === 0 ? turn : turn.reverse()) {
      const row = `${contender.name}; ${keys}`;
      measured.set(row, [...(measured.get(row) ?? []), await measure(contender, keys)]);
    }
  }
}
const table: Record<string, Record<string, number>> = {};
for (const contender of contenders) {
  for (const keys of contender.keys) {
    const rounds = measured.get(`${contender.name}; ${keys}`) ?? [];
    const names = Object.keys(rounds[0] ?? {}) as (keyof Figures)[];
    const own = Object.fromEntries(
      names.map((name) => [name, median(rounds.map((round) => round[name]))]),
    );
    const others = measured.get(`${baseline.name}; ${baseline.keys.includes(keys) ? keys : 'hot'}`);
    const theirs = median((others ?? []).map((round) => round['requests/s']));
    const ratio = Math.round(((own['requests/s'] ?? NaN) / theirs) * 100) / 100;
    table[`${contender.name}; ${keys}`] = { ...own, [`× ${baseline.name}`]: ratio };
  }
}
console.table(table);
