/** `weir hit`: asks a server as Envoy or a client would, and prints what it says. */
import { Command, InvalidArgumentError, Option } from 'commander';
import { MAX_HITS, MAX_LIMIT } from '../model.js';
import { duration, integer, ValueError, type Kind } from '../settings/parse.js';
import type { Answer, Line, Question } from './hit-client.js';
import { formatMs, formatTable, plural, type Terminal } from './terminal.js';

interface Options {
  readonly server: string;
  readonly domain?: string;
  readonly native?: true;
  readonly hits?: number;
  readonly mode: Question['mode'];
  readonly times: number;
  readonly timeout: number;
  readonly json?: true;
  readonly tls?: true;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

const MODES = ['take', 'peek', 'record', 'give_back'] as const;

const EXAMPLES = `
Each argument is one descriptor: pairs of key=value joined by commas (\\, is a comma in a value).
With --native the pairs are endpoint, user, ip, api_key; other keys are attributes.

On Envoy's API, peek asks with 0 hits, record charges what was used, and give_back returns hits.

Exit codes:
  0  allowed, every time
  1  refused, at least once
  2  there was no answer

Examples:
  weir hit --domain edge endpoint=/pay user=42
  weir hit --domain edge plan=free,user=42 --times 20
  weir hit --native endpoint=/pay user=42 ip=203.0.113.7
  weir hit --native user=42 --mode peek
`;

/** The command; `terminal` is told the answers. */
export function hitCommand(terminal: Terminal): Command {
  return new Command('hit')
    .summary('ask a server whether a request may pass')
    .description('Asks a running server whether a request may pass, and prints what it says.')
    .argument('<descriptors...>', 'what the request is: key=value[,key=value...]')
    .option('-s, --server <address>', 'host:port, or unix:/path', '127.0.0.1:8081')
    .option('-d, --domain <name>', 'the domain to ask in ("default" with --native)')
    .option('-n, --native', "Weir's own API instead of Envoy's")
    .addOption(
      new Option(
        '--hits <number>',
        'what the request costs (1 unless it says otherwise)',
      ).argParser(parsed(integer(0, MAX_HITS))),
    )
    .addOption(
      new Option('-m, --mode <mode>', 'what is done with the hits').choices(MODES).default('take'),
    )
    .addOption(
      new Option('-t, --times <number>', 'ask so often, one after the other')
        .argParser(parsed(integer(1)))
        .default(1),
    )
    .addOption(
      new Option('--timeout <duration>', 'how long to wait for an answer')
        .argParser(parsed(duration(1)))
        .default(1000, '1s'),
    )
    .option('--json', 'print each answer as a line of JSON')
    .option('--tls', 'talk TLS')
    .option('--ca <file>', "CA of the server's certificate (PEM)")
    .option('--cert <file>', 'client certificate (PEM)')
    .option('--key <file>', 'its key (PEM)')
    .addHelpText('after', EXAMPLES)
    .action((descriptors: string[], options: Options) => hit(terminal, descriptors, options));
}

/** A settings kind as commander wants it. */
function parsed<T>(kind: Kind<T>): (text: string) => T {
  return (text) => {
    try {
      return kind.parse(text);
    } catch (error) {
      if (error instanceof ValueError)
        throw new InvalidArgumentError(`Expected ${error.expected}.`);
      throw error;
    }
  };
}

async function hit(terminal: Terminal, descriptors: string[], options: Options): Promise<void> {
  let question: Question;
  try {
    question = toQuestion(descriptors, options);
  } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    terminal.complain(`error: ${error.expected}\n`);
    terminal.fail(2);
    return;
  }
  // gRPC takes a while to load, which no other command should wait for.
  const { HitClient } = await import('./hit-client.js');
  let client: InstanceType<typeof HitClient> | undefined;
  try {
    client = new HitClient(
      {
        server: options.server,
        timeoutMs: options.timeout,
        tls: (options.tls ?? false) || options.ca !== undefined || options.cert !== undefined,
        caFile: options.ca,
        certFile: options.cert,
        keyFile: options.key,
      },
      question.api,
    );
    const answers: Answer[] = [];
    for (let i = 1; i <= options.times; i++) {
      const answer = await client.ask(question);
      answers.push(answer);
      if (options.json === true) terminal.print(`${JSON.stringify(answer.raw)}\n`);
      else if (options.times > 1) terminal.print(shortLine(i, answer));
    }
    if (options.json !== true) report(terminal, question.api, answers);
    if (answers.some((answer) => !answer.allowed)) terminal.fail(1);
  } catch (error) {
    terminal.complain(`error: ${explain(error, options)}\n`);
    terminal.fail(2);
  } finally {
    client?.close();
  }
}

