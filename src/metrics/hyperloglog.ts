/**
 * How many distinct texts have been seen, in constant memory: HyperLogLog, hashing and estimating
 * exactly as Redis does, so that what changes nothing here need not be sent there. Pure.
 *
 * Source: Redis's hyperloglog.c (MurmurHash64A, p = 14) and O. Ertl, "New cardinality estimation
 * algorithms for HyperLogLog sketches" (arXiv 1702.01284), which Redis uses to estimate.
 */

const P = 14;
const REGISTERS = 1 << P;
const INDEX_MASK = REGISTERS - 1;
/** The highest rank is Q + 1. */
const Q = 64 - P;
const ALPHA = 0.7213475204444817;
/** From so many used registers on, a plain array is smaller than a map. */
const MAX_SPARSE = 1000;

const SEED = 0xadc83b19;
/** The multiplier of MurmurHash64A, 0xc6a4a7935bd1e995, in halves. */
const M_LOW = 0x5bd1e995;
const M_HIGH = 0xc6a4a793 | 0;

// The 64-bit state of the hash, in halves; module variables, as an object a call would cost more.
let low = 0;
let high = 0;

/** The upper half of the product of two unsigned 32-bit numbers. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const carried = (middle % 0x10000) + aLow * bHigh;
  return (aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(carried / 0x10000)) | 0;
}

/** state *= M, modulo 2^64. */
function multiply(): void {
  const carry = multiplyHigh(low, M_LOW);
  high = (carry + Math.imul(low, M_HIGH) + Math.imul(high, M_LOW)) | 0;
  low = Math.imul(low, M_LOW);
}

/** Hashes `length` bytes that `at` yields; the result is left in `low` and `high`. */
function murmur(bytes: { readonly [index: number]: number }, length: number): void {
  low = length;
  high = 0;
  multiply();
  low ^= SEED;
  const whole = length - (length % 8);
  for (let i = 0; i < whole; i += 8) {
    const hashLow = low;
    const hashHigh = high;
    low = word(bytes, i);
    high = word(bytes, i + 4);
    multiply();
    low ^= high >>> 15;
    multiply();
    low ^= hashLow;
    high ^= hashHigh;
    multiply();
  }
  if (whole < length) {
    for (let i = whole; i < length; i++) {
      const shift = (i - whole) * 8;
      if (shift < 32) low ^= (bytes[i] ?? 0) << shift;
      else high ^= (bytes[i] ?? 0) << (shift - 32);
    }
    multiply();
  }
  low ^= high >>> 15;
  multiply();
  low ^= high >>> 15;
}

function word(bytes: { readonly [index: number]: number }, at: number): number {
  return (
    (bytes[at] ?? 0) |
    ((bytes[at + 1] ?? 0) << 8) |
    ((bytes[at + 2] ?? 0) << 16) |
    ((bytes[at + 3] ?? 0) << 24)
  );
}

const scratch = new Uint8Array(1024);

function hash(text: string): void {
  const length = text.length;
  if (length > scratch.length) {
    murmurOfUtf8(text);
    return;
  }
  for (let i = 0; i < length; i++) {
    const code = text.charCodeAt(i);
    if (code > 127) {
      murmurOfUtf8(text);
      return;
    }
    scratch[i] = code;
  }
  murmur(scratch, length);
}

function murmurOfUtf8(text: string): void {
  const bytes = Buffer.from(text);
  murmur(bytes, bytes.length);
}

/** Which register a text belongs to, and its rank there, 1 to 51. */
export interface Place {
  readonly index: number;
  readonly rank: number;
}

/** Where a text goes; the same in every HyperLogLog and in Redis. */
export function placeOf(text: string): Place {
  hash(text);
  return { index: low & INDEX_MASK, rank: rankOfState() };
}

/** One more than the zeros that end the hash, its first P bits dropped. */
function rankOfState(): number {
  const restLow = (low >>> P) | (high << (32 - P));
  if (restLow !== 0) return 1 + trailingZeros(restLow);
  const restHigh = high >>> P;
  return restHigh === 0 ? Q + 1 : 33 + trailingZeros(restHigh);
}

function trailingZeros(word: number): number {
  return 31 - Math.clz32(word & -word);
}

/** A set of which only the size can be asked. At most 16 KiB and a bit. */
export class HyperLogLog {
  private sparse: Map<number, number> | undefined = new Map();
  private dense: Uint8Array | undefined;
  /** How many registers have each rank; kept up to date, so that estimating is cheap. */
  private readonly histogram = new Uint16Array(Q + 2);

  constructor() {
    this.histogram[0] = REGISTERS;
  }

  /** True when this changed a register: then, and only then, adding it to Redis's would too. */
  add(text: string): boolean {
    return this.addPlace(placeOf(text));
  }

  /** As `add`, of a text whose place is known. */
  addPlace({ index, rank }: Place): boolean {
    const old = this.register(index);
    if (rank <= old) return false;
    this.histogram[old] = (this.histogram[old] ?? 0) - 1;
    this.histogram[rank] = (this.histogram[rank] ?? 0) + 1;
    if (this.dense !== undefined) {
      this.dense[index] = rank;
    } else if (this.sparse !== undefined) {
      this.sparse.set(index, rank);
      if (this.sparse.size > MAX_SPARSE) this.densify(this.sparse);
    }
    return true;
  }

  /** The rank that a register holds, 0 when untouched. */
  register(index: number): number {
    return this.dense?.[index] ?? this.sparse?.get(index) ?? 0;
  }

  /** The estimated number of distinct texts: exactly Redis's, for the same registers. */
  count(): number {
    let z = REGISTERS * tau((REGISTERS - (this.histogram[Q + 1] ?? 0)) / REGISTERS);
    for (let rank = Q; rank >= 1; rank--) z = 0.5 * (z + (this.histogram[rank] ?? 0));
    z += REGISTERS * sigma((this.histogram[0] ?? 0) / REGISTERS);
    return Math.round((ALPHA * REGISTERS * REGISTERS) / z);
  }

  copy(): HyperLogLog {
    const copy = new HyperLogLog();
    copy.sparse = this.sparse && new Map(this.sparse);
    copy.dense = this.dense?.slice();
    copy.histogram.set(this.histogram);
    return copy;
  }

  private densify(sparse: ReadonlyMap<number, number>): void {
    this.dense = new Uint8Array(REGISTERS);
    for (const [index, rank] of sparse) this.dense[index] = rank;
    this.sparse = undefined;
  }
}

/** Of Ertl's estimator: corrects for registers that are still empty. */
function sigma(x: number): number {
  if (x === 1) return Infinity;
  let power = x;
  let y = 1;
  let z = x;
  let before: number;
  do {
    power *= power;
    before = z;
    z += power * y;
    y += y;
  } while (before !== z);
  return z;
}

/** Of Ertl's estimator: corrects for registers that are full. */
function tau(x: number): number {
  if (x === 0 || x === 1) return 0;
  let root = x;
  let y = 1;
  let z = 1 - x;
  let before: number;
  do {
    root = Math.sqrt(root);
    before = z;
    y *= 0.5;
    z -= (1 - root) ** 2 * y;
  } while (before !== z);
  return z / 3;
}
