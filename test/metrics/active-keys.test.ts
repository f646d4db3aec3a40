import { expect } from 'chai';
import { ActiveKeys, type ActiveKeyStore } from '../../src/metrics/active-keys.js';

const SLOT = 60_000;

describe('ActiveKeys', () => {
  it('counts the distinct keys of the last two slots, then none', () => {
    let now = 100 * SLOT;
    const keys = new ActiveKeys(() => now);
    const rule = keys.track(() => 'r');
    for (const key of ['a', 'b', 'a']) keys.use(rule, key);
    expect(keys.count(rule)).to.equal(2);
    now += SLOT;
    keys.use(rule, 'b');
    keys.use(rule, 'c');
    expect(keys.count(rule)).to.equal(3);
    now += SLOT;
    expect(keys.count(rule)).to.equal(2);
    now += SLOT;
    expect(keys.count(rule)).to.equal(0);
  });

  it('counts anew after a pause of many slots', () => {
    let now = 100 * SLOT;
    const keys = new ActiveKeys(() => now);
    const rule = keys.track(() => 'r');
    keys.use(rule, 'a');
    now += 7 * SLOT;
    keys.use(rule, 'b');
    expect(keys.count(rule)).to.equal(1);
  });

  it('is within 3 % at 100,000 keys', () => {
    const keys = new ActiveKeys(() => 100 * SLOT);
    const rule = keys.track(() => 'r');
    for (let i = 0; i < 100_000; i++) keys.use(rule, `f60|shop|user=${i}`);
    expect(keys.count(rule)).to.be.within(97_000, 103_000);
  });

  it('sends each key that changes the estimate once, and takes the shared count', async () => {
    const sent: string[] = [];
    const asked: unknown[] = [];
    const store: ActiveKeyStore = {
      add: (ruleId, slot, added) => sent.push(`${ruleId} ${slot} ${added.join(',')}`),
      count: (ids) => {
        asked.push(...ids);
        return Promise.resolve(ids.map(() => 12));
      },
    };
    const keys = new ActiveKeys(() => 100 * SLOT);
    keys.share(store);
    const rule = keys.track(() => 'r');
    for (const key of ['a', 'b', 'a', 'b']) keys.use(rule, key);
    keys.exchange();
    keys.use(rule, 'a');
    keys.exchange();
    expect(sent).to.deep.equal(['r 100 a,b']);
    await Promise.resolve();
    await Promise.resolve();
    expect(asked).to.deep.equal([{ ruleId: 'r', slots: [99, 100] }]);
    expect(keys.count(rule)).to.equal(12);
    keys.stop();
  });

  it('shows its own count when the store does not answer', async () => {
    const keys = new ActiveKeys(() => 100 * SLOT);
    keys.share({ add: () => undefined, count: () => Promise.reject(new Error('down')) });
    const rule = keys.track(() => 'r');
    keys.use(rule, 'a');
    keys.exchange();
    await Promise.resolve();
    expect(keys.count(rule)).to.equal(1);
    keys.stop();
  });
});