function toQuestion(descriptors: readonly string[], options: Options): Question {
  const api = options.native === true ? 'native' : 'envoy';
  if (api === 'envoy' && options.domain === undefined) {
    throw new ValueError(
      "say which domain, such as --domain edge (or --native for Weir's own API)",
    );
  }
  if (api === 'envoy' && (options.hits ?? 0) > MAX_LIMIT) {
    throw new ValueError(`--hits is at most ${String(MAX_LIMIT)} on Envoy's API`);
  }
  return {
    api,
    domain: options.domain ?? '',
    descriptors: descriptors.map(parseDescriptor),
    hits: options.hits,
    mode: options.mode,
  };
}

function parseDescriptor(text: string): (readonly [string, string])[] {
  return text.split(/(?<!\\),/).map((pair) => {
    const at = pair.indexOf('=');
    if (at <= 0) {
      throw new ValueError(`${JSON.stringify(pair)} is not key=value, such as user=42`);
    }
    return [pair.slice(0, at), pair.slice(at + 1).replaceAll('\\,', ',')];
  });
}

const word = (allowed: boolean): string => (allowed ? 'allowed' : 'refused');

/** One of many answers: its tightest line. */
function shortLine(number: number, answer: Answer): string {
  const known = answer.lines.filter((line) => line.remaining !== undefined);
  const tightest = known.reduce<Line | undefined>((least, line) => {
    const isTighter = (line.remaining ?? 0) < (least?.remaining ?? Infinity);
    return isTighter ? line : least;
  }, undefined);
  const left =
    tightest === undefined ? '' : `  ${String(tightest.remaining)} left of ${tightest.limit ?? ''}`;
  return `${String(number).padStart(4)}  ${word(answer.allowed)}${left}\n`;
}

function report(terminal: Terminal, api: Question['api'], answers: readonly Answer[]): void {
  const last = answers.at(-1);
  if (last === undefined) return;
  if (answers.length === 1) {
    const elapsed = `${last.elapsedMs.toFixed(1)} ms, connecting included`;
    terminal.print(`${word(last.allowed)} in ${elapsed}\n`);
  } else {
    const allowed = answers.filter((answer) => answer.allowed).length;
    const mean = answers.reduce((sum, answer) => sum + answer.elapsedMs, 0) / answers.length;
    const refused = `${String(answers.length - allowed)} refused`;
    terminal.print(
      `\n${plural(answers.length, 'request')}: ${String(allowed)} allowed, ${refused}, ` +
        `${mean.toFixed(1)} ms each; the last:\n`,
    );
  }
  if (last.lines.length === 0) {
    terminal.print('no rule matches\n');
    return;
  }
  const rows = last.lines.map((line) => [
    line.name,
    word(line.allowed),
    line.limit ?? '-',
    line.remaining === undefined ? '-' : String(line.remaining),
    line.resetMs === undefined ? '-' : formatMs(line.resetMs),
  ]);
  terminal.print(
    `\n${formatTable(
      [api === 'envoy' ? 'descriptor' : 'name', 'answer', 'limit', 'remaining', 'reset'],
      rows,
      ['left', 'left', 'right', 'right', 'right'],
    )}`,
  );
  if (last.lines.some((line) => line.limit !== undefined)) return;
  terminal.print(
    last.allowed
      ? '\nNothing limits this request here, or the rule does not disclose it, or Redis did not answer.\n'
      : '\nThe rule does not disclose its limit, or Redis did not answer and the rule refuses then.\n',
  );
}

function explain(error: unknown, options: Options): string {
  if (!(error instanceof Error)) return String(error);
  const code = 'code' in error ? error.code : undefined;
  const details = 'details' in error ? String(error.details) : error.message;
  const { server } = options;
  if (code === 14)
    return `cannot reach ${server}: is it running, and is this its gRPC port? (${details})`;
  if (code === 4) return `${server} gave no answer in time: ${details}`;
  if (code === 9) return `${server} has no configuration loaded: ${details}`;
  if (code === 12) return `${server} does not serve this API: ${details}`;
  if (code === 3) return `${server} says that the request is wrong: ${details}`;
  return details;
}
