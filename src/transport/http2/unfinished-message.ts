/** The beginning of a message that goes on in frames to come, in memory of its own. Knows no framing. */
export class UnfinishedMessage {
  private room: Buffer;
  private size: number;

  /** A copy: what comes on a connection is good for one turn only. */
  constructor(bytes: Buffer) {
    this.room = Buffer.from(bytes);
    this.size = bytes.length;
  }

  get length(): number {
    return this.size;
  }

  /** Returns all that has come, which is good until the next call. */
  append(bytes: Buffer): Buffer {
    const size = this.size + bytes.length;
    // The room doubles: a message in pieces of one byte must not cost its square.
    if (size > this.room.length) {
      const larger = Buffer.allocUnsafe(size * 2);
      this.room.copy(larger, 0, 0, this.size);
      this.room = larger;
    }
    bytes.copy(this.room, this.size);
    this.size = size;
    return this.room.subarray(0, size);
  }

  /** The first bytes have been read. */
  drop(bytes: number): void {
    this.room.copyWithin(0, bytes, this.size);
    this.size -= bytes;
  }
}
