/** IP addresses as counters know them: one spelling for each, IPv6 as its network. */
import { isIPv4, isIPv6 } from 'node:net';

/**
 * The one spelling of an address: IPv4 as it is, IPv4-mapped IPv6 as IPv4, other IPv6 as the network of
 * its first `ipv6Prefix` bits (`2001:db8:1:2::/64`). Undefined for what is no address, has a zone or a
 * port.
 */
export function normaliseAddress(text: string, ipv6Prefix: number): string | undefined {
  if (isIPv4(text)) return text;
  // A zone is meaningful on one host only, and isIPv6 lets it pass.
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const groups = parseGroups(text);
  const mapped = mappedIPv4(groups);
  if (mapped !== undefined) return mapped;
  return `${format(groups.map((group, i) => mask(group, ipv6Prefix - i * 16)))}/${String(ipv6Prefix)}`;
}

/** The eight groups of a valid IPv6 address. */
function parseGroups(text: string): number[] {
  const [head = '', tail] = text.split('::');
  const left = parsePart(head);
  if (tail === undefined) return left;
  const right = parsePart(tail);
  return [...left, ...new Array<number>(8 - left.length - right.length).fill(0), ...right];
}

function parsePart(part: string): number[] {
  if (part === '') return [];
  return part.split(':').flatMap((group) => {
    if (!group.includes('.')) return [parseInt(group, 16)];
    const [a = 0, b = 0, c = 0, d = 0] = group.split('.').map(Number);
    return [a * 256 + b, c * 256 + d];
  });
}

/** `::ffff:a.b.c.d`: what a dual-stack socket makes of an IPv4 peer. */
function mappedIPv4(groups: readonly number[]): string | undefined {
  if (groups.slice(0, 5).some((group) => group !== 0) || groups[5] !== 0xffff) return undefined;
  const [high = 0, low = 0] = groups.slice(6);
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

function mask(group: number, bits: number): number {
  if (bits >= 16) return group;
  return bits <= 0 ? 0 : group & (0xffff << (16 - bits));
}

/** RFC 5952: lower case, no leading zeros, the first longest run of two or more zero groups as `::`. */
function format(groups: readonly number[]): string {
  let start = -1;
  let length = 1;
  for (let i = 0; i < groups.length; i++) {
    let end = i;
    while (end < groups.length && groups[end] === 0) end++;
    if (end - i > length) {
      start = i;
      length = end - i;
    }
  }
  const hex = (part: readonly number[]): string => part.map((g) => g.toString(16)).join(':');
  if (start < 0) return hex(groups);
  return `${hex(groups.slice(0, start))}::${hex(groups.slice(start + length))}`;
}
