/** Durations as configuration files write them. Pure. */

const UNITS_US: Readonly<Record<string, number>> = {
  us: 1,
  µs: 1,
  ms: 1000,
  s: 1_000_000,
  m: 60_000_000,
  h: 3_600_000_000,
};
const WHOLE_TEXT = /^(?:[0-9]+(?:\.[0-9]+)?(?:us|µs|ms|s|m|h))+$/;
const PART = /([0-9]+(?:\.[0-9]+)?)(us|µs|ms|s|m|h)/g;

/** `500ms`, `10s`, `1m30s`, `1.5s` in whole µs, rounded; undefined for anything else. */
export function parseDurationUs(text: string): number | undefined {
  if (!WHOLE_TEXT.test(text)) return undefined;
  let us = 0;
  for (const [, number, unit] of text.matchAll(PART)) {
    us += Number(number) * (UNITS_US[unit ?? ''] ?? NaN);
  }
  return Number.isFinite(us) ? Math.round(us) : undefined;
}
