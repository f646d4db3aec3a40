/**
 * A script call as ioredis sends it, written in one piece: by itself it would put every key together out of
 * some ten strings. Knows the wire of Redis (RESP2) and nothing of what is in the call.
 */
import { Command } from 'ioredis';

/** Room for the two numbers that go before each text, with what stands around them. */
const FRAME_BYTES = 32;
/** A UTF-16 unit takes no more in UTF-8. */
const MOST_UNIT_BYTES = 3;

/** Room that is kept after a call that needed more. */
const RETAINED_BYTES = 1_048_576;

/** Calls are put together here, one at a time, and copied out. */
let scratch = Buffer.allocUnsafe(16_384);

/** To be sent with `sendCommand`, whose promise is the reply as ioredis has read it, strings as bytes. */
export class ScriptCommand extends Command {
  private readonly bytes: Buffer;

  /** `script` is the digest of it for EVALSHA, the text for EVAL. */
  constructor(name: 'EVALSHA' | 'EVAL', script: string, keys: readonly string[], argument: Buffer) {
    super(name);
    this.bytes = encode(name, script, keys, argument);
  }

  override toWritable(): Buffer {
    return this.bytes;
  }
}

function encode(name: string, script: string, keys: readonly string[], argument: Buffer): Buffer {
  let most = (name.length + script.length) * MOST_UNIT_BYTES + argument.length + 5 * FRAME_BYTES;
  for (const key of keys) most += key.length * MOST_UNIT_BYTES + FRAME_BYTES;
  if (most > scratch.length) scratch = Buffer.allocUnsafe(most * 2);
  let at = head(0, 0x2a, keys.length + 4);
  at = text(at, name);
  at = text(at, script);
  at = text(at, String(keys.length));
  for (const key of keys) at = text(at, key);
  at = head(at, 0x24, argument.length);
  at += argument.copy(scratch, at);
  at = lineEnd(at);
  const bytes = Buffer.allocUnsafe(at);
  scratch.copy(bytes, 0, 0, at);
  if (scratch.length > RETAINED_BYTES) scratch = Buffer.allocUnsafe(16_384);
  return bytes;
}

/** `$5\r\nhello\r\n`; returns where the next one begins, as the others here do. */
function text(at: number, value: string): number {
  // Nearly always ASCII, so that its length is known before it is written.
  const start = head(at, 0x24, value.length);
  const length = scratch.write(value, start);
  if (length === value.length) return lineEnd(start + length);
  const again = head(at, 0x24, length);
  return lineEnd(again + scratch.write(value, again));
}

/** A type's letter and a number: `$5\r\n`. */
function head(at: number, letter: number, value: number): number {
  scratch[at] = letter;
  let digits = 1;
  for (let rest = value; rest >= 10; rest = Math.floor(rest / 10)) digits++;
  let rest = value;
  for (let place = at + digits; place > at; place--) {
    scratch[place] = 0x30 + (rest % 10);
    rest = Math.floor(rest / 10);
  }
  return lineEnd(at + 1 + digits);
}

function lineEnd(at: number): number {
  scratch[at] = 0x0d;
  scratch[at + 1] = 0x0a;
  return at + 2;
}
