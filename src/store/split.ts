/**
 * One request over several stores (the slots of a cluster, a second Redis for limits per second): its
 * charges go out in parts at once, and if the request as a whole is refused, what other parts took is
 * undone, also by parts that answer too late. Never admits more than one store would; may admit less
 * for as long as an undo is on its way. Keeps no deadline: the guards behind settle every part.
 */
import type { Charge } from '../model.js';
import { capacity } from '../algorithms/algorithm.js';
import { StoreRequest, submitUndo, undoOf } from './store.js';
import type { Gate, StoreCharge, UndoWatcher } from './store.js';

export interface SplitOptions<Place> extends UndoWatcher {
  /** Where the charge's counter is. Charges on one counter have the same place. */
  readonly route: (charge: Charge) => Place;
  /** Where requests for a place go. */
  readonly gateOf: (place: Place) => Gate;
  /** Monotonic, in ms; `performance.now`. */
  readonly nowMs: () => number;
}

export class SplitGate<Place> implements Gate {
  constructor(private readonly options: SplitOptions<Place>) {}

  /** A request whose charges are all in one place is passed on untouched. */
  submit(request: StoreRequest): void {
    const [first, ...others] = request.charges;
    if (first === undefined) {
      request.settle();
      return;
    }
    const { route, gateOf } = this.options;
    const place = route(first);
    if (others.every((charge) => route(charge) === place)) gateOf(place).submit(request);
    else new Split(request, this.options).send();
  }
}

/** What a part needs of the request that it is a part of. */
interface Whole {
  readonly deadlineMs: number;
  chargeAt(index: number): StoreCharge;
  answered(part: Part, late: boolean): void;
}

/** One request while its parts are out. */
class Split<Place> implements Whole {
  private readonly parts = new Map<Place, Part>();
  private outstanding = 0;
  private refused = false;

  constructor(
    private readonly request: StoreRequest,
    private readonly options: SplitOptions<Place>,
  ) {
    const { charges } = request;
    const places = new Map<Place, number[]>();
    for (const [index, charge] of charges.entries()) {
      const place = options.route(charge);
      const indexes = places.get(place);
      if (indexes === undefined) places.set(place, [index]);
      else indexes.push(index);
    }
    // Whether any quota fits is known only over the whole: a part that holds some must not veto.
    const quotaPlaces = [...places.values()].filter((indexes) =>
      indexes.some((index) => charges[index]?.role === 'quota'),
    );
    for (const [place, indexes] of places) {
      this.parts.set(place, new Part(this, indexes, quotaPlaces.length > 1));
    }
  }

  send(): void {
    this.outstanding = this.parts.size;
    this.request.takeBack = () => {
      this.refuse();
    };
    for (const [place, part] of this.parts) this.options.gateOf(place).submit(part);
  }

  chargeAt(index: number): StoreCharge {
    const charge = this.request.charges[index];
    if (charge === undefined) throw new RangeError('no such charge');
    return charge;
  }

  get deadlineMs(): number {
    return this.request.deadlineMs;
  }

  /** A part has its answer, or its failure; or an answer has come after its failure. */
  answered(part: Part, late: boolean): void {
    const { request } = this;
    for (const [i, index] of part.indexes.entries()) request.outcomes[index] = part.outcomes[i];
    if (part.failure !== undefined) request.failure = part.failure;
    request.nowUs = Math.max(request.nowUs, part.nowUs);
    if (late) {
      if (this.refused) this.undo();
      // Whoever passed this request on as a part of a larger one has to hear of it too.
      request.settle();
      return;
    }
    if (--this.outstanding > 0) return;
    if (this.isRefused()) this.refuse();
    request.settle();
  }

  /** By what the parts have said: places without outcome have no say here (see `takeBack`). */
  private isRefused(): boolean {
    let quotas = false;
    let quotaMayFit = false;
    for (const [i, { role }] of this.request.charges.entries()) {
      const outcome = this.request.outcomes[i];
      if (role === 'enforced' && outcome?.fits === false) return true;
      if (role === 'quota') {
        quotas = true;
        quotaMayFit ||= outcome?.fits !== false;
      }
    }
    return quotas && !quotaMayFit;
  }

  private refuse(): void {
    this.refused = true;
    this.undo();
  }

  /** Takes back what has been taken so far, in all parts, and says so in the outcomes. */
  private undo(): void {
    for (const [place, part] of this.parts) {
      const undone = part.toUndo();
      if (undone.length === 0) continue;
      submitUndo(this.options.gateOf(place), undone, this.options.nowMs(), this.options);
      this.correct(part, undone);
    }
  }

  private correct(part: Part, undone: readonly Charge[]): void {
    const { outcomes } = this.request;
    for (const index of part.indexes) {
      const outcome = outcomes[index];
      if (outcome === undefined) continue;
      const { key, limit, mode } = this.chargeAt(index);
      let hits = 0;
      for (const other of undone) if (other.key === key) hits += other.hits;
      if (hits === 0) continue;
      const remaining = Math.min(outcome.remaining + hits, capacity(limit));
      const taken = outcome.taken && mode !== 'take';
      outcomes[index] = { ...outcome, remaining, taken };
    }
  }
}

/** The charges of a request that are in one place. Unlike other requests it hears of late answers. */
class Part extends StoreRequest {
  private readonly undone = new Set<number>();

  constructor(
    whole: Whole,
    /** Places of its charges in the whole request. */
    readonly indexes: readonly number[],
    quotasAsShadow: boolean,
  ) {
    const charges = indexes.map((index): StoreCharge => {
      const charge = whole.chargeAt(index);
      return quotasAsShadow && charge.role === 'quota' ? { ...charge, role: 'shadow' } : charge;
    });
    super(charges, whole.deadlineMs, () => {
      whole.answered(this, false);
    });
    // This is where the marks of what came too late are.
    this.late = () => {
      whole.answered(this, true);
    };
  }

  /** What undoes each take that is known and not undone yet. */
  toUndo(): StoreCharge[] {
    return undoOf(this, this.undone);
  }
}
