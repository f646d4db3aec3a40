import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { explainCommand, inspectCommand } from '../../src/cli/explain.js';
import { resetCommand } from '../../src/cli/reset.js';
import { topCommand } from '../../src/cli/top.js';
import { startAdmin, type AdminFixture } from '../support/admin-fixture.js';
import { run, type Run } from './recorder.js';

const YAML = `
domain: shop
descriptors:
  - key: endpoint
    value: /pay
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: api_key
    rate_limit: { unit: hour, requests_per_unit: 2 }
`;

describe('the commands for people on call', () => {
  let admin: AdminFixture;

  beforeEach(async () => {
    admin = await startAdmin({ yaml: YAML, token: 'sesame' });
  });
  afterEach(() => admin.stop());

  function on(create: Parameters<typeof run>[0], ...args: string[]): Promise<Run> {
    return run(create, '-s', admin.url, '--token', 'sesame', ...args);
  }

  it('explain says which limit refuses, since when, how much and until when', async () => {
    await admin.ask('shop', 'endpoint=/pay,user=42', 8);
    const { out, err, code } = await on(explainCommand, 'endpoint=/pay,user=42');
    expect(err).to.equal('');
    expect(code).to.equal(1);
    expect(out.split('\n').slice(0, 6)).to.deep.equal([
      'endpoint=/pay,user=42',
      '  Refused now: endpoint=/pay,user=42 has 5 of 5 used (5 per minute). Refused 3 times by this instance in 0 s. Free again in 20 s.',
      '  rule       endpoint=/pay.user (shop.yaml:7)',
      '',
      '  limit      5 per minute, fixed window',
      '  used       5 of 5',
    ]);
    expect(out).to.match(/^ {2}free +\d\d:\d\d:\d\d \(in 20 s\)$/m);
    expect(out).to.match(
      /^\* +endpoint=\/pay\.user +shop\.yaml:7 +matches: the key, with any value$/m,
    );
    expect(out).to.match(
      /^ +api_key +shop\.yaml:9 +the first entry's key is endpoint, not api_key$/m,
    );
  });

  it('explain takes what is known of a caller, and shows no secret', async () => {
    await admin.ask('shop', 'api_key=hunter2-secret', 3);
    const { out, code } = await on(
      explainCommand,
      '--native',
      'endpoint=/pay',
      'api_key=hunter2-secret',
    );
    expect(code).to.equal(1);
    expect(out).to.match(/^api_key#[\w-]{22}\n {2}Refused now: /);
    expect(out).not.to.contain('hunter2');
    expect(out).to.match(/^no rule is for client=key:[\w-]+, endpoint=/m);
  });

  it('explain reads a directory without a server', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'weir-explain-'));
    try {
      writeFileSync(join(directory, 'shop.yaml'), YAML);
      const { out, code } = await run(
        explainCommand,
        '--config',
        directory,
        'endpoint=/pay,user=1',
      );
      expect(code).to.equal(0);
      expect(out).to.match(/^endpoint=\/pay,user=1\n {2}endpoint=\/pay\.user: 5 per minute\n/);
      const { err, code: missing } = await run(explainCommand, '--config', '/nowhere', 'a=b');
      expect([err, missing]).to.deep.equal(['error: /nowhere is not a directory\n', 2]);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it('inspect shows the counter, as JSON too', async () => {
    await admin.ask('shop', 'endpoint=/pay,user=42', 2);
    const { out, code } = await on(inspectCommand, '--json', 'endpoint=/pay,user=42');
    expect(code).to.equal(0);
    expect(JSON.parse(out)).to.have.nested.include({
      allowed: true,
      'descriptors[0].counters[0].used': 2,
      'descriptors[0].counters[0].remaining': 3,
      'descriptors[0].rules.length': 0,
    });
    expect((await on(inspectCommand, 'endpoint=/pay,user=42')).out).not.to.contain('api_key');
  });

  it('reset forgets what was used, and says how much that was', async () => {
    await admin.ask('shop', 'endpoint=/pay,user=42', 8);
    const { out, code } = await on(resetCommand, 'endpoint=/pay,user=42');
    expect(code).to.equal(0);
    expect(out).to.equal(
      'endpoint=/pay,user=42: 5 of 5 were used, 0 are now (5 per minute, f60|shop|endpoint=/pay|user=42)\n',
    );
    expect((await admin.ask('shop', 'endpoint=/pay,user=42')).allowed).to.equal(true);
    const none = await on(resetCommand, 'nobody=1');
    expect([none.code, none.err]).to.deep.equal([
      2,
      `error: ${admin.url}: no limit counts this descriptor\n`,
    ]);
  });

  it('top names the busiest rules and the heaviest values', async () => {
    await admin.ask('shop', 'endpoint=/pay,user=42', 60);
    await admin.ask('shop', 'api_key=hunter2-secret', 2);
    admin.pass(1000);
    const { out } = await on(topCommand, '--by', 'rejected');
    expect(out.replace(/ +/g, ' ').split('\n')).to.deep.equal([
      'weir-1: 62/s requests, 88.7% refused in the last minute',
      '',
      'domain rule limit rate refused place',
      'shop endpoint=/pay.user 5 per minute 60/s 91.7% shop.yaml:7',
      '',
      'domain rule value requests/min refused in the log',
      'shop endpoint=/pay.user endpoint=/pay, user=42 60 55 fwa6pXiGxh',
      '',
    ]);
    expect((await on(topCommand)).out).to.match(/^shop +api_key +api_key#[\w-]{22} +2 +0 /m);
    const json = JSON.parse((await on(topCommand, '--json')).out) as object; // to see its fields
    expect(json).to.have.keys('status', 'rules', 'values');
  });

  it('say in a line why there is no answer', async () => {
    const noToken = await run(explainCommand, '-s', admin.url, 'a=b');
    expect([noToken.code, noToken.err]).to.deep.equal([
      2,
      `error: ${admin.url} wants its admin token: --token, or ADMIN_TOKEN in the environment\n`,
    ]);
    const nobody = await run(topCommand, '-s', '127.0.0.1:1');
    expect(nobody.code).to.equal(2);
    expect(nobody.err).to.match(/^error: cannot reach 127\.0\.0\.1:1: is Weir running there/);
    const unreadable = await on(explainCommand, '=42');
    expect(unreadable.err).to.match(/^error: expected `key=value` at character 1 of `=42`/);
  });
});
