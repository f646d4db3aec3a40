/**
 * The log: one pino logger for the process, JSON or for people, without secrets. Made once by the
 * command line and passed on as `Logger`; no stage makes one of its own.
 */
import { pino, type DestinationStream } from 'pino';
import { prettyFactory } from 'pino-pretty';
import type { Logger } from '../model.js';
import type { Settings } from '../settings/settings.js';

/** Fields that are never written out, wherever they stand in what is logged. */
const SECRET_FIELDS = [
  'password',
  'sentinelPassword',
  'token',
  'authorization',
  'auth',
  'apiKey',
  'api_key',
];

/** The process's log. */
export interface Log extends Logger {
  /** Written at every level: where it listens, which store it uses. */
  always(fields: object, message: string): void;
  fatal(fields: object, message: string): void;
}

/**
 * `text` lines are for people (coloured on a terminal), `json` lines are pino's. Both are written at
 * once, so that nothing is lost when the process ends; to stderr, or where `destination` says.
 */
export function createLog(settings: Settings['log'], destination?: DestinationStream): Log {
  const lines = destination ?? pino.destination({ dest: 2, sync: true });
  const out = settings.format === 'json' ? lines : readable(lines, destination === undefined);
  const logger = pino(
    {
      level: settings.level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: {
        paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]),
        censor: '***',
      },
      serializers: { err: describeError, error: describeError },
    },
    out,
  );
  const loud = logger.child({}, { level: 'info' });
  return {
    debug: (fields, message) => {
      logger.debug(fields, message);
    },
    info: (fields, message) => {
      logger.info(fields, message);
    },
    warn: (fields, message) => {
      logger.warn(fields, message);
    },
    error: (fields, message) => {
      logger.error(fields, message);
    },
    fatal: (fields, message) => {
      logger.fatal(fields, message);
    },
    always: (fields, message) => {
      loud.info(fields, message);
    },
  };
}

/** Turns pino's lines into text for people. */
function readable(destination: DestinationStream, maybeTerminal: boolean): DestinationStream {
  const toText = prettyFactory({
    colorize: maybeTerminal && process.stderr.isTTY,
    translateTime: 'SYS:yyyy-mm-dd HH:MM:ss.l',
  });
  return {
    write(line) {
      destination.write(toText(line));
    },
  };
}

/**
 * Type, message, code and stack with causes, and nothing else: a client library's error may carry
 * the command that failed, and with AUTH the password.
 */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const { type, message, stack } = pino.stdSerializers.err(error);
  const code: unknown = 'code' in error ? error.code : undefined;
  return { type, message, code, stack };
}
