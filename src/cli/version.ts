/** The version of this build, from package.json beside the build's folder. */
import { readFileSync } from 'node:fs';

/** As in package.json, such as `1.2.3`. */
export const VERSION: string = readVersion();

function readVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { version: string };
  return version;
}
