/** `weir serve`: the service, from the environment to the end of its drain. */
import cluster from 'node:cluster';
import type { Command } from 'commander';
import { createApp } from '../app.js';
import type { App } from '../app.js';
import { createLog } from '../log/log.js';
import type { Log } from '../log/log.js';
import { parseSettings } from '../settings/settings.js';
import type { Settings } from '../settings/settings.js';
import { VERSION } from './version.js';
import { Crew } from '../workers/crew.js';
import { Primary } from '../workers/primary.js';
import { boundYoungGeneration } from '../workers/young-generation.js';

/** Adds the command; `exit` ends the process with a code once everything is closed. */
export function registerServe(program: Command, exit: (code: number) => void): void {
  program
    .command('serve')
    .description(
      'decide: gRPC for Envoy and for your own services, HTTP for JSON, health and metrics',
    )
    .option('--strict', 'end with exit code 1 when the configuration at start is not valid')
    .addHelpText(
      'after',
      `
All settings are environment variables; docs/settings.md lists them. The most important:

  RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_APPDIRECTORY
                  where the rules are: the YAML files in ROOT/SUBDIRECTORY/APPDIRECTORY
  REDIS_URL       where counters are shared; without it they are in this process's memory
  GRPC_PORT, PORT where to listen: 8081 for gRPC, 8080 for HTTP

Example:

  RUNTIME_ROOT=examples REDIS_URL=127.0.0.1:6379 weir serve

SIGTERM and SIGINT drain: health turns NOT_SERVING, calls in flight end, exit code 0. A second
signal shortens the drain.`,
    )
    .action(async ({ strict }: { strict?: boolean }) => {
      exit(await serve(strict === true));
    });
}

/** Resolves with the exit code when the service has ended. Throws SettingsError. */
async function serve(strict: boolean): Promise<number> {
  const { settings, notices } = parseSettings(process.env);
  const log = createLog(settings.log);
  if (cluster.isWorker) return serveApp(settings, strict, log, new Crew(process));
  for (const { level, variable, message } of notices) log[level]({ variable }, message);
  if (settings.workers > 1 && settings.backend === 'redis') return lead(settings.workers, log);
  if (settings.workers > 1) {
    const message = 'one process serves, not several: counters in memory cannot be shared';
    log.warn({ variable: 'WORKERS' }, message);
  }
  return serveApp(settings, strict, log, undefined);
}

/** As the primary of several processes. */
async function lead(workers: number, log: Log): Promise<number> {
  const primary = new Primary(workers, log);
  const stop = (signal: NodeJS.Signals): void => {
    log.always({ signal }, 'weir drains');
    primary.stop(signal);
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  log.always({ workers }, 'weir starts its workers');
  const code = await primary.run();
  log.always({}, 'weir has ended');
  return code;
}

async function serveApp(
  settings: Settings,
  strict: boolean,
  log: Log,
  crew: Crew | undefined,
): Promise<number> {
  boundYoungGeneration();
  // The primary says when all drain and end; the first worker, where all listen.
  const quietLog = crew === undefined ? log : quiet(log);
  const app = createApp(settings, VERSION, cluster.worker?.id === 1 ? log : quietLog, crew);
  const ended = endOfService(app, quietLog, crew);
  // A signal must end it also when the start hangs, on a directory that does not answer, say.
  const endedEarly = await Promise.race([app.start().then(() => undefined), ended]);
  if (endedEarly !== undefined) return endedEarly;
  if (strict && app.configProblems.length > 0) {
    log.fatal({ problems: app.configProblems }, 'the configuration is not valid (--strict)');
    await app.stop(true);
    return 1;
  }
  crew?.ready();
  return ended;
}

/** Resolves with the exit code once a signal, or a fault of ours, has ended the service. */
function endOfService(app: App, log: Log, crew: Crew | undefined): Promise<number> {
  return new Promise((resolve, reject) => {
    let stopping = false;
    const stop = (signal: NodeJS.Signals): void => {
      log.always({ signal }, stopping ? 'weir hurries' : 'weir drains');
      if (stopping) {
        void app.stop();
        return;
      }
      stopping = true;
      // Ctrl-C at a terminal: there is no load balancer to wait for.
      app.stop(signal === 'SIGINT').then(() => {
        log.always({}, 'weir has ended');
        resolve(0);
      }, reject);
    };
    // Signals often go to all processes at once; a second would shorten the drain.
    const onSignal = crew === undefined ? stop : () => undefined;
    process.on('SIGTERM', onSignal);
    process.on('SIGINT', onSignal);
    crew?.onStop(stop);
    // Without a primary nobody would ever stop this worker.
    process.on('disconnect', () => {
      stop('SIGTERM');
    });
    // A fault of ours in one call must not take down everybody else's; it is logged as what it is.
    process.on('unhandledRejection', (error) => {
      log.error({ err: error }, 'unhandled rejection: please report this');
    });
  });
}

/** What one of several processes says at every level, and the others only when asked for details. */
function quiet(log: Log): Log {
  return {
    ...log,
    always: (fields, message) => {
      log.debug(fields, message);
    },
  };
}
