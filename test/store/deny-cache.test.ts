import { expect } from 'chai';
import { DenyCache } from '../../src/store/deny-cache.js';
import type { Gate, StoreRequest } from '../../src/store/store.js';
import { CountingObserver, FITS, REFUSED, ask, charge, limit } from '../support/scripted-store.js';
import type { Charge, Outcome } from '../../src/model.js';

class Gateway implements Gate {
  readonly submitted: StoreRequest[] = [];
  answer: (charge: Charge) => Outcome = () => REFUSED;
  submit(request: StoreRequest): void {
    this.submitted.push(request);
    request.charges.forEach((c, i) => (request.outcomes[i] = this.answer(c)));
    request.nowUs = 1_000_000;
    request.settle();
  }
}

describe('DenyCache', () => {
  let gate: Gateway;
  let observer: CountingObserver;
  let nowMs: number;
  let cache: DenyCache;

  beforeEach(() => {
    gate = new Gateway();
    observer = new CountingObserver();
    nowMs = 5000;
    cache = new DenyCache({ gate, observer, maxEntries: 100, nowMs: () => nowMs });
  });

  const submit = (...charges: Charge[]): StoreRequest => {
    const request = ask(charges);
    cache.submit(request);
    expect(request.settled).to.equal(true);
    return request;
  };

  it('answers a second refusal itself, with the times that are left', () => {
    submit(charge());
    nowMs += 400;
    const request = submit(charge());
    expect(gate.submitted).to.have.length(1);
    expect(observer.denyHits).to.equal(1);
    expect(request.outcomes).to.deep.equal([
      { fits: false, taken: false, remaining: 0, resetUs: 29_600_000, retryAfterUs: 29_600_000 },
    ]);
    expect(request.nowUs).to.equal(1_400_000);
  });

  it('asks again after a second', () => {
    submit(charge());
    nowMs += 1000;
    submit(charge());
    expect(gate.submitted).to.have.length(2);
  });

  it('asks again when the counter can admit, if that is sooner', () => {
    gate.answer = () => ({ ...REFUSED, retryAfterUs: 200_000 });
    submit(charge());
    nowMs += 199;
    submit(charge());
    expect(gate.submitted).to.have.length(1);
    nowMs += 1;
    submit(charge());
    expect(gate.submitted).to.have.length(2);
  });

  it('refuses as many hits or more, and asks about fewer', () => {
    gate.answer = (c) => (c.hits > 2 ? { ...REFUSED, remaining: 2 } : FITS);
    submit(charge({ hits: 3 }));
    submit(charge({ hits: 4 }));
    expect(gate.submitted).to.have.length(1);
    submit(charge({ hits: 2 }));
    expect(gate.submitted).to.have.length(2);
  });

  it('says of more hits than the limit has that they never fit', () => {
    submit(charge());
    const request = submit(charge({ hits: 11 }));
    expect(gate.submitted).to.have.length(1);
    expect(request.outcomes[0]?.retryAfterUs).to.equal(-1);
  });

  it('does not take for exhausted what refused only because a request charged it twice', () => {
    let seen = 0;
    gate.answer = () => (seen++ === 0 ? FITS : { ...REFUSED, remaining: 1 });
    submit(charge(), charge());
    submit(charge());
    expect(gate.submitted).to.have.length(2);
  });

  for (const [what, other] of Object.entries({
    'another key': charge({ key: 'other' }),
    'another number': charge({ limit: limit({ requests: 20, burst: 20 }) }),
    'a peek': charge({ mode: 'peek', hits: 0 }),
    'hits that count when refused': charge({ mode: 'record' }),
    'a shadow charge': charge({ role: 'shadow' }),
    'a quota': charge({ role: 'quota' }),
  })) {
    it(`never answers ${what}`, () => {
      submit(charge());
      submit(other);
      expect(gate.submitted).to.have.length(2);
    });
  }

  it('forgets a counter when hits are given back', () => {
    submit(charge());
    gate.answer = () => FITS;
    submit(charge({ mode: 'give_back' }));
    submit(charge());
    expect(gate.submitted).to.have.length(3);
  });

  it('asks again when what was taken is undone, and believes no refusal of before', () => {
    const onItsWay: StoreRequest[] = [];
    const held: Gate = { submit: (request) => onItsWay.push(request) };
    cache = new DenyCache({ gate: held, observer, maxEntries: 100, nowMs: () => nowMs });
    const first = ask([charge()]);
    const second = ask([charge()]);
    cache.submit(first);
    cache.submit(second);
    const refuse = (request: StoreRequest): void => {
      request.outcomes[0] = REFUSED;
      request.settle();
    };
    refuse(first);
    nowMs += 10;
    cache.undone([charge()]);
    refuse(second);
    const third = ask([charge()]);
    cache.submit(third);
    expect(third.settled).to.equal(false);
    refuse(third);
    const fourth = ask([charge()]);
    cache.submit(fourth);
    expect(fourth.outcomes[0]?.fits).to.equal(false);
    expect(onItsWay).to.have.length(3);
  });

  it('goes on showing what fitted in a refused request when that is undone', () => {
    gate.answer = (c) => (c.key === 'k' ? REFUSED : { ...FITS, taken: false });
    submit(charge(), charge({ key: 'wide' }));
    cache.undone([charge({ key: 'wide' })]);
    expect(submit(charge(), charge({ key: 'wide' })).outcomes[1]?.remaining).to.equal(5);
    expect(gate.submitted).to.have.length(1);
  });

  it('does not learn from peeks and counted refusals', () => {
    submit(charge({ mode: 'peek', hits: 5 }));
    submit(charge({ mode: 'record' }));
    submit(charge());
    expect(gate.submitted).to.have.length(3);
  });

  it('shows the last outcome of the other charges of a refused request, untaken', () => {
    gate.answer = (c) => (c.key === 'k' ? REFUSED : { ...FITS, taken: false });
    submit(charge(), charge({ key: 'wide' }));
    const request = submit(charge(), charge({ key: 'wide' }));
    expect(gate.submitted).to.have.length(1);
    expect(request.outcomes[1]).to.include({ fits: true, taken: false, remaining: 5 });
  });

  it('looks at other charges that it does not know', () => {
    gate.answer = (c) => (c.key === 'k' ? REFUSED : { ...FITS, taken: false, remaining: 7 });
    submit(charge());
    const request = submit(charge({ key: 'wide' }), charge());
    expect(gate.submitted[1]?.charges).to.deep.equal([charge({ key: 'wide', mode: 'peek' })]);
    expect(request.outcomes.map((o) => o?.remaining)).to.deep.equal([7, 0]);
  });

  it('looks again at other charges whose hits fitted before and now are too many', () => {
    const wide = { ...FITS, taken: false, remaining: 2 };
    gate.answer = (c) => (c.key === 'k' || c.hits > 2 ? { ...REFUSED, remaining: 0 } : wide);
    submit(charge(), charge({ key: 'wide' }));
    const request = submit(charge(), charge({ key: 'wide', hits: 3 }));
    expect(gate.submitted[1]?.charges).to.deep.equal([
      charge({ key: 'wide', hits: 3, mode: 'peek' }),
    ]);
    expect(request.outcomes[1]?.retryAfterUs).to.equal(30_000_000);
  });

  it('forgets everything when cleared', () => {
    submit(charge());
    cache.clear();
    submit(charge());
    expect(gate.submitted).to.have.length(2);
  });

  it('learns nothing, once cleared, from what was asked before', () => {
    const onItsWay: StoreRequest[] = [];
    const held: Gate = { submit: (request) => onItsWay.push(request) };
    cache = new DenyCache({ gate: held, observer, maxEntries: 100, nowMs: () => nowMs });
    const before = ask([charge()]);
    cache.submit(before);
    nowMs += 1;
    cache.clear();
    before.outcomes[0] = REFUSED;
    before.settle();
    cache.submit(ask([charge()]));
    expect(onItsWay).to.have.length(2);
  });

  it('remembers no more counters than it may', () => {
    for (let i = 0; i < 60; i++) submit(charge({ key: `k${String(i)}` }));
    expect(gate.submitted).to.have.length(60);
    submit(charge({ key: 'k0' }));
    submit(charge({ key: 'k59' }));
    expect(gate.submitted).to.have.length(61);
  });
});
