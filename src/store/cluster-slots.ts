/**
 * Which slot of a Redis Cluster a key is in, and which node serves a slot. Pure: knows no connection;
 * what nodes say is passed in. Follows the cluster specification of Redis.
 */

export const SLOTS = 16_384;

/** Where a node of a cluster can be reached; the port is the one that clients use. */
export interface NodeAddress {
  readonly host: string;
  readonly port: number;
}

/** Slots `first` to `last` are served by the master there. */
export interface SlotRange extends NodeAddress {
  readonly first: number;
  readonly last: number;
}

/** What an error reply asks the client to do with the call, which has not run. */
export type Redirect =
  | { readonly kind: 'moved' | 'ask'; readonly slot: number; readonly to: NodeAddress }
  | { readonly kind: 'try_again' };

const CRC16 = new Uint16Array(256);
for (let byte = 0; byte < 256; byte++) {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  CRC16[byte] = crc;
}

/** The slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it when it has none. */
export function keySlot(key: string): number {
  let from = 0;
  let to = key.length;
  const open = key.indexOf('{');
  if (open >= 0) {
    const close = key.indexOf('}', open + 1);
    if (close > open + 1) {
      from = open + 1;
      to = close;
    }
  }
  let crc = 0;
  for (let i = from; i < to; i++) {
    const code = key.charCodeAt(i);
    if (code > 0x7f) return crcOf(Buffer.from(key.slice(from, to))) % SLOTS;
    crc = ((crc << 8) ^ (CRC16[((crc >> 8) ^ code) & 0xff] ?? 0)) & 0xffff;
  }
  return crc % SLOTS;
}

function crcOf(bytes: Buffer): number {
  let crc = 0;
  for (const byte of bytes) {
    crc = ((crc << 8) ^ (CRC16[((crc >> 8) ^ byte) & 0xff] ?? 0)) & 0xffff;
  }
  return crc;
}

/** The address in the form in which nodes are told apart. */
export function addressText({ host, port }: NodeAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/**
 * Reads the reply to CLUSTER SLOTS; undefined when it makes no sense. A node that does not know its own
 * address leaves the host empty: the one that was asked, `asked`, is meant.
 */
export function parseSlots(reply: unknown, asked: NodeAddress): SlotRange[] | undefined {
  if (!Array.isArray(reply)) return undefined;
  const ranges: SlotRange[] = [];
  for (const entry of reply as unknown[]) {
    if (!Array.isArray(entry)) return undefined;
    const [first, last, master] = entry as unknown[];
    if (!isSlot(first) || !isSlot(last) || !Array.isArray(master)) return undefined;
    const [host, port] = master as unknown[];
    if (typeof port !== 'number') return undefined;
    const known = typeof host === 'string' && host !== '' && host !== '?';
    ranges.push({ first, last, host: known ? host : asked.host, port });
  }
  return ranges;
}

function isSlot(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value < SLOTS;
}

/** Reads `MOVED 3999 10.0.0.1:6379` and the like, as a node at `asked` says it; undefined for other errors. */
export function parseRedirect(message: string, asked: NodeAddress): Redirect | undefined {
  if (message.startsWith('TRYAGAIN')) return { kind: 'try_again' };
  const match = /^(MOVED|ASK) (\d+) (.*):(\d+)$/.exec(message);
  if (match === null) return undefined;
  const [, word, slot, host = '', port] = match;
  const to = { host: host === '' || host === '?' ? asked.host : host, port: Number(port) };
  return { kind: word === 'MOVED' ? 'moved' : 'ask', slot: Number(slot), to };
}

/** A short text that, as a hash tag, puts a key into one of these slots. */
export function tagInSlot(isWanted: (slot: number) => boolean): string | undefined {
  for (let i = 0; i < 64 * SLOTS; i++) {
    const tag = i.toString(36);
    if (isWanted(keySlot(tag))) return tag;
  }
  return undefined;
}
