import { expect } from 'chai';
import { explainCommand } from '../../src/cli/explain.js';
import { hitCommand } from '../../src/cli/hit.js';
import { resetCommand } from '../../src/cli/reset.js';
import { topCommand } from '../../src/cli/top.js';
import { run, type Run } from '../cli/recorder.js';
import { freePort, RedisServer } from '../support/redis-server.js';
import { startWeir, type WeirProcess } from '../support/weir-process.js';

const RULES = `
domain: shop
descriptors:
  - key: endpoint
    value: /pay
    descriptors:
      - key: user
        rate_limits:
          - { unit: year, requests_per_unit: 5 }
          - { algorithm: token_bucket, unit: hour, requests_per_unit: 1, burst: 100 }
`;
const TOKEN = 'sesame';

describe('the admin side of a real service', function () {
  this.timeout(30_000);
  let redis: RedisServer;
  const instances: { weir: WeirProcess; admin: string }[] = [];

  before(async () => {
    redis = await RedisServer.start();
    for (const id of ['weir-0', 'weir-1']) {
      const port = await freePort();
      const weir = await startWeir({
        files: { 'shop.yaml': RULES },
        env: {
          REDIS_URL: `127.0.0.1:${redis.port}`,
          DEBUG_PORT: String(port),
          ADMIN_TOKEN: TOKEN,
          INSTANCE_ID: id,
          LOG_LEVEL: 'info',
        },
      });
      instances.push({ weir, admin: `127.0.0.1:${port}` });
    }
  });
  after(async () => {
    for (const { weir } of instances) await weir.stop();
    await redis.stop();
  });

  function instance(i: number): { weir: WeirProcess; admin: string } {
    const found = instances[i];
    if (found === undefined) throw new Error(`there is no instance ${i}`);
    return found;
  }

  const hit = (i: number, user: string, times: number): Promise<Run> =>
    run(
      hitCommand,
      ...['-s', `127.0.0.1:${instance(i).weir.grpcPort}`, '-d', 'shop'],
      ...[`endpoint=/pay,user=${user}`, '--times', String(times)],
    );
  const ask = (i: number, create: Parameters<typeof run>[0], ...args: string[]): Promise<Run> =>
    run(create, '-s', instance(i).admin, '--token', TOKEN, ...args);

  it('tells from any instance which limit is used up, and who was refused where it happened', async () => {
    await hit(0, '42', 9);
    const here = await ask(0, explainCommand, '--native', 'endpoint=/pay', 'user=42');
    expect(here.code).to.equal(1);
    expect(here.out).to.match(
      /^endpoint=\/pay,user=42\n {2}Refused now: endpoint=\/pay,user=42 has 5 of 5 used \(5 per year\)\. Refused 4 times by this instance in \d+ s\. Free again in \d+ d/,
    );
    const there = await ask(1, explainCommand, 'endpoint=/pay,user=42');
    expect(there.code).to.equal(1);
    expect(there.out).to.match(/has 5 of 5 used \(5 per year\)\. Free again in/);
    const { out } = await ask(0, topCommand, '--by', 'rejected');
    expect(out).to.match(/^shop +endpoint=\/pay\.user +endpoint=\/pay, user=42 +9 +4 /m);
  });

  it('frees a counter everywhere: what refused it before admits it at once', async () => {
    await hit(0, '43', 9);
    await hit(1, '43', 3);
    const { out } = await ask(0, resetCommand, 'endpoint=/pay,user=43');
    expect(out).to.match(/^endpoint=\/pay,user=43: 5 of 5 were used, 0 are now \(5 per year, /m);
    expect((await hit(0, '43', 1)).code).to.equal(0);
    // Another instance may remember its refusal for up to a second.
    await new Promise((resolve) => setTimeout(resolve, 1100));
    expect((await hit(1, '43', 1)).code).to.equal(0);
  });

  it('samples refusals into the log, with the id that explain shows and no value', async () => {
    await hit(0, 'alice', 7);
    const { out } = await ask(0, explainCommand, 'endpoint=/pay,user=alice');
    const id = /in the log +(\S+)/.exec(out)?.[1];
    const lines = instance(0).weir.output().split('\n');
    expect(lines.some((line) => line.includes(`"value":"${id ?? ''}"`))).to.equal(true);
    expect(instance(0).weir.output()).not.to.contain('alice');
  });

  it('knows its Redis, and how many instances there are', async () => {
    const { out } = await ask(0, topCommand, '--json');
    expect(JSON.parse(out)).to.have.nested.property('status.stores[0].facts.Connection', 'open');
    expect(JSON.parse(out)).to.have.nested.property('status.instanceId', 'weir-0');
  });
});
