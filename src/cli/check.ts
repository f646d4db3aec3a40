/** `weir check`: loads rules as the service would, and prints everything that is wrong with them. */
import { readFile, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { Command } from 'commander';
import { loadReading, readConfigDir, type DirectoryReading } from '../config/directory.js';
import { ConfigError, formatProblem, type Problem } from '../config/problems.js';
import type { Snapshot } from '../model.js';
import { plural, type Terminal } from './terminal.js';

interface Options {
  readonly json?: true;
  readonly merge?: true;
}

const EXAMPLES = `
Exit codes:
  0  the rules can be loaded; there may be warnings
  1  they cannot, or there are none to read

Examples:
  weir check examples/config
  weir check --merge /data/ratelimit/config
  weir check --json rules/ | jq '.problems[].message'
`;

/** The command; `terminal` is told what it finds. */
export function checkCommand(terminal: Terminal): Command {
  return new Command('check')
    .summary('say whether rules can be loaded, and everything that is wrong with them')
    .description(
      'Loads the rules of a directory, or of one file, exactly as the service would, and prints ' +
        'everything that is wrong with them as file:line:column path: message.',
    )
    .argument('<path>', 'a directory of YAML files, or one file')
    .option('--merge', 'files may share a domain, as with MERGE_DOMAIN_CONFIG=true')
    .option('--json', 'print one JSON object instead')
    .addHelpText('after', EXAMPLES)
    .action(async (path: string, options: Options) => {
      const found = await check(path, options.merge ?? false);
      if (found.problems.length > 0) terminal.fail(1);
      if (options.json === true) terminal.print(`${JSON.stringify(toJson(found), null, 2)}\n`);
      else report(terminal, found);
    });
}

interface Found {
  readonly files: number;
  readonly snapshot: Snapshot | undefined;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

async function check(path: string, mergeDomains: boolean): Promise<Found> {
  const reading = await read(path);
  if (reading === undefined) return refused(path, 'there is no such file or directory');
  const { directory, files } = reading;
  if (files.length === 0 && reading.problems.length === 0) {
    return refused(path, 'there are no files here; names that begin with a dot are not read');
  }
  const inDirectory = (problem: Problem): Problem => ({
    ...problem,
    file: join(directory, problem.file),
  });
  try {
    const { snapshot, warnings } = loadReading(reading, {
      mergeDomains,
      defaultOnStoreError: 'allow',
      generation: 1,
      nowMs: Date.now(),
    });
    return { files: files.length, snapshot, problems: [], warnings: warnings.map(inDirectory) };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const problems = error.problems.map(inDirectory);
    return { files: files.length, snapshot: undefined, problems, warnings: [] };
  }
}

function refused(file: string, message: string): Found {
  const problem = { file, line: 1, column: 1, path: '', message };
  return { files: 0, snapshot: undefined, problems: [problem], warnings: [] };
}

async function read(
  path: string,
): Promise<(DirectoryReading & { readonly directory: string }) | undefined> {
  const kind = await stat(path).catch(() => undefined);
  if (kind?.isFile() === true) {
    const files = [{ name: basename(path), text: await readFile(path, 'utf8') }];
    const directory = dirname(path);
    return { found: true, files, problems: [], warnings: [], digest: '', directory };
  }
  const reading = await readConfigDir(path);
  return reading.found ? { ...reading, directory: path } : undefined;
}

function report(terminal: Terminal, found: Found): void {
  for (const problem of found.problems) {
    const text =
      found.files === 0 ? `error: ${problem.file}: ${problem.message}` : formatProblem(problem);
    terminal.complain(`${text}\n`);
  }
  for (const warning of found.warnings) terminal.complain(`warning: ${formatProblem(warning)}\n`);
  if (found.files === 0) return;
  const { snapshot } = found;
  const files = plural(found.files, 'file');
  const warnings =
    found.warnings.length === 0 ? '' : `, ${plural(found.warnings.length, 'warning')}`;
  if (snapshot === undefined) {
    terminal.complain(`${plural(found.problems.length, 'problem')}${warnings} in ${files}\n`);
    return;
  }
  const { domains, rules } = snapshot;
  const size = `${plural(domains.size, 'domain')}, ${plural(rules.length, 'rule')}`;
  terminal.print(`ok: ${files}, ${size}${warnings}\n`);
}

function toJson(found: Found): object {
  const { files, snapshot, problems, warnings } = found;
  return {
    ok: problems.length === 0,
    files,
    domains: [...(snapshot?.domains ?? [])],
    rules: snapshot?.rules.length ?? 0,
    problems,
    warnings,
  };
}
