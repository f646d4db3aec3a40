/** Bytes that come in pieces and are looked at as one, in memory of their own. Knows not what they are. */

export class GatheredBytes {
  private room: Buffer = Buffer.alloc(0);
  private size = 0;

  get length(): number {
    return this.size;
  }

  /** All that has come and was not dropped; good until the next call of `append` or `drop`. */
  get bytes(): Buffer {
    return this.room.subarray(0, this.size);
  }

  /** Copies bytes[from,to), as what comes on a connection is good for one turn only. */
  append(bytes: Buffer, from = 0, to = bytes.length): void {
    const size = this.size + to - from;
    if (size > this.room.length) {
      // The room doubles, once there is more than one piece: pieces of one byte must not cost their square.
      const larger = Buffer.allocUnsafe(this.size === 0 ? size : size * 2);
      this.room.copy(larger, 0, 0, this.size);
      this.room = larger;
    }
    bytes.copy(this.room, this.size, from, to);
    this.size = size;
  }

  /** The first bytes have been read. */
  drop(bytes: number): void {
    this.room.copyWithin(0, bytes, this.size);
    this.size -= bytes;
  }
}
