import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { freePort } from '../support/redis-server.js';
import { answers, startWeir, type WeirProcess } from '../support/weir-process.js';

const RULES = readFileSync('examples/config/default.yaml', 'utf8');

describe('examples/clients/server.ts', function () {
  this.timeout(30_000);
  let weir: WeirProcess;
  let server: ChildProcess;
  let url: string;

  before(async () => {
    weir = await startWeir({ files: { 'default.yaml': RULES } });
    const port = await freePort();
    server = spawn(process.execPath, ['--import', 'tsx', 'examples/clients/server.ts'], {
      env: {
        ...process.env,
        NODE_V8_COVERAGE: '',
        WEIR: `127.0.0.1:${weir.grpcPort}`,
        SERVER_PORT: String(port),
      },
      stdio: 'ignore',
    });
    url = `http://127.0.0.1:${port}`;
    await answers(`${url}/up`, () => server.exitCode === null);
  });

  after(async () => {
    server.kill();
    await weir.stop();
  });

  it('lets five attempts at a login pass and refuses the sixth, as its head says', async () => {
    const statuses: number[] = [];
    for (let i = 0; i < 6; i++) {
      const answer = await fetch(`${url}/v1/login`, { headers: { 'x-user': 'ann' } });
      statuses.push(answer.status);
      if (i === 5) {
        expect(answer.headers.get('retry-after')).to.equal('900');
        expect(await answer.text()).to.equal('too many requests: endpoint=/v1/login.user\n');
      }
    }
    expect(statuses).to.deep.equal([200, 200, 200, 200, 200, 429]);
  });

  it('shows what is left where the rule discloses it', async () => {
    const answer = await fetch(`${url}/v1/messages`, { headers: { 'x-user': 'bob' } });
    expect(answer.headers.get('ratelimit-remaining')).to.equal('9');
  });

  it('serves everybody while Weir is away', async () => {
    await weir.stop();
    const answer = await fetch(`${url}/v1/login`, { headers: { 'x-user': 'ann' } });
    expect(answer.status).to.equal(200);
  });
});
