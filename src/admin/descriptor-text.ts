/**
 * Descriptors as people write them: `endpoint=/pay,user=42`. A comma in a value is `\,`, or the value
 * stands in double quotes, in which `\` makes the next character literal.
 */
import type { Entry } from '../model.js';

// Spaces around a key are trimmed afterwards: a pattern that does it takes the square of their number.
const KEY = /([^=,"]*)(?:=|(?=,|$))/y;
const QUOTED = /\s*"((?:[^"\\]|\\.)*)"\s*(?=,|$)/y;
const PLAIN = /((?:\\,|[^,])*)(?=,|$)/y;

/** What cannot be read as a descriptor, in words. */
export class DescriptorTextError extends Error {
  override readonly name = 'DescriptorTextError';
  readonly code = 'descriptor_text_error';
}

/** Reads one descriptor; a key without `=` has the empty value. Throws DescriptorTextError. */
export function parseDescriptor(text: string): Entry[] {
  const entries: Entry[] = [];
  let at = 0;
  while (at < text.length || entries.length === 0) {
    const key = take(KEY, text, at);
    const name = key?.found.trim() ?? '';
    if (key === undefined || name === '') {
      throw new DescriptorTextError(
        `expected \`key=value\` at character ${at + 1} of \`${text}\`, such as \`endpoint=/pay,user=42\``,
      );
    }
    at = key.end;
    const quoted = text[at - 1] === '=' ? take(QUOTED, text, at) : undefined;
    const plain = quoted ?? take(PLAIN, text, at);
    const value = quoted === undefined ? plainValue(plain?.found ?? '') : unescape(quoted.found);
    at = (plain?.end ?? at) + 1;
    entries.push({ key: name, value });
  }
  return entries;
}

/** Writes entries so that `parseDescriptor` reads the same. */
export function formatDescriptor(entries: readonly Entry[]): string {
  return entries
    .map(({ key, value }) => {
      const plain = /^[^,"\s\\](?:[^,]*[^,\s\\])?$/.test(value) || value === '';
      return `${key}=${plain ? value : `"${value.replace(/["\\]/g, '\\$&')}"`}`;
    })
    .join(',');
}

function take(
  pattern: RegExp,
  text: string,
  at: number,
): { readonly found: string; readonly end: number } | undefined {
  pattern.lastIndex = at;
  const match = pattern.exec(text);
  return match === null ? undefined : { found: match[1] ?? '', end: pattern.lastIndex };
}

function plainValue(text: string): string {
  return text.trim().replaceAll('\\,', ',');
}

function unescape(text: string): string {
  return text.replace(/\\(.)/g, '$1');
}
