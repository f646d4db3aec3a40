/** What a command may do to the world besides its task: print, and say how it went. */

/** Handed to every command, so that tests can read what one prints. */
export interface Terminal {
  /** What was asked for, to stdout. Ends its own lines. */
  print(text: string): void;
  /** What is wrong, to stderr. Ends its own lines. */
  complain(text: string): void;
  /** The exit code: 0 unless a command says otherwise. */
  fail(code: number): void;
}

/** The column's cells are numbers, and stand at its right end. */
export type Align = 'left' | 'right';

/** Rows under a head, in columns as wide as they must be; two spaces between. Ends with a line end. */
export function formatTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  align: readonly Align[],
): string {
  const lines = [head, ...rows];
  const widths = head.map((_, column) =>
    Math.max(...lines.map((line) => (line[column] ?? '').length)),
  );
  return lines
    .map((line) => {
      const cells = widths.map((width, column) => {
        const cell = line[column] ?? '';
        return align[column] === 'right' ? cell.padStart(width) : cell.padEnd(width);
      });
      return `${cells.join('  ').trimEnd()}\n`;
    })
    .join('');
}

/** `1 rule`, `2 rules`. */
export function plural(count: number, noun: string): string {
  return `${String(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/** `23s`, `1m30s`, `250ms`: two units at most. */
export function formatMs(ms: number): string {
  if (ms < 1000) return `${String(Math.ceil(ms))}ms`;
  let rest = Math.ceil(ms / 1000);
  let text = '';
  for (const [seconds, unit] of [
    [86_400, 'd'],
    [3600, 'h'],
    [60, 'm'],
    [1, 's'],
  ] as const) {
    const count = Math.floor(rest / seconds);
    rest -= count * seconds;
    if (count > 0) text += `${String(count)}${unit}`;
    if (/\D\d+\D$/.test(text)) break;
  }
  return text;
}
