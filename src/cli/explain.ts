/** `weir explain` and `weir inspect`: which rule limits a request, why not another, and how it stands. */
import { stat } from 'node:fs/promises';
import { Command } from 'commander';
import type { CounterState, ExplainedDescriptor, ExplainedRequest } from '../admin/explanation.js';
import { hideSecrets, secretKeys } from '../admin/explanation.js';
import { parseDescriptor } from '../admin/descriptor-text.js';
import { formatLimit, formatSpan } from '../admin/wording.js';
import { loadReading, readConfigDir } from '../config/directory.js';
import { ConfigError, formatProblem } from '../config/problems.js';
import { explain } from '../rules/explain.js';
import {
  answerOrComplain,
  askAdmin,
  chooseDomain,
  NoAnswerError,
  questionOf,
  withAdminOptions,
  type AdminOptions,
} from './admin-client.js';
import { formatTable, type Terminal } from './terminal.js';

interface Options extends AdminOptions {
  readonly native?: true;
  readonly config?: string;
  readonly merge?: true;
}

const EXAMPLES = `
Each argument is one descriptor: pairs of key=value joined by commas (\\, is a comma in a value).
With --native the pairs are what is known of a caller: endpoint, user, ip, api_key; other keys are
attributes. Nothing is counted.

Exit codes:
  0  the request would pass
  1  it is refused
  2  there was no answer
`;

/** The command; `terminal` is told the answer. */
export function explainCommand(terminal: Terminal): Command {
  const command = new Command('explain')
    .summary('say which rule limits a request, and why each other one does not')
    .description(
      'Says which rule of a running server limits a request, why each other one does not, and how its ' +
        'counters stand. With --config it looks at files instead, without a server.',
    )
    .argument('<descriptors...>', 'what the request is: key=value[,key=value...]');
  return withAdminOptions(command, 'whose rules (not needed when there is one domain only)')
    .option('-n, --native', 'the pairs are what is known of a caller')
    .option('--config <directory>', 'explain the rules of this directory, without a server')
    .option('--merge', 'with --config: files may share a domain, as with MERGE_DOMAIN_CONFIG=true')
    .addHelpText(
      'after',
      `${EXAMPLES}
Examples:
  weir explain endpoint=/pay,user=42
  weir explain --native endpoint=/pay user=42 ip=203.0.113.7
  weir explain --config examples/config --domain edge endpoint=/login`,
    )
    .action((descriptors: string[], options: Options) =>
      answerOrComplain(terminal, async () => {
        if (options.config !== undefined) {
          await explainFiles(terminal, options.config, descriptors, options);
          return;
        }
        const explained = await ask('explain', descriptors, options);
        if (options.json === true) terminal.print(`${JSON.stringify(explained, null, 2)}\n`);
        else report(terminal, explained, true);
        if (!explained.allowed) terminal.fail(1);
      }),
    );
}

/** The command; `terminal` is told the answer. */
export function inspectCommand(terminal: Terminal): Command {
  const command = new Command('inspect')
    .summary('show how the counters of a request stand')
    .description('Shows how the counters of a request stand on a running server. Counts nothing.')
    .argument('<descriptors...>', 'what the request is: key=value[,key=value...]');
  return withAdminOptions(command, 'whose rules (not needed when there is one domain only)')
    .option('-n, --native', 'the pairs are what is known of a caller')
    .addHelpText('after', `${EXAMPLES}\nExample:\n  weir inspect endpoint=/pay,user=42`)
    .action((descriptors: string[], options: Options) =>
      answerOrComplain(terminal, async () => {
        const explained = await ask('inspect', descriptors, options);
        if (options.json === true) terminal.print(`${JSON.stringify(explained, null, 2)}\n`);
        else report(terminal, explained, false);
        if (!explained.allowed) terminal.fail(1);
      }),
    );
}

async function ask(
  what: 'explain' | 'inspect',
  descriptors: readonly string[],
  options: Options,
): Promise<ExplainedRequest> {
  // What cannot be read is said before anybody is asked.
  descriptors.forEach(parseDescriptor);
  const domain = await chooseDomain(options);
  const question = questionOf(domain, descriptors, options.native === true);
  // The API's own type.
  return (await askAdmin(options, `/api/v1/${what}`, question)) as ExplainedRequest;
}

function report(terminal: Terminal, explained: ExplainedRequest, why: boolean): void {
  const { descriptors, nowMs } = explained;
  const matched = descriptors
    .filter(({ rule }) => rule !== null)
    .sort((a, b) => weightOf(b) - weightOf(a));
  const unmatched = descriptors.filter(({ rule }) => rule === null);
  for (const part of matched) terminal.print(`${describe(part, nowMs)}\n`);
  if (matched.length === 0) {
    for (const part of unmatched) terminal.print(`${describe(part, nowMs)}\n`);
    if (!explained.domainKnown) terminal.print(`domains: ${explained.domains.join(', ')}\n`);
  } else if (unmatched.length > 0) {
    terminal.print(
      `no rule is for ${unmatched.map(({ descriptor }) => descriptor).join(', ')}\n\n`,
    );
  }
  if (!why) return;
  for (const part of matched.length === 0 ? unmatched : matched) printReasons(terminal, part);
}

/** What refuses goes first, then what counts. */
function weightOf({ refuses, counters }: ExplainedDescriptor): number {
  return refuses ? 2 : Math.min(1, counters.length);
}

