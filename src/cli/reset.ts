/** `weir reset`: forgets what a descriptor has used, on every instance. */
import { Command } from 'commander';
import type { ExplainedDescriptor, ExplainedRequest } from '../admin/explanation.js';
import { parseDescriptor } from '../admin/descriptor-text.js';
import {
  answerOrComplain,
  askAdmin,
  chooseDomain,
  withAdminOptions,
  type AdminOptions,
} from './admin-client.js';
import type { Terminal } from './terminal.js';

/** What the API answers to a reset. */
interface Answer {
  readonly reset: readonly string[];
  readonly existed: number;
  readonly before: readonly ExplainedDescriptor[];
  readonly after: ExplainedRequest;
}

/** The command; `terminal` is told the answer. */
export function resetCommand(terminal: Terminal): Command {
  const command = new Command('reset')
    .summary('forget what a descriptor has used')
    .description(
      'Forgets what a descriptor has used of its limits, on every instance. Takes the exact descriptor: ' +
        'no wildcard, no prefix. The server logs it.',
    )
    .argument('<descriptor>', 'whose counters: key=value[,key=value...]');
  return withAdminOptions(command, 'whose rules (not needed when there is one domain only)')
    .addHelpText(
      'after',
      `
Exit codes:
  0  done
  2  not done: nothing counts this descriptor, or there was no answer

Example:
  weir reset endpoint=/pay,user=42`,
    )
    .action((descriptor: string, options: AdminOptions) =>
      answerOrComplain(terminal, async () => {
        const entries = parseDescriptor(descriptor);
        const domain = await chooseDomain(options);
        const question = { domain, descriptors: [entries] };
        const answer = (await askAdmin(options, '/api/v1/reset', question)) as Answer; // the API's own type
        if (options.json === true) terminal.print(`${JSON.stringify(answer, null, 2)}\n`);
        else report(terminal, answer);
      }),
    );
}

function report(terminal: Terminal, answer: Answer): void {
  for (const [i, part] of answer.before.entries()) {
    for (const [j, counter] of part.counters.entries()) {
      const left = answer.after.descriptors[i]?.counters[j]?.used ?? 0;
      terminal.print(
        `${part.descriptor}: ${counter.used} of ${counter.capacity} were used, ${left} are now ` +
          `(${counter.limit}, ${counter.key})\n`,
      );
    }
  }
  if (answer.existed === 0) terminal.print('there was nothing to forget\n');
}
