/**
 * The wire of decide.lua: requests → one packed argument, one packed reply → outcomes. Knows no
 * connection; what stands in which byte is written at the head of decide.lua.
 */
import type { AlgorithmName, Mode, Role } from '../model.js';
import { capacity } from '../algorithms/algorithm.js';
import type { StoreCharge, StoreOutcome } from './store.js';

/** What one call may carry: bounds how long Redis is busy, and stays below what `unpack` can pass. */
export const MAX_CALL_REQUESTS = 256;
export const MAX_CALL_CHARGES = 2048;

/** What one script call is made of. */
export interface ScriptCall {
  /** Every distinct counter, in the order in which the batch first names it. */
  readonly keys: string[];
  readonly argument: Buffer;
  /** How many charges the reply must answer, over all requests. */
  readonly charges: number;
}

const ALGORITHM_CODES: Readonly<Record<AlgorithmName, number>> = {
  fixed_window: 1,
  sliding_window: 2,
  sliding_window_counter: 3,
  token_bucket: 4,
};
const ROLE_CODES: Readonly<Record<Role, number>> = { enforced: 0, shadow: 1, quota: 2 };
const MODE_CODES: Readonly<Record<Mode, number>> = { take: 0, peek: 1, record: 2, give_back: 3 };
/** A give-back that names what it takes back. */
const UNDO_CODE = 4;

const HEAD_BYTES = 9;
const CHARGE_BYTES = 37;
const MARK_BYTES = 8;
const REPLY_HEAD_BYTES = 8;
const REPLY_BYTES = 33;

/** Packs requests, in order, into one call. `jitterUs` is added to what a key lives, within bounds. */
export function encodeCall(
  requests: readonly { readonly charges: readonly StoreCharge[] }[],
  jitterUs: number,
): ScriptCall {
  let bytes = HEAD_BYTES;
  let total = 0;
  for (const { charges } of requests) {
    bytes += 2 + charges.length * CHARGE_BYTES;
    total += charges.length;
    for (const charge of charges) if (isUndo(charge)) bytes += MARK_BYTES;
  }
  const argument = Buffer.allocUnsafe(bytes);
  // A quarter of what the methods of Buffer cost.
  const view = new DataView(argument.buffer, argument.byteOffset, bytes);
  const keys: string[] = [];
  const indexes = new Map<string, number>();
  let strings = 0;
  view.setFloat64(1, jitterUs, true);
  let at = HEAD_BYTES;
  for (const { charges } of requests) {
    view.setUint16(at, charges.length, true);
    at += 2;
    for (const charge of charges) {
      const { limit } = charge;
      let index = indexes.get(charge.key);
      if (index === undefined) {
        index = keys.push(charge.key);
        indexes.set(charge.key, index);
      }
      if (limit.algorithm !== 'sliding_window') strings = 1;
      view.setUint16(at, index, true);
      view.setUint8(at + 2, ALGORITHM_CODES[limit.algorithm]);
      view.setUint8(at + 3, ROLE_CODES[charge.role]);
      view.setUint8(at + 4, isUndo(charge) ? UNDO_CODE : MODE_CODES[charge.mode]);
      view.setFloat64(at + 5, charge.hits, true);
      view.setFloat64(at + 13, limit.requests, true);
      view.setFloat64(at + 21, limit.windowUs, true);
      const extra = limit.algorithm === 'token_bucket' ? capacity(limit) : limit.precisionUs;
      view.setFloat64(at + 29, extra, true);
      at += CHARGE_BYTES;
      if (isUndo(charge)) {
        view.setFloat64(at, charge.mark ?? 0, true);
        at += MARK_BYTES;
      }
    }
  }
  view.setUint8(0, strings);
  return { keys, argument, charges: total };
}

/** A reply of the right length; places count over all charges of the call. */
export class ScriptReply {
  private constructor(private readonly view: DataView) {}

  /** Undefined when this is no answer to so many charges. */
  static parse(reply: unknown, charges: number): ScriptReply | undefined {
    if (!Buffer.isBuffer(reply)) return undefined;
    if (reply.length !== REPLY_HEAD_BYTES + charges * REPLY_BYTES) return undefined;
    return new ScriptReply(new DataView(reply.buffer, reply.byteOffset, reply.length));
  }

  /** The time at which Redis decided, µs since the epoch. */
  get nowUs(): number {
    return this.view.getFloat64(0, true);
  }

  /** Its mark is 0 where nothing was taken. */
  outcome(index: number): StoreOutcome {
    const { view } = this;
    const at = REPLY_HEAD_BYTES + index * REPLY_BYTES;
    const flags = view.getUint8(at);
    return {
      fits: (flags & 1) !== 0,
      taken: (flags & 2) !== 0,
      remaining: view.getFloat64(at + 1, true),
      resetUs: view.getFloat64(at + 9, true),
      retryAfterUs: view.getFloat64(at + 17, true),
      mark: view.getFloat64(at + 25, true),
    };
  }
}

function isUndo(charge: StoreCharge): boolean {
  return charge.mode === 'give_back' && charge.mark !== undefined;
}
