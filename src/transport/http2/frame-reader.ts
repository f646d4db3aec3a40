/**
 * What comes on a connection, cut into frames: the client's preface, then frame after frame, wherever the
 * pieces begin and end in which they come. Knows lengths, and nothing of what is in a frame.
 */
import { ConnectionError } from './connection-error.js';
import { ERROR, FRAME_HEAD_BYTES, MAX_FRAME_BYTES, PREFACE } from './frames.js';

const NOTHING = Buffer.alloc(0);

/** Gets bytes[at,end), a whole frame; they are good for the length of this call only. */
export type FrameListener = (bytes: Buffer, at: number, end: number) => void;

export class FrameReader {
  /** How much of the client's preface is still to come. */
  private prefaceLeft = PREFACE.length;
  /** A frame that has not come whole: its first `have` bytes. */
  private partial: Buffer = NOTHING;
  private have = 0;

  constructor(private readonly onFrame: FrameListener) {}

  /** Throws ConnectionError for what is no HTTP/2, or a frame that is too large; and what `onFrame` throws. */
  read(chunk: Buffer): void {
    let at = this.prefaceLeft === 0 ? 0 : this.readPreface(chunk);
    if (this.have > 0) at = this.fillPartial(chunk, at);
    while (chunk.length - at >= FRAME_HEAD_BYTES) {
      const end = at + FRAME_HEAD_BYTES + payloadLength(chunk, at);
      if (end > chunk.length) break;
      this.onFrame(chunk, at, end);
      at = end;
    }
    if (at < chunk.length) this.keepPartial(chunk, at);
  }

  private readPreface(chunk: Buffer): number {
    const from = PREFACE.length - this.prefaceLeft;
    const size = Math.min(this.prefaceLeft, chunk.length);
    if (PREFACE.compare(chunk, 0, size, from, from + size) !== 0) {
      throw new ConnectionError(ERROR.protocol);
    }
    this.prefaceLeft -= size;
    return size;
  }

  /** Puts what comes behind what there is of a frame; returns where the next frame begins. */
  private fillPartial(chunk: Buffer, from: number): number {
    let at = from;
    if (this.have < FRAME_HEAD_BYTES) {
      at += this.copyPartial(chunk, at, FRAME_HEAD_BYTES);
      if (this.have < FRAME_HEAD_BYTES) return at;
    }
    const size = FRAME_HEAD_BYTES + payloadLength(this.partial, 0);
    if (size > this.partial.length) {
      const larger = Buffer.allocUnsafe(size);
      this.partial.copy(larger, 0, 0, this.have);
      this.partial = larger;
    }
    at += this.copyPartial(chunk, at, size);
    if (this.have < size) return at;
    const { partial } = this;
    // An idle connection shall hold no frame that it has read.
    this.partial = NOTHING;
    this.have = 0;
    this.onFrame(partial, 0, size);
    return at;
  }

  private copyPartial(chunk: Buffer, at: number, size: number): number {
    const copied = chunk.copy(this.partial, this.have, at, at + size - this.have);
    this.have += copied;
    return copied;
  }

  private keepPartial(chunk: Buffer, at: number): void {
    const size =
      chunk.length - at < FRAME_HEAD_BYTES
        ? FRAME_HEAD_BYTES
        : FRAME_HEAD_BYTES + payloadLength(chunk, at);
    this.partial = Buffer.allocUnsafe(size);
    this.have = chunk.copy(this.partial, 0, at);
  }
}

/** Of the frame that begins here. Throws when it is larger than we said that we take. */
function payloadLength(bytes: Buffer, at: number): number {
  const length = ((bytes[at] ?? 0) << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0);
  if (length > MAX_FRAME_BYTES) throw new ConnectionError(ERROR.frameSize);
  return length;
}
