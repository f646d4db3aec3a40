/** A header block that comes in several frames. Owns how long it may become; knows nothing of what it says. */
import { ConnectionError } from './connection-error.js';
import { ERROR } from './frames.js';

/** Of one request's headers as they come, all their frames together. */
const MAX_BLOCK_BYTES = 65_536;

export class HeaderBlock {
  private room: Buffer = Buffer.alloc(0);
  private size = 0;

  constructor(
    readonly stream: number,
    readonly endsStream: boolean,
  ) {}

  /** All that has come. */
  get bytes(): Buffer {
    return this.room.subarray(0, this.size);
  }

  /** Takes bytes[from,to). Throws ConnectionError when it has become too long. */
  append(bytes: Buffer, from: number, to: number): void {
    const size = this.size + to - from;
    if (size > MAX_BLOCK_BYTES) throw new ConnectionError(ERROR.enhanceYourCalm);
    // The room doubles: a block in pieces of one byte must not cost its square.
    if (size > this.room.length) {
      const larger = Buffer.allocUnsafe(size * 2);
      this.room.copy(larger, 0, 0, this.size);
      this.room = larger;
    }
    bytes.copy(this.room, this.size, from, to);
    this.size = size;
  }
}
