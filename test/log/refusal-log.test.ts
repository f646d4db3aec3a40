import { expect } from 'chai';
import { RefusalLog } from '../../src/log/refusal-log.js';
import { compileRules } from '../../src/rules/rules.js';
import { decided, limitOf, ruleDefinition, snapshotOf } from '../support/decided.js';

describe('refusals in the log', () => {
  const snapshot = snapshotOf(
    compileRules([
      { name: 'shop', rules: [ruleDefinition('user', undefined, [limitOf(5, 'minute')])] },
    ]),
    1,
  );
  let nowMs: number;
  let lines: { level: string; fields: object; message: string }[];
  let log: RefusalLog;

  beforeEach(() => {
    nowMs = 0;
    lines = [];
    const to = (level: string) => (fields: object, message: string) => {
      lines.push({ level, fields, message });
    };
    const logger = { warn: to('warn'), info: to('info'), debug: to('debug') };
    log = new RefusalLog({ logger, nowMs: () => nowMs });
  });

  function refuse(entries: string, retryAfterUs = 30_000_000): void {
    const [part] = decided(snapshot, 'shop', entries, { fits: false, retryAfterUs }).descriptors;
    const [limit] = part?.limits ?? [];
    if (part?.rule === undefined || limit === undefined) throw new Error('a rule should match');
    log.refused(part.rule, limit);
  }

  it('name the rule, the reason and the value as an id', () => {
    refuse('user=alice@example.org');
    expect(lines[0]).to.deep.equal({
      level: 'info',
      fields: {
        domain: 'shop',
        rule: 'user',
        value: 'zaeXFluSaM',
        limit: '5 in 60 s',
        algorithm: 'fixed_window',
        hits: 1,
        remaining: 0,
        retryAfterMs: 30_000,
        more: 0,
      },
      message: 'refused: over the limit',
    });
  });

  it('hold the value in clear at debug only', () => {
    refuse('user=alice@example.org');
    const info = lines.filter(({ level }) => level !== 'debug');
    expect(JSON.stringify(info)).not.to.contain('alice');
    expect(lines[1]).to.deep.include({ level: 'debug' });
  });

  it('are one line a second for each rule, which says how many it stands for', () => {
    for (let i = 0; i < 1000; i++) {
      refuse(`user=${i}`);
      nowMs += 1;
    }
    expect(lines.filter(({ level }) => level === 'info')).to.have.length(1);
    refuse('user=1');
    expect(lines.filter(({ level }) => level === 'info')[1]?.fields).to.include({ more: 999 });
  });

  it('say of what can never pass that there is no time', () => {
    refuse('user=1', -1);
    expect(lines[0]?.fields).to.include({ retryAfterMs: null });
  });

  it('say once a minute that a domain is unknown, and how often besides', () => {
    for (let i = 0; i < 100; i++) log.unknownDomain(`shopp${i}`);
    nowMs += 60_000;
    log.unknownDomain('shopp');
    expect(lines.map(({ level, fields }) => ({ level, fields }))).to.deep.equal([
      { level: 'warn', fields: { domain: 'shopp0', more: 0 } },
      { level: 'warn', fields: { domain: 'shopp', more: 99 } },
    ]);
  });
});
