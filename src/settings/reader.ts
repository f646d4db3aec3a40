/**
 * Settings, second stage: goes through the environment by the table, and collects what is wrong with
 * it and what is worth a line in the log. Reads credentials files; knows nothing of groups.
 */
import { accessSync, constants, readFileSync } from 'node:fs';
import { ValueError } from './parse.js';
import { VARIABLES, type Values, type Variable, type VariableName } from './table.js';

/** As `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Something to log about a setting that is valid. Names no secret. */
export interface Notice {
  readonly level: 'info' | 'warn';
  readonly variable: string;
  readonly message: string;
}

const NAMES = Object.keys(VARIABLES) as VariableName[];
const MISSPELT = /^(REDIS|GRPC|LIMIT|RUNTIME|TRACING|CONFIG|DENY|DRAIN)_/;
/** What Kubernetes and container links put into every environment for a service called redis. */
const INJECTED = /_SERVICE_(HOST|PORT)|_PORT(_|$)|_ENV_/;

/** Goes through the environment and collects what is wrong with it and worth a line in the log. */
export class Reader {
  readonly problems: string[] = [];
  readonly notices: Notice[] = [];
  readonly values: Values;

  constructor(private readonly env: Environment) {
    this.values = Object.fromEntries(NAMES.map((name) => [name, this.read(name)])) as Values;
    this.reportMisspelt();
  }

  /** The variable is in the environment with a value. */
  isSet(name: VariableName): boolean {
    return (this.env[name] ?? '') !== '';
  }

  problem(name: VariableName, message: string): void {
    this.problems.push(`${name} ${message}`);
  }

  notice(level: Notice['level'], variable: string, message: string): void {
    this.notices.push({ level, variable, message });
  }

  /** A path that is undefined when unset; a problem when the file cannot be read. */
  file(name: FileName): string | undefined {
    const path = this.values[name];
    if (path === '') return undefined;
    try {
      accessSync(path, constants.R_OK);
    } catch (error) {
      this.problem(name, `names ${JSON.stringify(path)}, which cannot be read: ${reason(error)}`);
    }
    return path;
  }

  /** What a credentials file says, without the line end at its close. */
  contents(name: `REDIS_${'' | 'PERSECOND_'}${'' | 'SENTINEL_'}AUTH_FILE`): string {
    const path = this.values[name];
    try {
      return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
    } catch (error) {
      this.problem(name, `names ${JSON.stringify(path)}, which cannot be read: ${reason(error)}`);
      return '';
    }
  }

  private read(name: VariableName): unknown {
    const variable: Variable = VARIABLES[name];
    const given = this.env[name];
    const set = given !== undefined && (given !== '' || variable.mayBeEmpty);
    if (!set) return variable.kind.parse(variable.default);
    try {
      const value = variable.kind.parse(given);
      this.reportUnused(name, variable, given);
      return value;
    } catch (error) {
      if (!(error instanceof ValueError)) throw error;
      const shown = variable.secret ? '' : ` ${JSON.stringify(given)}`;
      this.problem(name, `is${shown}, which is not ${error.expected}`);
      return variable.kind.parse(variable.default);
    }
  }

  private reportUnused(name: string, variable: Variable, given: string): void {
    if (variable.use === 'honoured' || given === variable.default) return;
    if (/^(f|false|0)$/i.test(given)) return;
    if (name.endsWith('_SOCKET_TYPE')) return;
    const level = /^USE_(DOG_)?STATSD$/.test(name) ? 'warn' : 'info';
    this.notice(level, name, `${name} is ignored: ${variable.why}`);
  }

  private reportMisspelt(): void {
    for (const name of Object.keys(this.env)) {
      if (name in VARIABLES || !MISSPELT.test(name) || INJECTED.test(name)) continue;
      const nearest = NAMES.find((known) => distance(name, known, 2) <= 2);
      if (nearest === undefined) continue;
      this.notice('warn', name, `${name} is not a setting; is ${nearest} meant?`);
    }
  }
}

/** Variables whose values are texts, such as paths. */
export type FileName = {
  [Name in VariableName]: Values[Name] extends string ? Name : never;
}[VariableName];

function reason(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error);
}

/** How many letters differ (Levenshtein); anything above `limit` may be returned as limit + 1. */
function distance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) > limit) return limit + 1;
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
