import { expect } from 'chai';
import fc from 'fast-check';
import type { Charge, Mode, Outcome, Role } from '../../src/model.js';
import { ALGORITHM_NAMES } from '../../src/model.js';
import { MemoryStore } from '../../src/store/memory.js';
import { SplitGate } from '../../src/store/split.js';
import { StoreError, StoreRequest } from '../../src/store/store.js';
import type { Gate, StoreOutcome } from '../../src/store/store.js';
import { ask, charge, CountingObserver, FITS, limit, REFUSED } from '../support/scripted-store.js';

/** Keeps what it is given until it is told to answer. */
class HeldGate implements Gate {
  readonly waiting: StoreRequest[] = [];

  submit(request: StoreRequest): void {
    this.waiting.push(request);
  }

  next(): StoreRequest {
    const request = this.waiting.shift();
    if (request === undefined) throw new Error('nothing is waiting');
    return request;
  }

  answer(...outcomes: StoreOutcome[]): void {
    fill(this.next(), outcomes);
  }
}

function fill(request: StoreRequest, outcomes: readonly StoreOutcome[]): void {
  outcomes.forEach((outcome, i) => (request.outcomes[i] = outcome));
  request.nowUs = 1_700_000_000_000_000;
  request.settle();
}

const TAKEN = { ...FITS, mark: 28_333_333 };

