/**
 * Work on a long list that decisions need not wait for: a little of it in each turn of the event loop, and
 * the rest at once when somebody needs all of it. Knows not what is done.
 */

/** So long a turn is held up. */
const SLICE_MS = 2;
/** Items between two looks at the clock. */
const STRIDE = 16;

/** One list at a time. `work` is called once for each item, in order, then `done` once. */
export class Backlog<T> {
  private items: readonly T[] = [];
  private next = 0;
  private turn: NodeJS.Immediate | undefined;
  private idle = true;

  constructor(
    private readonly work: (item: T) => void,
    private readonly done: () => void,
  ) {}

  /** Begins at once, so that a short list is done on return. What is left of the one before is done first. */
  start(items: readonly T[]): void {
    this.finish();
    this.items = items;
    this.next = 0;
    this.idle = false;
    this.goOn();
  }

  /** Does what is left. */
  finish(): void {
    if (this.idle) return;
    clearImmediate(this.turn);
    this.workUntil(Infinity);
  }

  private goOn(): void {
    this.workUntil(performance.now() + SLICE_MS);
    if (this.idle) return;
    this.turn = setImmediate(() => {
      this.goOn();
    });
  }

  private workUntil(endMs: number): void {
    const { items } = this;
    while (this.next < items.length) {
      const most = Math.min(items.length, this.next + STRIDE);
      for (const item of items.slice(this.next, most)) this.work(item);
      this.next = most;
      if (performance.now() >= endMs) return;
    }
    this.items = [];
    this.idle = true;
    this.done();
  }
}
