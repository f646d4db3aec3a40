/**
 * Messages that come compressed, made plain in other threads. Owns how many at once: each may hold as much
 * as the largest message while it is worked on, however few bytes it came in.
 */
import { gunzip, inflate } from 'node:zlib';

/** Over all connections. Node has four threads for it. */
const MAX_AT_ONCE = 8;

export interface Decompression {
  readonly encoding: 'gzip' | 'deflate';
  /** Not to be changed until it is done. */
  readonly message: Buffer;
  /** Of the plain message. */
  readonly maxBytes: number;
  /** Nobody waits for it any more: it is done without being worked on. */
  readonly isVain: () => boolean;
  /** Called later, once. `too large` is more than `maxBytes`. */
  readonly done: (result: Buffer | 'too large' | 'malformed') => void;
}

const waiting: Decompression[] = [];
let running = 0;

/** Begins, or waits for its turn. */
export function decompress(job: Decompression): void {
  if (running < MAX_AT_ONCE) run(job);
  else waiting.push(job);
}

function run(job: Decompression): void {
  const algorithm = job.encoding === 'gzip' ? gunzip : inflate;
  algorithm(job.message, { maxOutputLength: job.maxBytes }, (error, plain) => {
    running--;
    runNext();
    if (error === null) job.done(plain);
    else {
      const tooLarge = 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE';
      job.done(tooLarge ? 'too large' : 'malformed');
    }
  });
  running++;
}

function runNext(): void {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    if (!next.isVain()) {
      run(next);
      return;
    }
    next.done('malformed');
  }
}