describe('store/split', () => {
  let a: HeldGate;
  let b: HeldGate;
  let failedUndos: number;
  let split: SplitGate<string>;

  beforeEach(() => {
    a = new HeldGate();
    b = new HeldGate();
    failedUndos = 0;
    split = new SplitGate({
      route: ({ key }) => key.charAt(0),
      gateOf: (place) => (place === 'a' ? a : b),
      undone: () => undefined,
      undoFailed: () => failedUndos++,
      nowMs: () => 0,
    });
  });

  it('passes a request on untouched when all its charges are in one place', () => {
    const request = ask([charge({ key: 'a1' }), charge({ key: 'a2', role: 'quota' })]);
    split.submit(request);
    expect(a.waiting).to.deep.equal([request]);
    expect(b.waiting).to.deep.equal([]);
  });

  it('sends the parts at once and settles when all have answered, with outcomes in their order', () => {
    const request = ask([charge({ key: 'b1' }), charge({ key: 'a1' }), charge({ key: 'b2' })], 20);
    split.submit(request);
    expect(a.waiting.map((part) => part.charges.map(({ key }) => key))).to.deep.equal([['a1']]);
    expect(b.waiting.map((part) => part.charges.map(({ key }) => key))).to.deep.equal([
      ['b1', 'b2'],
    ]);
    expect(b.waiting[0]?.deadlineMs).to.equal(20);
    a.answer({ ...TAKEN, remaining: 1 });
    expect(request.settled).to.equal(false);
    b.answer({ ...TAKEN, remaining: 2 }, { ...TAKEN, remaining: 3 });
    expect(request.settled).to.equal(true);
    expect(request.outcomes.map((outcome) => outcome?.remaining)).to.deep.equal([2, 1, 3]);
    expect(request.nowUs).to.equal(1_700_000_000_000_000);
    expect(a.waiting.length + b.waiting.length).to.equal(0);
  });

  it('takes back by its mark what one part took when another refuses', () => {
    const request = ask([charge({ key: 'a1', hits: 3 }), charge({ key: 'b1' })]);
    split.submit(request);
    a.answer(TAKEN);
    b.answer(REFUSED);
    expect(request.settled).to.equal(true);
    expect(request.outcomes[0]).to.deep.equal({ ...TAKEN, taken: false, remaining: 8 });
    const { charges } = a.next();
    expect(charges).to.deep.equal(
      [charge({ key: 'a1', hits: 3, role: 'shadow', mode: 'give_back' })].map((undo) => ({
        ...undo,
        mark: 28_333_333,
      })),
    );
    expect(b.waiting).to.deep.equal([]);
  });

  it('undoes neither a record, nor a give-back, nor a peek, nor what a shadow did not take', () => {
    const request = ask([
      charge({ key: 'a1', mode: 'record' }),
      charge({ key: 'a2', mode: 'give_back' }),
      charge({ key: 'a3', mode: 'peek', hits: 0 }),
      charge({ key: 'a4', role: 'shadow' }),
      charge({ key: 'b1' }),
    ]);
    split.submit(request);
    a.answer(TAKEN, TAKEN, { ...FITS, taken: false }, REFUSED);
    b.answer(REFUSED);
    expect(request.outcomes.map((outcome) => outcome?.taken)).to.deep.equal([
      ...[true, true, false, false],
      false,
    ]);
    expect(a.waiting).to.deep.equal([]);
  });

  it('undoes what a part says it took after the deadline, once', () => {
    const request = ask([charge({ key: 'a1' }), charge({ key: 'b1' })]);
    split.submit(request);
    const late = a.next();
    late.fail(new StoreError('timeout', 'too late'));
    b.answer(REFUSED);
    expect(request.settled).to.equal(true);
    expect(request.failure?.kind).to.equal('timeout');
    fill(late, [TAKEN]);
    fill(late, [TAKEN]);
    expect(a.waiting.map((undo) => undo.charges.map(({ mark }) => mark))).to.deep.equal([
      [28_333_333],
    ]);
  });

  it('leaves what a late part took when the request was not refused', () => {
    const request = ask([charge({ key: 'a1' }), charge({ key: 'b1' })]);
    split.submit(request);
    const late = a.next();
    late.fail(new StoreError('timeout', 'too late'));
    b.answer(TAKEN);
    expect(request.outcomes[0]).to.equal(undefined);
    fill(late, [TAKEN]);
    expect(a.waiting.length + b.waiting.length).to.equal(0);
  });

  it('takes back when told that a policy refuses, late parts included', () => {
    const request = ask([charge({ key: 'a1' }), charge({ key: 'b1' })]);
    split.submit(request);
    const late = a.next();
    late.fail(new StoreError('timeout', 'too late'));
    b.answer(TAKEN);
    request.takeBack?.();
    expect(request.outcomes[1]).to.deep.equal({ ...TAKEN, taken: false, remaining: 6 });
    expect(b.waiting).to.have.length(1);
    fill(late, [TAKEN]);
    expect(a.waiting).to.have.length(1);
  });

  it('judges quotas over the whole: one that fits elsewhere saves the request', () => {
    const request = ask([
      charge({ key: 'a1', role: 'quota' }),
      charge({ key: 'b1', role: 'quota' }),
    ]);
    split.submit(request);
    expect(a.waiting[0]?.charges[0]?.role).to.equal('shadow');
    expect(b.waiting[0]?.charges[0]?.role).to.equal('shadow');
    a.answer(REFUSED);
    b.answer(TAKEN);
    expect(request.outcomes[1]?.taken).to.equal(true);
    expect(b.waiting).to.deep.equal([]);
  });

  it('refuses when no quota fits, and undoes the rest', () => {
    const request = ask([charge({ key: 'a1', role: 'quota' }), charge({ key: 'b1' })]);
    split.submit(request);
    a.answer(REFUSED);
    b.answer(TAKEN);
    expect(request.outcomes[1]?.taken).to.equal(false);
    expect(b.next().charges[0]?.mode).to.equal('give_back');
  });

  it('tells whose hits were undone, when they are', () => {
    const told: string[] = [];
    split = new SplitGate({
      route: ({ key }) => key.charAt(0),
      gateOf: (place) => (place === 'a' ? a : b),
      undone: (charges) => told.push(...charges.map(({ key }) => key)),
      undoFailed: () => failedUndos++,
      nowMs: () => 0,
    });
    split.submit(ask([charge({ key: 'a1' }), charge({ key: 'b1' })]));
    a.answer(TAKEN);
    b.answer(REFUSED);
    expect(told).to.deep.equal([]);
    a.answer(FITS);
    expect(told).to.deep.equal(['a1']);
  });

  it('counts undos that had no answer', () => {
    const request = ask([charge({ key: 'a1' }), charge({ key: 'b1' })]);
    split.submit(request);
    a.answer(TAKEN);
    b.answer(REFUSED);
    a.next().fail(new StoreError('connection', 'gone'));
    expect(failedUndos).to.equal(1);
  });

  it('undoes through two levels when a part of a part answers late', () => {
    const outer = new SplitGate({
      route: ({ key }) => (key.startsWith('c') ? 'c' : 'ab'),
      gateOf: (place) => (place === 'c' ? c : split),
      undone: () => undefined,
      undoFailed: () => failedUndos++,
      nowMs: () => 0,
    });
    const c = new HeldGate();
    const request = ask(['a1', 'b1', 'c1'].map((key) => charge({ key })));
    outer.submit(request);
    const late = a.next();
    late.fail(new StoreError('timeout', 'too late'));
    b.answer(TAKEN);
    c.answer(REFUSED);
    expect(b.next().charges[0]?.mode).to.equal('give_back');
    fill(late, [TAKEN]);
    expect(a.next().charges[0]?.mark).to.equal(28_333_333);
    expect(a.waiting.length + b.waiting.length + c.waiting.length).to.equal(0);
  });
});

