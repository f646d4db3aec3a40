/** `weir schema`: prints the JSON Schema of the rules, for editors. */
import { Command } from 'commander';
import { configJsonSchema } from '../config/json-schema.js';
import type { Terminal } from './terminal.js';

const EXAMPLE = `
Example, for editors that speak the YAML language server's protocol:
  weir schema > weir.schema.json
and as the first line of a file of rules:
  # yaml-language-server: $schema=./weir.schema.json
`;

/** The command. */
export function schemaCommand(terminal: Terminal): Command {
  return new Command('schema')
    .summary('print the JSON Schema of the rules, for editors')
    .description('Prints the JSON Schema of the format that rules are written in.')
    .addHelpText('after', EXAMPLE)
    .action(() => {
      terminal.print(`${JSON.stringify(configJsonSchema(), null, 2)}\n`);
    });
}
