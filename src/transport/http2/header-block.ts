/** A header block that comes in several frames. Owns how long it may become; knows nothing of what it says. */
import { ConnectionError } from './connection-error.js';
import { ERROR } from './frames.js';
import { GatheredBytes } from './gathered-bytes.js';

/** Of one request's headers as they come, all their frames together. */
const MAX_BLOCK_BYTES = 65_536;

export class HeaderBlock {
  private readonly gathered = new GatheredBytes();

  constructor(
    readonly stream: number,
    readonly endsStream: boolean,
  ) {}

  /** All that has come. */
  get bytes(): Buffer {
    return this.gathered.bytes;
  }

  /** Takes bytes[from,to). Throws ConnectionError when it has become too long. */
  append(bytes: Buffer, from: number, to: number): void {
    const size = this.gathered.length + to - from;
    if (size > MAX_BLOCK_BYTES) throw new ConnectionError(ERROR.enhanceYourCalm);
    this.gathered.append(bytes, from, to);
  }
}