const KEYS = ['a1', 'a2', 'b1', 'b2', 'c1'];
const ROLES: readonly Role[] = ['enforced', 'enforced', 'shadow', 'quota'];
const MODES: readonly Mode[] = ['take', 'take', 'take', 'peek', 'record', 'give_back'];

/** Each key has one limit throughout, as each counter has. */
const limits = fc.tuple(
  ...KEYS.map(() =>
    fc.record({
      algorithm: fc.constantFrom(...ALGORITHM_NAMES),
      requests: fc.integer({ min: 0, max: 6 }),
    }),
  ),
);

function requests(modes: readonly Mode[]) {
  const one = fc.record({
    key: fc.nat({ max: KEYS.length - 1 }),
    hits: fc.integer({ min: 1, max: 4 }),
    role: fc.constantFrom(...ROLES),
    mode: fc.constantFrom(...modes),
  });
  return fc.array(fc.array(one, { minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 30 });
}

function toCharges(
  drawn: readonly { key: number; hits: number; role: Role; mode: Mode }[],
  rules: readonly { algorithm: (typeof ALGORITHM_NAMES)[number]; requests: number }[],
): Charge[] {
  return drawn.map(({ key, hits, role, mode }) => {
    const { algorithm = 'fixed_window', requests: burst = 1 } = rules[key] ?? {};
    return charge({
      limit: limit({ algorithm, requests: burst, burst, precisionUs: 1_000_000 }),
      key: KEYS[key] ?? 'a1',
      hits: mode === 'peek' ? 0 : hits,
      role,
      mode,
    });
  });
}

function memory(nowUs: () => number): MemoryStore {
  return new MemoryStore({ nowUs, observer: new CountingObserver() });
}

function essence(outcome: Outcome | undefined): unknown {
  return outcome && { fits: outcome.fits, taken: outcome.taken, remaining: outcome.remaining };
}

describe('store/split against a single store', () => {
  /** A counter that a request takes from and also charges otherwise may be left with more, or with less debt. */
  const isMixed = (one: readonly { key: number; mode: Mode }[]): boolean =>
    one.some(
      ({ key, mode }) =>
        (mode === 'give_back' || mode === 'record') &&
        one.some((other) => other.mode === 'take' && other.key === key),
    );

  it('decides, takes and leaves the same when one request follows the other', () => {
    fc.assert(
      fc.property(limits, requests(MODES), (rules, all) => {
        const drawn = all.filter((one) => !isMixed(one));
        let nowUs = 1_700_000_000_000_000;
        const now = (): number => nowUs;
        const single = memory(now);
        const parts = new Map(['a', 'b', 'c'].map((place) => [place, memory(now)]));
        const split = new SplitGate({
          route: ({ key }) => key.charAt(0),
          gateOf: (place) => ({
            submit: (request) => parts.get(place)?.decide([request], () => undefined),
          }),
          undone: () => undefined,
          undoFailed: () => undefined,
          nowMs: () => 0,
        });
        for (const one of drawn) {
          const charges = toCharges(one, rules);
          const expected = ask(charges);
          single.decide([expected], () => undefined);
          const actual = ask(charges);
          split.submit(actual);
          const told = ({ outcomes }: StoreRequest): unknown[] =>
            outcomes.map((outcome) => essence(outcome));
          expect(told(actual)).to.deep.equal(told(expected));
          nowUs += 700_000;
        }
      }),
      { numRuns: 300 },
    );
  });

  it('takes nothing back from a counter that the same request gives back to', () => {
    const place = memory(() => 1_700_000_000_000_000);
    const split = new SplitGate({
      route: ({ key }) => key,
      gateOf: () => ({
        submit: (request) => {
          place.decide([request], () => undefined);
        },
      }),
      undone: () => undefined,
      undoFailed: () => undefined,
      nowMs: () => 0,
    });
    const one = limit({ requests: 1, burst: 1 });
    const on = (mode: Mode): Charge => charge({ key: 'b1', limit: one, hits: 1, mode });
    const none = charge({ key: 'a1', limit: limit({ requests: 0, burst: 0 }), hits: 1 });
    split.submit(ask([on('take'), on('give_back'), none, on('record')]));
    const next = ask([on('take')]);
    split.submit(next);
    expect(next.outcomes[0]).to.include({ fits: false, taken: false });
  });

  it('admits no more than fits whatever the order and lateness of answers, and leaks no hit', () => {
    const events = fc.array(fc.nat({ max: 6 }), { minLength: 200, maxLength: 200 });
    fc.assert(
      fc.property(limits, requests(['take']), events, (rules, drawn, order) => {
        const nowUs = 1_700_000_000_000_000;
        const stores = ['a', 'b', 'c'].map(() => memory(() => nowUs));
        const gates = stores.map(() => new HeldGate());
        const split = new SplitGate({
          route: ({ key }) => 'abc'.indexOf(key.charAt(0)),
          gateOf: (place) => gates[place] ?? new HeldGate(),
          undone: () => undefined,
          undoFailed: () => undefined,
          nowMs: () => 0,
        });
        const asked: StoreRequest[] = [];
        const refused = new Set<StoreRequest>();
        const late: (() => void)[] = [];
        const queue = drawn.map((one) => toCharges(one, rules));
        const step = (event: number): void => {
          const charges = event < 2 ? queue.shift() : undefined;
          if (charges !== undefined) {
            const request = new StoreRequest(charges, Infinity, () => {
              if (isRefused(request)) refused.add(request);
            });
            asked.push(request);
            split.submit(request);
            return;
          }
          if (event === 6) {
            late.shift()?.();
            return;
          }
          const place = event % 3;
          const request = gates[place]?.waiting.shift();
          if (request === undefined) return;
          // The store decides what reaches it, also when its answer comes after the deadline.
          const twin = ask(request.charges);
          stores[place]?.decide([twin], () => undefined);
          const answer = (): void => {
            twin.outcomes.forEach((outcome, i) => (request.outcomes[i] = outcome));
            request.settle();
          };
          if (event >= 4 && request.charges[0]?.mode === 'take') {
            request.fail(new StoreError('timeout', 'too late'));
            late.push(answer);
          } else answer();
        };
        order.forEach(step);
        while (
          queue.length > 0 ||
          late.length > 0 ||
          gates.some((gate) => gate.waiting.length > 0)
        ) {
          [0, 2, 3, 1, 6].forEach(step);
        }

        for (const [index, key] of KEYS.entries()) {
          const [look] = toCharges([{ key: index, hits: 1, role: 'shadow', mode: 'peek' }], rules);
          const peek = ask(look === undefined ? [] : [look]);
          stores['abc'.indexOf(key.charAt(0))]?.decide([peek], () => undefined);
          const capacity = look?.limit.requests ?? 0;
          let admitted = 0;
          let answeredInTime = 0;
          for (const request of asked) {
            for (const [i, { key: of, hits }] of request.charges.entries()) {
              if (of !== key || refused.has(request) || request.outcomes[i]?.taken !== true)
                continue;
              admitted += hits;
              if (request.failure === undefined) answeredInTime += hits;
            }
          }
          expect(admitted).to.equal(capacity - (peek.outcomes[0]?.remaining ?? 0));
          expect(answeredInTime).to.be.at.most(capacity);
        }
      }),
      { numRuns: 300 },
    );
  });
});

function isRefused({ charges, outcomes }: StoreRequest): boolean {
  const quotas = charges.flatMap(({ role }, i) => (role === 'quota' ? [outcomes[i]] : []));
  return (
    charges.some(({ role }, i) => role === 'enforced' && outcomes[i]?.fits === false) ||
    (quotas.length > 0 && quotas.every((outcome) => outcome?.fits === false))
  );
}
