/**
 * The fields that an HPACK block can name by number (RFC 7541, section 2.3): the static table, and behind
 * it the dynamic one, which both ends of a connection keep alike. Knows nothing of how they are encoded.
 */

/** One field of a header list; both strings are latin1, a character a byte. */
export interface HeaderField {
  readonly name: string;
  readonly value: string;
}

/** What HTTP/2 counts for a field besides its name and its value, in a table and in a list. */
const FIELD_OVERHEAD_BYTES = 32;
/** How large the dynamic table is until the other end says otherwise (RFC 9113, section 6.5.2). */
const INITIAL_BYTES = 4096;

/** Appendix A, from index 1 on: a name, and its values if it has any. */
const STATIC_FIELDS: readonly HeaderField[] = [
  [':authority'],
  [':method', 'GET', 'POST'],
  [':path', '/', '/index.html'],
  [':scheme', 'http', 'https'],
  [':status', '200', '204', '206', '304', '400', '404', '500'],
  ['accept-charset'],
  ['accept-encoding', 'gzip, deflate'],
  ['accept-language'],
  ['accept-ranges'],
  ['accept'],
  ['access-control-allow-origin'],
  ['age'],
  ['allow'],
  ['authorization'],
  ['cache-control'],
  ['content-disposition'],
  ['content-encoding'],
  ['content-language'],
  ['content-length'],
  ['content-location'],
  ['content-range'],
  ['content-type'],
  ['cookie'],
  ['date'],
  ['etag'],
  ['expect'],
  ['expires'],
  ['from'],
  ['host'],
  ['if-match'],
  ['if-modified-since'],
  ['if-none-match'],
  ['if-range'],
  ['if-unmodified-since'],
  ['last-modified'],
  ['link'],
  ['location'],
  ['max-forwards'],
  ['proxy-authenticate'],
  ['proxy-authorization'],
  ['range'],
  ['referer'],
  ['refresh'],
  ['retry-after'],
  ['server'],
  ['set-cookie'],
  ['strict-transport-security'],
  ['transfer-encoding'],
  ['user-agent'],
  ['vary'],
  ['via'],
  ['www-authenticate'],
].flatMap(([name = '', ...values]) =>
  (values.length === 0 ? [''] : values).map((value) => ({ name, value })),
);
const STATIC_COUNT = STATIC_FIELDS.length;

/** How HTTP/2 counts a field, in a table and in a list. */
export function fieldBytes(field: HeaderField): number {
  return field.name.length + field.value.length + FIELD_OVERHEAD_BYTES;
}

/** The two tables of one direction of a connection. */
export class HeaderTable {
  /** Grows with every change: what was read under the same number means the same. */
  changes = 0;
  private capacityBytes: number;
  private usedBytes = 0;
  private count = 0;
  /** Entries so far; a ring holds the last `count` of them, the newest before this. */
  private next = 0;
  private readonly ring: (HeaderField | undefined)[];
  private readonly mask: number;

  /** `maxBytes`: the most that `resize` will be called with. */
  constructor(maxBytes: number) {
    this.capacityBytes = Math.min(INITIAL_BYTES, maxBytes);
    const size = 2 ** Math.ceil(Math.log2(Math.max(1, maxBytes / FIELD_OVERHEAD_BYTES)));
    this.ring = new Array<HeaderField | undefined>(size).fill(undefined);
    this.mask = size - 1;
  }

  /** The field with this number, counted from 1; undefined if there is none. */
  get(index: number): HeaderField | undefined {
    if (index <= STATIC_COUNT) return STATIC_FIELDS[index - 1];
    const age = index - STATIC_COUNT;
    return age <= this.count ? this.ring[(this.next - age) & this.mask] : undefined;
  }

  /** Makes this the newest entry; the oldest go for it. One larger than the table only empties it. */
  insert(field: HeaderField): void {
    const bytes = fieldBytes(field);
    this.evict(this.capacityBytes - bytes);
    this.changes++;
    if (bytes > this.capacityBytes) return;
    this.ring[this.next] = field;
    this.next = (this.next + 1) & this.mask;
    this.count++;
    this.usedBytes += bytes;
  }

  /** Sets how large the dynamic table may be; the oldest entries go for it. */
  resize(capacityBytes: number): void {
    this.capacityBytes = capacityBytes;
    this.changes++;
    this.evict(capacityBytes);
  }

  private evict(downToBytes: number): void {
    while (this.usedBytes > downToBytes && this.count > 0) {
      const oldest = (this.next - this.count) & this.mask;
      const field = this.ring[oldest];
      this.ring[oldest] = undefined;
      this.count--;
      if (field !== undefined) this.usedBytes -= fieldBytes(field);
    }
  }
}
