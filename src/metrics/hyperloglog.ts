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
/** The multiplier of MurmurHash64A, 0xc6a4a7935bd1e995: its upper half, its lower one, and the halves of that. */
const M_HIGH = 0xc6a4a793 | 0;
const M_LOW = 0x5bd1e995;
const M_LOW_HIGH = 0x5bd1;
const M_LOW_LOW = 0xe995;

// The hash of the last text, in halves; module variables, as an object a call would cost more.
let low = 0;
let high = 0;

/** The upper half of the 64 bits of an unsigned 32-bit number times M_LOW. */
function upper(value: number): number {
  const valueLow = value & 0xffff;
  const valueHigh = value >>> 16;
  const middle = (Math.imul(valueHigh, M_LOW_LOW) + (Math.imul(valueLow, M_LOW_LOW) >>> 16)) >>> 0;
  const carried = ((middle & 0xffff) + Math.imul(valueLow, M_LOW_HIGH)) >>> 0;
  return (Math.imul(valueHigh, M_LOW_HIGH) + (middle >>> 16) + (carried >>> 16)) | 0;
}

/** The upper half of (b, a) × M modulo 2^64, where a is the lower one; that of the product is a × M_LOW. */
function times(a: number, b: number): number {
  return (upper(a) + Math.imul(a, M_HIGH) + Math.imul(b, M_LOW)) | 0;
}

/** The state is in variables of its own, and not in those of the module, so that it stays in registers. */
function murmur(length: number): void {
  const whole = length >> 3;
  for (let i = length; i % 8 > 0; i++) bytes[i] = 0;
  let a = length;
  let b = times(a, 0);
  a = Math.imul(a, M_LOW) ^ SEED;
  for (let i = 0; i < whole; i++) {
    let wordA = words[2 * i] ?? 0;
    let wordB = words[2 * i + 1] ?? 0;
    wordB = times(wordA, wordB);
    wordA = Math.imul(wordA, M_LOW);
    wordA ^= wordB >>> 15;
    wordB = times(wordA, wordB) ^ b;
    wordA = Math.imul(wordA, M_LOW) ^ a;
    b = times(wordA, wordB);
    a = Math.imul(wordA, M_LOW);
  }
  if (length % 8 > 0) {
    a ^= words[2 * whole] ?? 0;
    b ^= words[2 * whole + 1] ?? 0;
    b = times(a, b);
    a = Math.imul(a, M_LOW);
  }
  a ^= b >>> 15;
  b = times(a, b);
  a = Math.imul(a, M_LOW);
  low = a ^ (b >>> 15);
  high = b;
}

/** The text as UTF-8, and as the little-endian words of it that Redis reads. */
let bytes = Buffer.alloc(1024);
let words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);

function hash(text: string): void {
  // No UTF-16 unit takes more than three bytes; and the last word may have to be filled up.
  const most = text.length * 3 + 8;
  if (most > bytes.length) {
    bytes = Buffer.alloc(Math.ceil(most / 8) * 8);
    words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  }
  murmur(bytes.write(text));
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
