/** The service as a process of its own, started from the sources: `weir serve` on free ports with rules of the test's. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './redis-server.js';

export interface WeirProcess {
  readonly pid: number;
  readonly grpcPort: number;
  readonly httpPort: number;
  readonly configDir: string;
  /** What it has printed so far. */
  output(): string;
  signal(name: NodeJS.Signals): void;
  /** Resolves with the exit code once the process has ended. */
  ended(): Promise<number | null>;
  /** Drains it, waits for its end, removes its files; resolves with the exit code. */
  stop(): Promise<number | null>;
}

const STARTUP_MS = 20_000;

interface Options {
  /** Configuration files by name. */
  files: Readonly<Record<string, string>>;
  env?: Readonly<Record<string, string>>;
  /** Arguments of Node; usually the sources are run, for what is measured `dist/main.js`. */
  program?: readonly string[];
}

/** Resolves when it is ready to decide; rejects with what it printed when it ends before or takes too long. */
export async function startWeir(options: Options): Promise<WeirProcess> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start(options);
    } catch (error) {
      // A port that was free a moment ago may have gone to somebody else since.
      if (attempt === 3 || !String(error).includes('something listens there already')) throw error;
    }
  }
}

async function start(options: Options): Promise<WeirProcess> {
  const program = options.program ?? ['--import', 'tsx', 'src/main.ts'];
  const root = mkdtempSync(join(tmpdir(), 'weir-process-'));
  const configDir = join(root, 'rules', 'config');
  mkdirSync(configDir, { recursive: true });
  for (const [name, text] of Object.entries(options.files)) {
    writeFileSync(join(configDir, name), text);
  }
  const [grpcPort, httpPort, debugPort] = await Promise.all([freePort(), freePort(), freePort()]);
  const child = spawn(process.execPath, [...program, 'serve'], {
    env: {
      ...process.env,
      // tsx compiles the same file differently here, and coverage of both cannot be added up.
      NODE_V8_COVERAGE: '',
      HOST: '127.0.0.1',
      PORT: String(httpPort),
      GRPC_HOST: '127.0.0.1',
      GRPC_PORT: String(grpcPort),
      DEBUG_PORT: String(debugPort),
      RUNTIME_ROOT: root,
      RUNTIME_SUBDIRECTORY: 'rules',
      DRAIN_DELAY: '0s',
      LOG_FORMAT: 'json',
      ...options.env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let printed = '';
  const note = (chunk: Buffer): void => {
    printed += chunk.toString();
  };
  child.stdout.on('data', note);
  child.stderr.on('data', note);
  const ended = once(child, 'exit').then(() => child.exitCode);
  const stop = async (): Promise<number | null> => {
    child.kill('SIGTERM');
    const code = await ended;
    rmSync(root, { recursive: true, force: true });
    return code;
  };
  try {
    await answers(`http://127.0.0.1:${httpPort}/readyz`, () => child.exitCode === null);
  } catch (error) {
    child.kill('SIGKILL');
    await stop();
    throw new Error(`weir serve did not become ready:\n${printed}`, { cause: error });
  }
  return {
    pid: child.pid ?? 0,
    grpcPort,
    httpPort,
    configDir,
    output: () => printed,
    signal: (name) => child.kill(name),
    ended: () => ended,
    stop,
  };
}

/** Resolves when the URL answers 2xx; rejects when `alive` says that it never will, or it takes too long. */
export async function answers(url: string, alive: () => boolean): Promise<void> {
  const giveUpMs = performance.now() + STARTUP_MS;
  let last: unknown = 'nothing was tried';
  while (alive() && performance.now() < giveUpMs) {
    try {
      const response = await fetch(url);
      await response.arrayBuffer();
      if (response.ok) return;
      last = `HTTP ${response.status}`;
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${url} does not answer`, { cause: last });
}
