/**
 * The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B): bytes of a string literal to the bytes
 * they stand for. Knows nothing of fields and blocks.
 */

/**
 * How long the code of each byte is, in bits; the last is the end of string. The code is canonical:
 * in the order of length, then of byte, each is the one before plus one, so that this is all there is to know.
 */
// prettier-ignore
const CODE_BITS = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
  28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
  6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
  5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
  7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
  15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
  6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
  20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
  24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
  22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
  21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
  26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
  19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
  20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
  26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
  30,
];
const END_OF_STRING = 256;
const SHORTEST_BITS = 5;

/** States are the inner nodes of the code's tree, and one that is never left again. */
const STATES = 256;
const DEAD = STATES;
const STATE_MASK = 0x1ff;
/** The state after n ones is n; a string may end after at most seven, which are padding. */
const LAST_PADDING = 7;
const EMITS_SHIFT = 9;
const BYTE_SHIFT = 16;

/** By state and four bits: the next state, whether a byte is complete, and which. */
const STEPS = buildSteps();

/** How large `into` must be for a string of so many coded bytes. */
export function decodedBound(bytes: number): number {
  // One more, because a byte is written before it is known to be complete.
  return Math.floor((bytes * 8) / SHORTEST_BITS) + 1;
}

/**
 * Decodes buffer[start,end) into the beginning of `into` and returns how many bytes that are, or -1 if
 * it is not the code of a string: it contains the end of string, or its padding is not up to seven ones.
 */
export function decodeHuffman(buffer: Buffer, start: number, end: number, into: Buffer): number {
  let length = 0;
  let state = 0;
  for (let at = start; at < end; at++) {
    const byte = buffer[at] ?? 0;
    // No code is shorter than five bits: four complete one byte at most.
    const high = STEPS[(state << 4) | (byte >>> 4)] ?? DEAD;
    into[length] = high >>> BYTE_SHIFT;
    length += (high >>> EMITS_SHIFT) & 1;
    const low = STEPS[((high & STATE_MASK) << 4) | (byte & 15)] ?? DEAD;
    into[length] = low >>> BYTE_SHIFT;
    length += (low >>> EMITS_SHIFT) & 1;
    state = low & STATE_MASK;
  }
  return state <= LAST_PADDING ? length : -1;
}

function buildSteps(): Uint32Array {
  const tree = buildTree();
  const steps = new Uint32Array((STATES + 1) * 16).fill(DEAD);
  for (let at = 0; at < STATES * 16; at++) {
    let state = at >>> 4;
    let emitted = 0;
    for (let bit = 3; bit >= 0 && state !== DEAD; bit--) {
      const next = tree[state * 2 + ((at >>> bit) & 1)] ?? 0;
      if (next > 0) state = next;
      else if (~next === END_OF_STRING) state = DEAD;
      else {
        emitted = (~next << BYTE_SHIFT) | (1 << EMITS_SHIFT);
        state = 0;
      }
    }
    steps[at] = emitted | state;
  }
  return steps;
}

/** Two children for each inner node: another inner node, or the complement of a byte. */
function buildTree(): Int16Array {
  const tree = new Int16Array(STATES * 2);
  let nodes = 1;
  const add = (symbol: number, code: number, bits: number) => {
    let node = 0;
    for (let bit = bits - 1; bit > 0; bit--) {
      const branch = node * 2 + ((code >>> bit) & 1);
      if (tree[branch] === 0) tree[branch] = nodes++;
      node = tree[branch] ?? 0;
    }
    tree[node * 2 + (code & 1)] = ~symbol;
  };
  // Thirty ones. First, so that the states along it are numbered by how many there have been.
  add(END_OF_STRING, 0x3fffffff, 30);
  let code = 0;
  for (let bits = SHORTEST_BITS; bits <= 30; bits++) {
    code <<= 1;
    for (let byte = 0; byte < END_OF_STRING; byte++) {
      if (CODE_BITS[byte] === bits) add(byte, code++, bits);
    }
  }
  return tree;
}
