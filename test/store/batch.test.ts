import { expect } from 'chai';
import { Batcher } from '../../src/store/batch.js';
import { StoreError } from '../../src/store/store.js';
import { CountingObserver, ScriptedStore, ask, charge } from '../support/scripted-store.js';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('Batcher', () => {
  let store: ScriptedStore;
  let observer: CountingObserver;
  let batcher: Batcher;

  beforeEach(() => {
    store = new ScriptedStore();
    observer = new CountingObserver();
    batcher = new Batcher({ store, observer, maxCalls: 2 });
  });

  it('sends what arrives in one turn as one batch, in order', async () => {
    const requests = ['a', 'b', 'c'].map((key) => ask([charge({ key })]));
    for (const request of requests) batcher.submit(request);
    expect(store.batches).to.have.length(0);
    await turn();
    expect(store.batches.map((batch) => batch.requests)).to.deep.equal([requests]);
    expect(observer.batches).to.deep.equal([3]);
  });

  it('holds requests back while as many calls as allowed are in flight', async () => {
    for (let i = 0; i < 2; i++) {
      batcher.submit(ask([charge()]));
      await turn();
    }
    batcher.submit(ask([charge({ key: 'late' })]));
    batcher.submit(ask([charge({ key: 'later' })]));
    await turn();
    expect(store.batches).to.have.length(2);
    store.answer();
    await turn();
    expect(store.batches).to.have.length(2);
    expect(store.batches[1]?.requests.map((r) => r.charges[0]?.key)).to.deep.equal([
      'late',
      'later',
    ]);
  });

  it('splits at 256 requests', async () => {
    for (let i = 0; i < 300; i++) batcher.submit(ask([charge()]));
    await turn();
    expect(observer.batches).to.deep.equal([256, 44]);
  });

  it('splits at 2,048 charges, and never within a request', async () => {
    const hundred = Array.from({ length: 100 }, () => charge());
    for (let i = 0; i < 21; i++) batcher.submit(ask(hundred));
    await turn();
    expect(observer.batches).to.deep.equal([20, 1]);
  });

  it('forgets requests that were settled while they waited', async () => {
    for (let i = 0; i < 2; i++) {
      batcher.submit(ask([charge()]));
      await turn();
    }
    for (let i = 0; i < 10; i++) {
      const request = ask([charge({ key: 'expired' })]);
      batcher.submit(request);
      request.fail(new StoreError('timeout', 'too late'));
    }
    batcher.submit(ask([charge({ key: 'alive' })]));
    store.answer();
    await turn();
    expect(store.batches[1]?.requests.map((r) => r.charges[0]?.key)).to.deep.equal(['alive']);
  });

  it('loses nothing when a store answers at once and its answers bring new requests', async () => {
    const decided: string[] = [];
    const atOnce = new ScriptedStore();
    atOnce.decide = (requests, done) => {
      for (const request of requests) {
        decided.push(request.charges[0]?.key ?? '');
        request.settle();
      }
      done();
    };
    batcher = new Batcher({ store: atOnce, observer, maxCalls: 2 });
    const many = Array.from({ length: 257 }, (_, i) => ask([charge({ key: `k${String(i)}` })]));
    many[0]?.watch({
      settled: () => {
        batcher.submit(ask([charge({ key: 'undo' })]));
      },
    });
    for (const request of many) batcher.submit(request);
    await turn();
    await turn();
    expect(decided).to.have.length(258);
    expect(decided.at(-1)).to.equal('undo');
  });
});
