/**
 * What is under way now: a set for what comes and goes by the thousand. JavaScript's own, emptied as fast as
 * it is filled, replaces its table again and again. Each old table still holds what it held and points to
 * the next: once one of them has lived to be old, all that comes after stays until the next full collection.
 */

/** Where something stands; kept by `InFlight`, -1 while it is in none. */
export interface Placed {
  place: number;
}

/** Each item is in one of these at most. No order. */
export class InFlight<Item extends Placed> {
  private readonly items: Item[] = [];

  add(item: Item): void {
    item.place = this.items.push(item) - 1;
  }

  /** Nothing happens when it is not in. */
  delete(item: Item): void {
    const { place } = item;
    if (place < 0) return;
    item.place = -1;
    const last = this.items.pop();
    if (last === undefined || last === item) return;
    last.place = place;
    this.items[place] = last;
  }

  /** All items as they are now; the list does not change with them. */
  all(): readonly Item[] {
    return [...this.items];
  }
}
