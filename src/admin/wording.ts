/** Limits, counters and spans of time in the words that the page and the command line show. */
import type { Limit } from '../model.js';

const SPANS = [
  ['d', 86_400],
  ['h', 3600],
  ['min', 60],
  ['s', 1],
] as const;

/** `45 s`, `3 min 20 s`, `2 h 5 min`; two units at most, rounded up to whole seconds. */
export function formatSpan(ms: number): string {
  let seconds = Math.ceil(ms / 1000);
  const parts: string[] = [];
  for (const [unit, size] of SPANS) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count > 0) parts.push(`${count} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.length === 0 ? '0 s' : parts.join(' ');
}

/** `5 per minute`, `100 per 30 seconds`, `10 per second, burst 50`. */
export function formatLimit(limit: Limit): string {
  const { requests, unit, unitMultiplier, burst, algorithm } = limit;
  const window = unitMultiplier === 1 ? unit : `${unitMultiplier} ${unit}s`;
  const text = `${requests} per ${window}`;
  return algorithm === 'token_bucket' && burst !== requests ? `${text}, burst ${burst}` : text;
}

/** A counter's key as the value that it counts: `user=42`, `endpoint=/pay, user=42`. */
export function valueOfKey(key: string, domain: string): string {
  const parts = key.split('|');
  // Head and domain go before; a key that was too long is a head and a digest.
  if (parts.length < 3 || !parts.includes(domainPart(domain))) return key;
  return parts
    .slice(parts.indexOf(domainPart(domain)) + 1)
    .map((part) => part.replace(/%([0-9A-F]{2})/g, unescaped))
    .join(', ');
}

function domainPart(domain: string): string {
  return domain.replace(/[%|{}]/g, (character) => {
    return '%' + character.charCodeAt(0).toString(16).toUpperCase();
  });
}

function unescaped(_whole: string, hex: string): string {
  const code = parseInt(hex, 16);
  return code < 32 ? '\uFFFD' : String.fromCharCode(code);
}
