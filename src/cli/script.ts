/** `weir script`: prints what runs inside Redis. */
import { Command } from 'commander';
import { buildScript } from '../store/script.js';
import type { Terminal } from './terminal.js';

/** The command. */
export function scriptCommand(terminal: Terminal): Command {
  return new Command('script')
    .summary('print the Lua script that decides in Redis')
    .description(
      'Prints the Lua script that decides a batch of requests in Redis, whole, as it is sent.',
    )
    .addHelpText('after', '\nExample:\n  weir script | redis-cli -x SCRIPT LOAD\n')
    .action(() => {
      terminal.print(buildScript());
    });
}
