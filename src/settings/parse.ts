/**
 * Settings, first stage: the text of one variable → a value, read as Go programs read theirs, so that
 * an existing deployment's environment means the same. Knows no variable by name.
 */

/** How one kind of variable is read. */
export interface Kind<T> {
  /** For docs: `duration`, `true or false`. */
  readonly name: string;
  /** Throws ValueError. Never called with an empty text, save for variables that may be empty. */
  parse(text: string): T;
}

/** The text is not of its kind; `expected` completes the sentence "… is not …". */
export class ValueError extends Error {
  override readonly name = 'ValueError';
  readonly code = 'wrong_value';

  constructor(readonly expected: string) {
    super(`expected ${expected}`);
  }
}

/** Any text, as it is. */
export const text: Kind<string> = { name: 'text', parse: (value) => value };

const TRUE = new Set(['1', 't', 'T', 'TRUE', 'true', 'True']);
const FALSE = new Set(['0', 'f', 'F', 'FALSE', 'false', 'False']);

/** As Go's strconv.ParseBool: exactly these twelve spellings. */
export const bool: Kind<boolean> = {
  name: 'true or false',
  parse(value) {
    if (TRUE.has(value)) return true;
    if (FALSE.has(value)) return false;
    throw new ValueError('true or false (also 1, t, 0, f)');
  },
};

/** A boolean whose absence means something of its own. */
export const optionalBool: Kind<boolean | undefined> = {
  name: 'true, false or unset',
  parse: (value) => (value === '' ? undefined : bool.parse(value)),
};

/** What a timer can wait, 24.8 days; a longer duration is this long. */
const MAX_DURATION_MS = 2_147_483_647;

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** As Go's time.ParseDuration, not negative: `10s`, `1h30m`, `1.5h`, `0`. In ms, from `minMs` on. */
export function duration(minMs = 0): Kind<number> {
  return {
    name: 'duration',
    parse(value) {
      const ms = parseDurationMs(value);
      if (ms < minMs) {
        throw new ValueError(
          minMs > 0 ? `a duration of ${minMs}ms or more` : 'a duration, 0 or more',
        );
      }
      return Math.min(ms, MAX_DURATION_MS);
    },
  };
}

function parseDurationMs(value: string): number {
  const sign = value.startsWith('-') ? -1 : 1;
  const body = value.replace(/^[+-]/, '');
  if (body === '0') return 0;
  if (/^\d+(\.\d+)?$/.test(body)) {
    throw new ValueError(`a duration: it needs a unit, such as ${body}s or ${body}ms`);
  }
  if (!/^((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$/.test(body)) {
    throw new ValueError('a duration such as 100ms, 10s or 1h30m');
  }
  let ms = 0;
  for (const [, amount, unit] of body.matchAll(/([\d.]+)(ns|us|µs|μs|ms|s|m|h)/g)) {
    ms += Number(amount) * (UNIT_MS[unit ?? ''] ?? 0);
  }
  return sign * ms;
}

/** A whole number within bounds, both included. */
export function integer(min: number, max = Number.MAX_SAFE_INTEGER): Kind<number> {
  const range = max === Number.MAX_SAFE_INTEGER ? `${min} or more` : `${min} to ${max}`;
  return {
    name: 'whole number',
    parse(value) {
      const number = Number(value);
      if (!/^[+-]?\d+$/.test(value) || number < min || number > max) {
        throw new ValueError(`a whole number, ${range}`);
      }
      return number;
    },
  };
}

/** A whole number, or undefined when empty. */
export function optionalInteger(min: number): Kind<number | undefined> {
  const kind = integer(min);
  return { name: kind.name, parse: (value) => (value === '' ? undefined : kind.parse(value)) };
}

/** A number with fraction within bounds, both included. */
export function decimal(min: number, max: number): Kind<number> {
  return {
    name: 'number',
    parse(value) {
      const number = Number(value);
      if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(value) || number < min || number > max) {
        throw new ValueError(`a number from ${min} to ${max}`);
      }
      return number;
    },
  };
}

/** A TCP port; 0 lets the system choose one. */
export const port: Kind<number> = { ...integer(0, 65_535), name: 'port' };

/** One of a closed set of names, in any case; the result is spelt as in `choices`. */
export function choice<const Name extends string>(choices: readonly Name[]): Kind<Name> {
  return {
    name: choices.join(', '),
    parse(value) {
      const found = choices.find((name) => name.toLowerCase() === value.toLowerCase());
      if (found === undefined) throw new ValueError(`one of ${choices.join(', ')}`);
      return found;
    },
  };
}

/** As `choice`, or undefined when empty. */
export function optionalChoice<const Name extends string>(
  choices: readonly Name[],
): Kind<Name | undefined> {
  const kind = choice(choices);
  return { name: kind.name, parse: (value) => (value === '' ? undefined : kind.parse(value)) };
}

/** Texts joined by commas; the space around each is dropped, and so are empty ones. */
const list: Kind<readonly string[]> = {
  name: 'list',
  parse: (value) =>
    value
      .split(',')
      .map((part) => part.trim())
      .filter((part) => part !== ''),
};

/** Pairs joined by commas, name and value by the first of `separators`: `k1:v1,k2:v2`. */
export function map(separators: string): Kind<Readonly<Record<string, string>>> {
  const usual = separators.charAt(0);
  const separator = new RegExp(`[${separators}]`);
  return {
    name: `map (k1${usual}v1,k2${usual}v2)`,
    parse(value) {
      const pairs = list.parse(value).map((pair): [string, string] => {
        const at = pair.search(separator);
        if (at <= 0) throw new ValueError(`a map such as k1${usual}v1,k2${usual}v2`);
        return [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
      });
      return Object.fromEntries(pairs);
    },
  };
}

/** Where to listen or connect. An empty host is every address (to listen) or this machine. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/**
 * `host:port`, `:port`, `[v6]:port`, and without port where there is a default one. Throws ValueError.
 */
export function parseHostPort(value: string, defaultPort?: number): HostPort {
  const parts = /^(?:\[([^\]]+)\]|([^:[\]/\s]*))(?::(\d+))?$/.exec(value);
  const host = parts?.[1] ?? parts?.[2];
  const given = parts?.[3];
  const number = given === undefined ? defaultPort : Number(given);
  if (value === '' || host === undefined || number === undefined || number > 65_535) {
    throw new ValueError('host:port (an IPv6 address in brackets: [::1]:6379)');
  }
  return { host, port: number };
}

/** `host:port` or `:port`, of something to listen on. */
export const listenAddress: Kind<HostPort> = {
  name: 'host:port',
  parse(value) {
    const { host, port: number } = parseHostPort(value);
    // As `:9090` is meant: every address, of both families.
    return { host: host === '' ? '::' : host, port: number };
  },
};

const LEVELS: Readonly<Record<string, LogLevel>> = {
  panic: 'fatal',
  fatal: 'fatal',
  error: 'error',
  warn: 'warn',
  warning: 'warn',
  info: 'info',
  debug: 'debug',
  trace: 'trace',
};

/** The levels that the log has. */
export type LogLevel = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace';

/** A level by its usual name, in any case; `panic` is `fatal`, `warning` is `warn`. */
export const logLevel: Kind<LogLevel> = {
  name: 'level',
  parse(value) {
    const level = LEVELS[value.toLowerCase()];
    if (level === undefined) throw new ValueError(`one of ${Object.keys(LEVELS).join(', ')}`);
    return level;
  },
};
