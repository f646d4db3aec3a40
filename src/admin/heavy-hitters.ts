/**
 * The heaviest values of a stream in bounded memory: the space-saving sketch of Metwally, Agrawal and
 * El Abbadi (2005). Pure: knows neither time nor what the values mean.
 *
 * A sketch of k entries that has seen n hits holds every value with more than n/k of them, and says
 * of none too little: a count is too high by at most the entry's `error`.
 */

/** One of the heaviest values, with what it has been seen to do. */
export interface HeavyHitter {
  readonly key: string;
  /** Never below the truth; above it by at most `error`. */
  readonly count: number;
  readonly error: number;
  /** The part of `count` that was refused since the value has had its entry; never above the truth. */
  readonly rejected: number;
}

interface Slot {
  key: string;
  count: number;
  error: number;
  rejected: number;
  /** Index in the heap. */
  place: number;
}

/** A sketch of at most `capacity` entries. An offer costs a map look-up and O(log capacity). */
export class HeavyHitters {
  private readonly slots = new Map<string, Slot>();
  /** A binary heap, the smallest count first. */
  private readonly heap: Slot[] = [];

  constructor(private readonly capacity: number) {}

  get size(): number {
    return this.heap.length;
  }

  /** Counts `weight` (above 0) for the key, and as refused too if it was. */
  offer(key: string, weight: number, rejected: boolean): void {
    const known = this.slots.get(key);
    const slot = known ?? this.place(key);
    slot.count += weight;
    if (rejected) slot.rejected += weight;
    this.sink(slot);
  }

  /** The heaviest, the heaviest first; all of them when no number is given. */
  top(most = this.heap.length): readonly HeavyHitter[] {
    return this.heap
      .map(({ key, count, error, rejected }) => ({ key, count, error, rejected }))
      .sort((a, b) => b.count - a.count || (a.key < b.key ? -1 : 1))
      .slice(0, most);
  }

  /** An entry for a new key: a free one, or that of the lightest, whose count it takes over. */
  private place(key: string): Slot {
    const lightest = this.heap[0];
    if (this.heap.length < this.capacity || lightest === undefined) {
      const slot = { key, count: 0, error: 0, rejected: 0, place: this.heap.length };
      this.heap.push(slot);
      this.slots.set(key, slot);
      this.rise(slot);
      return slot;
    }
    this.slots.delete(lightest.key);
    lightest.key = key;
    lightest.error = lightest.count;
    lightest.rejected = 0;
    this.slots.set(key, lightest);
    return lightest;
  }

  private rise(slot: Slot): void {
    while (slot.place > 0) {
      const parent = this.heap[(slot.place - 1) >> 1];
      if (parent === undefined || parent.count <= slot.count) return;
      this.swap(slot, parent);
    }
  }

  private sink(slot: Slot): void {
    for (;;) {
      const left = this.heap[2 * slot.place + 1];
      const right = this.heap[2 * slot.place + 2];
      const lighter =
        right !== undefined && left !== undefined && right.count < left.count ? right : left;
      if (lighter === undefined || lighter.count >= slot.count) return;
      this.swap(slot, lighter);
    }
  }

  private swap(a: Slot, b: Slot): void {
    const { place } = a;
    a.place = b.place;
    b.place = place;
    this.heap[a.place] = a;
    this.heap[b.place] = b;
  }
}
