/**
 * The header blocks that a connection sent last, with what they were decoded to: a client says much
 * the same with every call. Knows no encoding; that a block still means the same is for its caller to tell.
 */
import type { HeaderField } from './header-table.js';

/** Longer blocks are not kept: a connection shall not hold much. */
const MAX_BLOCK_BYTES = 512;
/** More than one, because what is left of a deadline is now 100 ms and now 97. */
const MAX_BLOCKS = 8;
/** Of so many bytes at its end, where blocks of one client differ, a block's mark is made. */
const MARKED_BYTES = 8;

interface Kept {
  readonly bytes: Buffer;
  length: number;
  mark: number;
  fields: readonly HeaderField[];
}

/** A few blocks; the one that was kept first is the first to go. */
export class BlockMemo {
  /** The state of the tables in which all that is kept was decoded. */
  private state = 0;
  private readonly kept: Kept[] = [];
  private count = 0;
  private next = 0;

  /** What the block buffer[start,end) was decoded to when the tables were in this state. */
  find(
    state: number,
    buffer: Buffer,
    start: number,
    end: number,
  ): readonly HeaderField[] | undefined {
    if (state !== this.state) return undefined;
    const length = end - start;
    const mark = markOf(buffer, start, end);
    for (let at = 0; at < this.count; at++) {
      const kept = this.kept[at];
      // A call of `compare` is 70 ns: the mark saves those that would be in vain.
      if (
        kept?.length === length &&
        kept.mark === mark &&
        kept.bytes.compare(buffer, start, end, 0, length) === 0
      ) {
        return kept.fields;
      }
    }
    return undefined;
  }

  /** Keeps a block that was decoded in this state and has left it as it was. Freezes the fields. */
  keep(state: number, buffer: Buffer, start: number, end: number, fields: HeaderField[]): void {
    const length = end - start;
    if (length === 0 || length > MAX_BLOCK_BYTES) return;
    if (state !== this.state) {
      this.state = state;
      this.count = 0;
      this.next = 0;
    }
    const kept = (this.kept[this.next] ??= {
      bytes: Buffer.allocUnsafeSlow(MAX_BLOCK_BYTES),
      length: 0,
      mark: 0,
      fields: [],
    });
    buffer.copy(kept.bytes, 0, start, end);
    kept.length = length;
    kept.mark = markOf(buffer, start, end);
    kept.fields = Object.freeze(fields);
    this.count = Math.max(this.count, this.next + 1);
    this.next = (this.next + 1) % MAX_BLOCKS;
  }
}

function markOf(buffer: Buffer, start: number, end: number): number {
  let mark = 0;
  for (let at = Math.max(start, end - MARKED_BYTES); at < end; at++) {
    mark = (Math.imul(mark, 31) + (buffer[at] ?? 0)) | 0;
  }
  return mark;
}
