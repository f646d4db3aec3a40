import { expect } from 'chai';
import { hitCommand } from '../../src/cli/hit.js';
import { CertificateAuthority } from '../support/certificates.js';
import { freePort } from '../support/redis-server.js';
import { startWeir, type WeirProcess } from '../support/weir-process.js';
import { run, type Run } from './recorder.js';

const RULES = `
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 3 }
  - key: endpoint
    value: a,b
    rate_limit: { name: pay, unit: year, requests_per_unit: 100 }
`;

describe('weir hit', function () {
  this.timeout(30_000);
  let weir: WeirProcess;
  let users = 0;

  before(async () => {
    weir = await startWeir({ files: { 'shop.yaml': RULES } });
  });

  after(() => weir.stop());

  const hit = (...args: string[]): Promise<Run> =>
    run(hitCommand, '-s', `127.0.0.1:${weir.grpcPort}`, '-d', 'shop', ...args);

  const newUser = (): string => `user=u${++users}`;

  it('prints what each descriptor has left, and exits 0 when allowed', async () => {
    const { out, code } = await hit('endpoint=a\\,b', 'user=x', 'color=red');
    expect(code).to.equal(0);
    expect(out).to.match(/^allowed in [\d.]+ ms/);
    expect(out).to.match(/^endpoint=a,b +allowed +100\/year +99 +\S+$/m);
    expect(out).to.match(/^user=x +allowed +3\/year +2 +\S+$/m);
    expect(out).to.match(/^color=red +allowed +- +- +-$/m);
  });

  it('asks many times and exits 1 when one was refused', async () => {
    const { out, code } = await hit(newUser(), '--times', '5');
    expect(code).to.equal(1);
    expect(out).to.include('   1  allowed  2 left of 3/year\n');
    expect(out).to.include('   4  refused  0 left of 3/year\n');
    expect(out).to.match(/^5 requests: 3 allowed, 2 refused, /m);
  });

  for (const api of [[], ['--native']]) {
    it(`takes, looks, records and gives back ${api[0] ?? "on Envoy's API"}`, async () => {
      const user = newUser();
      const left = async (...args: string[]): Promise<string> => {
        const { out } = await hit(...api, user, ...args);
        return /\/(?:year|365d) +(\d+)/.exec(out)?.[1] ?? out;
      };
      expect(await left('--hits', '2')).to.equal('1');
      expect(await left('--mode', 'peek')).to.equal('1');
      expect(await left('--mode', 'give_back')).to.equal('2');
      expect(await left('--mode', 'record', '--hits', '9')).to.equal('0');
    });
  }

  it('asks the native API, where other keys are attributes', async () => {
    const { out, code } = await hit('--native', 'endpoint=a\\,b', newUser(), 'plan=gold');
    expect(code).to.equal(0);
    expect(out).to.match(/^pay +allowed +100\/365d +\d+/m);
  });

  it('prints the answer as JSON', async () => {
    const { out } = await hit('--json', newUser());
    expect(JSON.parse(out)).to.have.nested.property('statuses[0].limit_remaining', 2);
  });

  it('exits 2 and says why when there is no answer', async () => {
    const port = await freePort();
    const nobody = await run(hitCommand, '-s', `127.0.0.1:${port}`, '-d', 'shop', 'a=b');
    expect([nobody.code, nobody.out]).to.deep.equal([2, '']);
    expect(nobody.err).to.match(/^error: cannot reach 127\.0\.0\.1:\d+: is it running/);
    const wrong = await hit('--native', 'ip=nowhere');
    expect(wrong.code).to.equal(2);
    expect(wrong.err).to.include('the request is wrong: descriptor.ip');
  });

  it('exits 2 for what it cannot ask', async () => {
    expect((await hit('user')).err).to.equal('error: "user" is not key=value, such as user=42\n');
    const { err, code } = await run(hitCommand, 'a=b');
    expect([code, err]).to.deep.equal([
      2,
      "error: say which domain, such as --domain edge (or --native for Weir's own API)\n",
    ]);
  });

  it('talks TLS with a certificate of its own', async () => {
    const authority = new CertificateAuthority();
    const server = authority.issue('server', ['IP:127.0.0.1']);
    const client = authority.issue('client', ['DNS:client']);
    const secure = await startWeir({
      files: { 'shop.yaml': RULES },
      env: {
        GRPC_SERVER_USE_TLS: 'true',
        GRPC_SERVER_TLS_CERT: server.cert,
        GRPC_SERVER_TLS_KEY: server.key,
        GRPC_CLIENT_TLS_CACERT: authority.ca,
      },
    });
    try {
      const to = [
        '-s',
        `127.0.0.1:${secure.grpcPort}`,
        '-d',
        'shop',
        'user=a',
        '--ca',
        authority.ca,
      ];
      const known = await run(hitCommand, ...to, '--cert', client.cert, '--key', client.key);
      expect([known.code, known.err]).to.deep.equal([0, '']);
      expect((await run(hitCommand, ...to)).code).to.equal(2);
    } finally {
      await secure.stop();
      authority.remove();
    }
  });
});
