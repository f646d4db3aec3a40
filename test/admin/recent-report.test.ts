import { expect } from 'chai';
import { RecentDecisions } from '../../src/admin/recent-decisions.js';
import {
  mergeReports,
  reportRecent,
  type RecentReport,
  type RecentScope,
} from '../../src/admin/recent-report.js';
import { compileRules } from '../../src/rules/rules.js';
import { decided, limitOf, ruleDefinition, snapshotOf } from '../support/decided.js';

const START_MS = 1_000_000_000;
const compiled = compileRules([
  {
    name: 'shop',
    rules: [
      ruleDefinition('user', undefined, [limitOf(5, 'minute')]),
      ruleDefinition('team', undefined, [limitOf(5, 'minute')]),
    ],
  },
]);
const snapshot = snapshotOf(compiled, 1);
const USER = { domain: 'shop', path: 'user' };
const TEAM = { domain: 'shop', path: 'team' };
const KEY = 'f60|shop|user=42';

describe('the last minute of several processes', () => {
  let nowMs: number;
  let first: RecentDecisions;
  let second: RecentDecisions;

  beforeEach(() => {
    nowMs = START_MS - 60_000;
    first = new RecentDecisions({ nowMs: () => nowMs });
    second = new RecentDecisions({ nowMs: () => nowMs });
    nowMs = START_MS;
  });

  function ask(who: RecentDecisions, entries: string, fits: boolean, retryAfterUs = 30e6): void {
    who.observe(decided(snapshot, 'shop', entries, { fits, retryAfterUs }));
  }

  /** As it goes from process to process. */
  function sent(who: RecentDecisions, scope: RecentScope): RecentReport {
    const report = reportRecent(who, compiled.rules, scope);
    return JSON.parse(JSON.stringify(report)) as RecentReport; // it is plain data
  }

  const merged = (scope: RecentScope) => mergeReports([sent(first, scope), sent(second, scope)]);

  it('adds up figures, second by second', () => {
    for (let i = 0; i < 30; i++) ask(first, 'user=42', true);
    for (let i = 0; i < 30; i++) ask(second, 'user=42', i % 3 === 0);
    nowMs += 1000;
    const all = merged({ kind: 'figures' });
    expect(all.overall()).to.deep.include({ rate: 1, rejectRatio: 1 / 3 });
    expect(all.activity(USER).totals).to.include({ allowed: 40, rejected: 20 });
    expect(all.activity(USER).allowedBySecond.slice(-2)).to.deep.equal([0, 40]);
    expect(all.activity(USER).rejectedBySecond.at(-1)).to.equal(20);
    expect(all.activity(TEAM)).to.deep.include({ rate: 0, rejectRatio: 0 });
  });

  it('adds up values, and orders them anew', () => {
    for (let i = 0; i < 4; i++) ask(first, 'user=a', true);
    for (let i = 0; i < 3; i++) ask(first, 'user=b', false);
    for (let i = 0; i < 3; i++) ask(second, 'user=b', false);
    const heaviest = [
      { key: 'f60|shop|user=b', requests: 6, rejected: 6, error: 0 },
      { key: 'f60|shop|user=a', requests: 4, rejected: 0, error: 0 },
    ];
    expect(merged({ kind: 'values' }).heaviest(USER, 9)).to.deep.equal(heaviest);
    expect(merged({ kind: 'values', rule: USER }).heaviest(USER, 1)).to.deep.equal([heaviest[0]]);
    expect(merged({ kind: 'values', rule: TEAM }).heaviest(USER, 9)).to.deep.equal([]);
  });

  it('counts refusals since the first of any, until the latest of all', () => {
    ask(first, 'user=42', false, 30e6);
    nowMs += 5000;
    ask(second, 'user=42', false, 25e6);
    ask(second, 'user=42', false, -1);
    const found = merged({ kind: 'counters', keys: [KEY] }).refusalOf(USER, KEY);
    expect(found).to.include({ key: KEY, firstMs: START_MS, lastMs: START_MS + 5000, count: 3 });
    expect(found?.untilMs).to.equal(undefined);
    expect(merged({ kind: 'values', rule: USER }).refusals(USER, 9)).to.have.length(1);
    expect(merged({ kind: 'counters', keys: ['other'] }).refusalOf(USER, KEY)).to.equal(undefined);
  });

  it('sends no more than is asked for', () => {
    ask(first, 'user=42', false);
    const figures = sent(first, { kind: 'figures' });
    expect(figures.rules).to.have.length(1);
    expect(figures.rules[0]).to.have.keys('domain', 'path', 'activity');
    expect(sent(first, { kind: 'counters', keys: [] }).rules).to.deep.equal([]);
  });

  it('knows as much of what nothing limits as all together', () => {
    first.observe(decided(snapshot, 'shpo', 'user=1', { fits: true }));
    second.observe(decided(snapshot, 'shpo', 'user=1', { fits: true }));
    expect(merged({ kind: 'figures' }).notLimited()).to.deep.equal([
      { domain: 'shpo', seen: 2, lastMs: START_MS },
    ]);
  });
});
