import { expect } from 'chai';
import { RecentDecisions } from '../../src/admin/recent-decisions.js';
import type { Rule } from '../../src/model.js';
import { compileRules } from '../../src/rules/rules.js';
import { decided, limitOf, ruleDefinition, snapshotOf } from '../support/decided.js';

const perMinute = limitOf(5, 'minute');
const compiled = compileRules([
  {
    name: 'shop',
    rules: [
      ruleDefinition('user', undefined, [perMinute]),
      ruleDefinition('path', '/pay', [perMinute], { shadow: true }),
      ruleDefinition('open', undefined, [], { unlimited: true }),
    ],
  },
]);

function ruleNamed(rules: readonly Rule[], path: string): Rule {
  const rule = rules.find((each) => each.path === path);
  if (rule === undefined) throw new Error(`no rule ${path}`);
  return rule;
}

describe('recent decisions', () => {
  let nowMs: number;
  let recent: RecentDecisions;
  const snapshot = snapshotOf(compiled, 1);
  const user = ruleNamed(compiled.rules, 'user');
  const path = ruleNamed(compiled.rules, 'path=/pay');

  beforeEach(() => {
    nowMs = 999_940_000;
    recent = new RecentDecisions({ nowMs: () => nowMs });
    nowMs += 60_000;
  });

  function ask(entries: string, fits: boolean, more: { retryAfterMs?: number } = {}): void {
    recent.observe(
      decided(snapshot, 'shop', entries, { fits, retryAfterUs: (more.retryAfterMs ?? 0) * 1000 }),
    );
  }

  it('tell the rate and the reject ratio of the last 60 s', () => {
    for (let i = 0; i < 90; i++) ask('user=1', true);
    for (let i = 0; i < 30; i++) ask('user=1', false);
    nowMs += 1000;
    const activity = recent.activity(user);
    expect(activity.rate).to.equal(2);
    expect(activity.rejectRatio).to.equal(0.25);
    expect(activity.allowedBySecond.slice(-2)).to.deep.equal([0, 90]);
    expect(activity.rejectedBySecond.at(-1)).to.equal(30);
    nowMs += 60_000;
    expect(recent.activity(user)).to.deep.include({ rate: 0, rejectRatio: 0 });
    expect(recent.activity(user).totals).to.include({ allowed: 90, rejected: 30 });
  });

  it('count what only shadow mode lets pass as neither allowed nor rejected', () => {
    ask('path=/pay', false);
    expect(recent.activity(path).totals).to.include({ allowed: 0, rejected: 0, shadow: 1 });
    expect(recent.refusals(path, 5)).to.deep.equal([]);
  });

  it('count what is unlimited as allowed, and name nothing that has no counter', () => {
    recent.observe(decided(snapshot, 'shop', 'open=1', { fits: true }));
    const open = ruleNamed(compiled.rules, 'open');
    expect(recent.activity(open).totals).to.include({ allowed: 1 });
    expect(recent.overall().totals).to.include({ allowed: 1, notTaken: 0 });
    expect(recent.heaviest(open, 5)).to.deep.equal([]);
  });

  it('keep answers by policy apart', () => {
    recent.observe(decided(snapshot, 'shop', 'user=1', { fits: false, source: 'deny' }));
    expect(recent.activity(user).totals).to.include({ rejected: 0, policy: 1 });
    expect(recent.refusals(user, 5)).to.deep.equal([]);
  });

  it('leave out a mere look', () => {
    recent.observe(decided(snapshot, 'shop', 'user=1', { fits: false, mode: 'peek' }));
    expect(recent.overall().totals).to.include({ allowed: 0, rejected: 0 });
    expect(recent.refusals(user, 5)).to.deep.equal([]);
  });

  it('remember since when, how often and until when a value is refused', () => {
    ask('user=42', false, { retryAfterMs: 30_000 });
    nowMs += 10_000;
    ask('user=42', false, { retryAfterMs: 20_000 });
    expect(recent.refusals(user, 5)).to.deep.equal([
      {
        key: 'f60|shop|user=42',
        limit: perMinute,
        firstMs: 1_000_000_000,
        lastMs: 1_000_010_000,
        count: 2,
        untilMs: 1_000_030_000,
      },
    ]);
  });

  it('begin anew when a value was free to pass for a minute before it is refused again', () => {
    ask('user=42', false, { retryAfterMs: 1000 });
    nowMs += 61_001;
    ask('user=42', false, { retryAfterMs: 1000 });
    expect(recent.refusals(user, 1)[0]).to.include({ firstMs: nowMs, count: 1 });
  });

  it('name the heaviest values of the last minute, and forget them as it passes', () => {
    for (let i = 0; i < 50; i++) ask('user=big', i % 2 === 0);
    ask('user=small', true);
    expect(recent.heaviest(user, 2)).to.deep.equal([
      { key: 'f60|shop|user=big', requests: 50, rejected: 25, error: 0 },
      { key: 'f60|shop|user=small', requests: 1, rejected: 0, error: 0 },
    ]);
    nowMs += 90_000;
    expect(recent.heaviest(user, 1)).to.deep.equal([
      { key: 'f60|shop|user=big', requests: 25, rejected: 13, error: 0 },
    ]);
    nowMs += 60_000;
    expect(recent.heaviest(user, 1)).to.deep.equal([]);
  });

  it('stay within their bounds when a million values come', () => {
    for (let i = 0; i < 200_000; i++) {
      if (i % 100 === 0) nowMs += 1;
      ask(`user=v${i}`, false, { retryAfterMs: 1000 });
    }
    expect(recent.refusals(user, 100_000)).to.have.length(400);
    expect(recent.heaviest(user, 100_000).length).to.be.at.most(200);
    expect(recent.activity(user).totals.rejected).to.equal(200_000);
  });

  it('keep what they know of a rule over a reload', () => {
    ask('user=42', false, { retryAfterMs: 1000 });
    recent.observe(decided(snapshotOf(compileRules([]), 2), 'shop', 'user=42', { fits: true }));
    recent.observe(decided(snapshotOf(compiled, 3), 'shop', 'user=42', { fits: true }));
    expect(recent.activity(user).totals).to.include({ allowed: 1, rejected: 0 });
    const next = snapshotOf(compiled, 4);
    recent.observe(decided(next, 'shop', 'user=42', { fits: true }));
    expect(recent.activity(user).totals).to.include({ allowed: 2 });
  });

  it('name domains and keys that nothing limits', () => {
    recent.observe(decided(snapshot, 'shpo', 'user=1', { fits: true }));
    nowMs += 500;
    recent.observe(decided(snapshot, 'shop', 'usr=1', { fits: true }));
    recent.observe(decided(snapshot, 'shop', 'usr=2', { fits: true }));
    expect(recent.notLimited()).to.deep.equal([
      { domain: 'shop', keys: 'usr', seen: 2, lastMs: nowMs },
      { domain: 'shpo', keys: undefined, seen: 1, lastMs: nowMs - 500 },
    ]);
  });
});
