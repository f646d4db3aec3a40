/** Programs that tests run but the project does not bring: where they are missing, a test is skipped, loudly. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/**
 * The program's path. Where it is not on the PATH the suite is skipped with a line that says so; in CI that
 * is an error.
 */
export function findCommand(name: string, suite: Mocha.Context): string {
  for (const directory of (process.env['PATH'] ?? '').split(delimiter)) {
    const path = join(directory, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // not here
    }
  }
  if (process.env['CI'] === 'true') throw new Error(`${name} is missing`);
  console.error(`    *** ${name} is missing (make tools): not tested`);
  suite.skip();
}
