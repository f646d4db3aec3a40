/** `weir top`: what an instance decides now: its busiest rules, and the heaviest values. */
import { Command, InvalidArgumentError, Option } from 'commander';
import type { HeavyView, RuleView, Status } from '../admin/views.js';
import { answerOrComplain, askAdmin, withAdminOptions, type AdminOptions } from './admin-client.js';
import { formatTable, type Terminal } from './terminal.js';

interface Options extends AdminOptions {
  readonly rule?: string;
  readonly by: 'requests' | 'rejected';
  readonly number: number;
  readonly watch?: true;
}

interface Answer {
  readonly status: Status;
  readonly rules: readonly RuleView[];
  readonly values: readonly HeavyView[];
}

const WATCH_MS = 2000;
const CLEAR = '\u001b[2J\u001b[H';

/** The command; `terminal` is told the answer. */
export function topCommand(terminal: Terminal): Command {
  const command = new Command('top')
    .summary('show the busiest rules and the heaviest values')
    .description(
      'Shows what one instance has decided in the last minute: its busiest rules, and who asks or is ' +
        'refused most. What is secret is shown as a digest.',
    );
  return withAdminOptions(command, 'of this domain only')
    .option('-r, --rule <path>', 'of this rule only (with --domain)')
    .addOption(
      new Option('--by <what>', 'order').choices(['requests', 'rejected']).default('requests'),
    )
    .addOption(
      new Option('-n, --number <count>', 'so many lines of each')
        .argParser((text) => {
          const count = Number(text);
          if (!Number.isInteger(count) || count < 1 || count > 200) {
            throw new InvalidArgumentError('Expected a whole number from 1 to 200.');
          }
          return count;
        })
        .default(10),
    )
    .option('-w, --watch', 'again every two seconds, until Ctrl-C')
    .addHelpText(
      'after',
      `
Exit codes:
  0  done
  2  there was no answer

Examples:
  weir top
  weir top --by rejected --watch
  weir top --domain shop --rule endpoint=/pay.user`,
    )
    .action((options: Options) =>
      answerOrComplain(terminal, async () => {
        for (;;) {
          const answer = await ask(options);
          if (options.json === true) terminal.print(`${JSON.stringify(answer)}\n`);
          else terminal.print(`${options.watch === true ? CLEAR : ''}${format(answer, options)}`);
          if (options.watch !== true) return;
          await new Promise((resolve) => setTimeout(resolve, WATCH_MS));
        }
      }),
    );
}

async function ask(options: Options): Promise<Answer> {
  const query = new URLSearchParams({ by: options.by, n: String(options.number) });
  if (options.domain !== undefined) query.set('domain', options.domain);
  if (options.rule !== undefined) query.set('rule', options.rule);
  const domain =
    options.domain === undefined ? '' : `?domain=${encodeURIComponent(options.domain)}`;
  // The API's own types.
  const [status, { rules }, { values }] = await Promise.all([
    askAdmin(options, '/api/v1/status') as Promise<Status>,
    askAdmin(options, `/api/v1/rules${domain}`) as Promise<{ rules: RuleView[] }>,
    askAdmin(options, `/api/v1/top?${query.toString()}`) as Promise<{ values: HeavyView[] }>,
  ]);
  return {
    status,
    rules: options.rule === undefined ? rules : rules.filter(({ path }) => path === options.rule),
    values,
  };
}

function format({ status, rules, values }: Answer, { by, number }: Options): string {
  const { overall, stores } = status;
  const down = stores.filter(({ breakerOpen }) => breakerOpen).map(({ name }) => name);
  const head =
    `${status.instanceId}: ${rate(overall.rate)} requests, ${percent(overall.rejectRatio)} refused ` +
    `in the last minute${down.length === 0 ? '' : `; NO ANSWER from ${down.join(', ')}`}\n`;
  const weight = ({ activity }: RuleView): number =>
    by === 'requests'
      ? activity.rate
      : activity.rejectedBySecond.reduce((sum, count) => sum + count, 0);
  const busy = rules
    .filter((rule) => weight(rule) > 0)
    .sort((a, b) => weight(b) - weight(a))
    .slice(0, number)
    .map((rule) => [
      rule.domain,
      rule.path,
      rule.unlimited ? 'unlimited' : rule.limits.join(' and '),
      rate(rule.activity.rate),
      percent(rule.activity.rejectRatio),
      `${rule.file}:${rule.line}`,
    ]);
  const heavy = values.map((value) => [
    value.domain,
    value.path,
    value.value,
    `${value.error > 0 ? '~' : ''}${value.requests}`,
    String(value.rejected),
    value.id,
  ]);
  const sections = [head];
  sections.push(
    busy.length === 0
      ? 'no rule is in use\n'
      : formatTable(['domain', 'rule', 'limit', 'rate', 'refused', 'place'], busy, [
          'left',
          'left',
          'left',
          'right',
          'right',
        ]),
  );
  if (heavy.length > 0) {
    sections.push(
      formatTable(['domain', 'rule', 'value', 'requests/min', 'refused', 'in the log'], heavy, [
        'left',
        'left',
        'left',
        'right',
        'right',
      ]),
    );
  }
  return sections.join('\n');
}

function rate(perSecond: number): string {
  return `${perSecond < 10 ? perSecond.toFixed(1) : String(Math.round(perSecond))}/s`;
}

function percent(ratio: number): string {
  return `${(ratio * 100).toFixed(1)}%`;
}
