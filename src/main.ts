#!/usr/bin/env node
/** Where the process begins, and the only place that ends it. */

// Loading the program takes a moment, in which a signal would end the process as if it had failed.
// Whoever listens to a signal later on decides itself.
for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  process.on(signal, () => {
    if (process.listenerCount(signal) === 1) process.exit(0);
  });
}

const { runProgram } = await import('./cli/program.js');
await runProgram((code) => process.exit(code));
