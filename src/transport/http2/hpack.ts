/**
 * Header blocks to header lists (HPACK, RFC 7541). Owns the state of one direction of a connection and the
 * bounds of what a block may cost; knows nothing of frames, nor of what makes a list a request.
 */
import { BlockMemo } from './block-memo.js';
import { fieldBytes, HeaderTable, type HeaderField } from './header-table.js';
import { decodedBound, decodeHuffman } from './huffman.js';

export type { HeaderField } from './header-table.js';

/** An integer may go on for so many bytes: 28 bits, more than any block has. */
const MAX_CONTINUATIONS = 4;
/** A table may be made smaller and larger again between two blocks (section 4.2). */
const MAX_SIZE_UPDATES = 2;

/** In place of a field that nobody will see. */
const UNREAD: HeaderField = { name: '', value: '' };
/** Where Huffman strings are decoded; a coded string of up to 2500 bytes fits. */
const scratch = Buffer.allocUnsafeSlow(4001);

/** A block that is not HPACK: the connection cannot go on (COMPRESSION_ERROR). */
export class HpackError extends Error {
  override readonly name = 'HpackError';
}

/** Decodes the header blocks of one direction of a connection, in their order. */
export class HeaderDecoder {
  private readonly table: HeaderTable;
  private at = 0;
  private end = 0;
  private readonly memo = new BlockMemo();

  /**
   * `maxTableBytes`: what was announced as SETTINGS_HEADER_TABLE_SIZE; less than the initial 4096 would
   * be wrong for blocks that are under way before the other end has read it. `maxListBytes`: the
   * largest list that is returned, as HTTP/2 counts (name, value and 32 for each field).
   */
  constructor(
    private readonly maxTableBytes: number,
    private readonly maxListBytes: number,
  ) {
    this.table = new HeaderTable(maxTableBytes);
  }

  /**
   * Decodes one whole header block, buffer[start,end). Returns the fields in order, or undefined when
   * the list is larger than the bound; the table is right all the same. Nothing returned refers to the
   * buffer. Time and memory are linear in the block's bytes. Throws HpackError.
   */
  decode(buffer: Buffer, start: number, end: number): readonly HeaderField[] | undefined {
    const { table, memo } = this;
    const { changes } = table;
    const known = memo.find(changes, buffer, start, end);
    if (known !== undefined) return known;
    this.at = start;
    this.end = end;
    this.sizeUpdates(buffer);
    const fields: HeaderField[] = [];
    let roomBytes = this.maxListBytes;
    while (this.at < end) {
      const first = buffer[this.at++] ?? 0;
      let field: HeaderField;
      if (first >= 0x80) field = this.indexed(this.integer(buffer, first & 0x7f, 0x7f));
      else if (first >= 0x40) {
        field = this.literal(buffer, this.integer(buffer, first & 0x3f, 0x3f));
        table.insert(field);
      } else if (first >= 0x20) throw new HpackError('a table size update after a field');
      else {
        const nameIndex = this.integer(buffer, first & 0xf, 0xf);
        if (roomBytes >= 0) field = this.literal(buffer, nameIndex);
        else field = this.skipLiteral(buffer, nameIndex);
      }
      roomBytes -= fieldBytes(field);
      if (roomBytes >= 0) fields.push(field);
    }
    if (roomBytes < 0) return undefined;
    if (table.changes === changes) memo.keep(changes, buffer, start, end, fields);
    return fields;
  }

  private sizeUpdates(buffer: Buffer): void {
    for (let updates = 0; this.at < this.end; updates++) {
      const first = buffer[this.at] ?? 0;
      if ((first & 0xe0) !== 0x20) return;
      if (updates === MAX_SIZE_UPDATES) throw new HpackError('too many table size updates');
      this.at++;
      const bytes = this.integer(buffer, first & 0x1f, 0x1f);
      if (bytes > this.maxTableBytes) throw new HpackError('a table larger than was announced');
      this.table.resize(bytes);
    }
  }

  private indexed(index: number): HeaderField {
    const field = this.table.get(index);
    if (field === undefined) throw new HpackError(`no field has index ${index}`);
    return field;
  }

  private literal(buffer: Buffer, nameIndex: number): HeaderField {
    const name = nameIndex === 0 ? this.string(buffer) : this.indexed(nameIndex).name;
    return { name, value: this.string(buffer) };
  }

  private skipLiteral(buffer: Buffer, nameIndex: number): HeaderField {
    if (nameIndex === 0) this.skipString(buffer);
    else this.indexed(nameIndex);
    this.skipString(buffer);
    return UNREAD;
  }

  private string(buffer: Buffer): string {
    const coded = this.at < this.end && (buffer[this.at] ?? 0) >= 0x80;
    const start = this.skipString(buffer);
    if (!coded) return buffer.toString('latin1', start, this.at);
    const bound = decodedBound(this.at - start);
    const into = bound <= scratch.length ? scratch : Buffer.allocUnsafeSlow(bound);
    const length = decodeHuffman(buffer, start, this.at, into);
    if (length < 0) throw new HpackError('a string that is not in the Huffman code');
    return into.toString('latin1', 0, length);
  }

  /** Goes to the end of a string and returns where its bytes start. */
  private skipString(buffer: Buffer): number {
    const first = this.byte(buffer);
    const length = this.integer(buffer, first & 0x7f, 0x7f);
    const start = this.at;
    this.at += length;
    if (this.at > this.end) throw new HpackError('it ends in the middle of a string');
    return start;
  }

  /** An integer whose first byte has `prefix` in the bits of `mask` (section 5.1). */
  private integer(buffer: Buffer, prefix: number, mask: number): number {
    if (prefix < mask) return prefix;
    let value = mask;
    for (let shift = 0; shift < MAX_CONTINUATIONS * 7; shift += 7) {
      const byte = this.byte(buffer);
      value += (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new HpackError('an integer that is too long');
  }

  private byte(buffer: Buffer): number {
    if (this.at >= this.end) throw new HpackError('it ends in the middle of a field');
    return buffer[this.at++] ?? 0;
  }
}
