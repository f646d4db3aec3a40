#!/usr/bin/env node
/** The command line: which commands there are, and how the process ends. */
import { Command } from 'commander';
import { registerServe } from './cli/serve.js';
import { SettingsError } from './settings.js';
import { VERSION } from './version.js';

const program = new Command('weir')
  .description('Rate-limit decisions over gRPC, counted atomically in Redis')
  .version(VERSION)
  .showHelpAfterError('(weir --help shows what there is)');

registerServe(program, (code) => process.exit(code));

try {
  await program.parseAsync();
} catch (error) {
  console.error(error instanceof SettingsError ? error.message : error);
  process.exit(1);
}
