/** A terminal that remembers, and commands run on it. */
import type { Command } from 'commander';
import type { Terminal } from '../../src/cli/terminal.js';

export interface Run {
  readonly out: string;
  readonly err: string;
  readonly code: number;
}

/** Runs a command with these arguments in this process. */
export async function run(
  create: (terminal: Terminal) => Command,
  ...args: string[]
): Promise<Run> {
  let out = '';
  let err = '';
  let code = 0;
  const command = create({
    print: (text) => (out += text),
    complain: (text) => (err += text),
    fail: (failed) => (code = failed),
  });
  await command.exitOverride().parseAsync(args, { from: 'user' });
  return { out, err, code };
}