/** The verdict, then the facts; ends with a line end. */
function describe(part: ExplainedDescriptor, nowMs: number): string {
  const lines = [part.descriptor, `  ${part.verdict.replaceAll('`', '')}`];
  const { rule } = part;
  if (rule !== null) {
    const flags = [rule.shadow ? 'shadow mode' : '', rule.quota ? 'quota' : ''].filter(Boolean);
    const extra = flags.length === 0 ? '' : `, ${flags.join(', ')}`;
    lines.push(`  rule       ${rule.path} (${rule.file}:${rule.line}${extra})`);
  }
  for (const counter of part.counters) lines.push('', ...factsOf(counter, nowMs));
  return `${lines.join('\n')}\n`;
}

function factsOf(counter: CounterState, nowMs: number): string[] {
  const facts: [string, string][] = [
    ['limit', `${counter.limit}, ${counter.algorithm.replaceAll('_', ' ')}`],
  ];
  if (counter.source === 'store') {
    facts.push(['used', `${counter.used} of ${counter.capacity}`]);
  } else {
    facts.push(['answered', `by policy ${counter.source}: the store does not answer`]);
  }
  if (counter.freeAtMs !== null) facts.push(['free', ahead(counter.freeAtMs, nowMs)]);
  if (counter.resetAtMs !== null) facts.push(['untouched', ahead(counter.resetAtMs, nowMs)]);
  if (counter.refused !== null) {
    const { count, sinceMs, lastMs } = counter.refused;
    facts.push(['refused', `${count}x by this instance since ${ago(sinceMs, nowMs)}`]);
    facts.push(['', `last at ${ago(lastMs, nowMs)}`]);
  }
  facts.push(['counter', counter.key], ['in the log', counter.id]);
  return facts.map(([name, value]) => `  ${name.padEnd(10)} ${value}`);
}

function printReasons(terminal: Terminal, part: ExplainedDescriptor): void {
  if (part.rules.length === 0) return;
  const rows = part.rules.map(({ path, file, line, matched, reason }) => [
    matched ? '*' : '',
    path,
    `${file}:${line}`,
    reason.replaceAll('`', ''),
  ]);
  const head = ['', 'rule', 'place', `why ${part.descriptor} matches it, or not`];
  terminal.print(`${formatTable(head, rows, [])}\n`);
}

function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString('en-GB');
}
function ahead(ms: number, nowMs: number): string {
  return `${clock(ms)} (in ${formatSpan(ms - nowMs)})`;
}
function ago(ms: number, nowMs: number): string {
  return `${clock(ms)} (${formatSpan(Math.max(0, nowMs - ms))} ago)`;
}

/** The same without a server: there are rules, but nothing has been counted. */
async function explainFiles(
  terminal: Terminal,
  directory: string,
  descriptors: readonly string[],
  options: Options,
): Promise<void> {
  const snapshot = await loadFiles(directory, options.merge === true);
  const domain = options.domain ?? [...snapshot.domains][0];
  if (domain === undefined || (options.domain === undefined && snapshot.domains.size > 1)) {
    throw new NoAnswerError(
      `say which domain with --domain: ${[...snapshot.domains].join(', ') || 'there is none'}`,
    );
  }
  if (options.native === true) {
    throw new NoAnswerError('--native needs a server; with --config write the descriptors');
  }
  const secret = secretKeys(snapshot, domain);
  const answers = descriptors.map((text) => {
    const entries = parseDescriptor(text);
    const { rule, rules, domainKnown } = explain(snapshot, domain, entries);
    return {
      descriptor: hideSecrets(entries, secret),
      domainKnown,
      rule: rule === undefined ? null : rule.path,
      limits: rule?.limits.map(formatLimit) ?? [],
      unlimited: rule?.unlimited ?? false,
      rules: rules.map(({ path, position, matched, reason }) => ({
        path,
        file: position.file,
        line: position.line,
        matched,
        reason,
      })),
    };
  });
  if (options.json === true) {
    terminal.print(`${JSON.stringify({ domain, descriptors: answers }, null, 2)}\n`);
    return;
  }
  for (const answer of answers) {
    const limits = answer.unlimited ? 'unlimited' : answer.limits.join(' and ') || 'no limit';
    const verdict = !answer.domainKnown
      ? `there is no domain ${domain}, only ${[...snapshot.domains].join(', ')}`
      : answer.rule === null
        ? 'no rule matches'
        : `${answer.rule}: ${limits}`;
    terminal.print(`${answer.descriptor}\n  ${verdict}\n\n`);
    printReasons(terminal, { ...answer, rule: null, refuses: false, verdict, counters: [] });
  }
}

async function loadFiles(
  directory: string,
  mergeDomains: boolean,
): Promise<ReturnType<typeof loadReading>['snapshot']> {
  const kind = await stat(directory).catch(() => undefined);
  const reading = kind?.isDirectory() === true ? await readConfigDir(directory) : undefined;
  if (reading?.found !== true) throw new NoAnswerError(`${directory} is not a directory`);
  try {
    return loadReading(reading, {
      mergeDomains,
      defaultOnStoreError: 'allow',
      generation: 1,
      nowMs: Date.now(),
    }).snapshot;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new NoAnswerError(
      `the rules have mistakes:\n${error.problems.map(formatProblem).join('\n')}`,
    );
  }
}
