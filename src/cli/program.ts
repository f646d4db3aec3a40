/** The command line: which commands there are, and what their end means for the process. */
import { Command, CommanderError } from 'commander';
import { checkCommand } from './check.js';
import { explainCommand, inspectCommand } from './explain.js';
import { hitCommand } from './hit.js';
import { resetCommand } from './reset.js';
import { schemaCommand } from './schema.js';
import { scriptCommand } from './script.js';
import { registerServe } from './serve.js';
import { settingsCommand } from './settings.js';
import type { Terminal } from './terminal.js';
import { topCommand } from './top.js';
import { SettingsError } from '../settings/settings.js';
import { VERSION } from './version.js';

/** For what could not be tried: a wrong command line. `weir hit` uses it for "no answer" too. */
const USAGE = 2;

const terminal: Terminal = {
  print: (text) => void process.stdout.write(text),
  complain: (text) => void process.stderr.write(text),
  fail: (code) => {
    process.exitCode = code;
  },
};

/**
 * Runs the command that the arguments name. `exit` ends the process at once, with what is still open;
 * else it ends by itself when nothing is left to do.
 */
export async function runProgram(exit: (code: number) => void): Promise<void> {
  const program = new Command('weir')
    .description('Rate-limit decisions over gRPC, counted atomically in Redis.')
    .version(VERSION)
    .showHelpAfterError('(add --help to see what there is)')
    .exitOverride();

  registerServe(program, exit);
  for (const create of [
    checkCommand,
    hitCommand,
    explainCommand,
    inspectCommand,
    resetCommand,
    topCommand,
    settingsCommand,
    schemaCommand,
    scriptCommand,
  ]) {
    program.addCommand(create(terminal).copyInheritedSettings(program));
  }

  try {
    await program.parseAsync();
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : USAGE;
    } else {
      terminal.complain(`${describe(error)}\n`);
      exit(1);
    }
  }
}

/** What people can mend in words, what they cannot with its stack. */
function describe(error: unknown): string {
  if (error instanceof SettingsError) return error.message;
  if (!(error instanceof Error)) return String(error);
  const { syscall, code, address, port } = error as NodeJS.ErrnoException & {
    address?: string;
    port?: number;
  };
  // A worker (WORKERS) is told by its primary, which binds for it.
  const isListening = syscall === 'listen' || syscall === 'bind';
  if (!isListening || address === undefined) return String(error.stack);
  const place = port === undefined || port < 0 ? address : `${address}:${String(port)}`;
  const why =
    code === 'EADDRINUSE' ? 'something listens there already' : (code ?? 'it is not allowed');
  return `cannot listen on ${place}: ${why}. GRPC_PORT, GRPC_UDS, PORT and DEBUG_PORT choose where`;
}
