import { execFileSync } from 'node:child_process';
import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { expect } from 'chai';
import { callerOf, NATIVE } from '../transport/grpc-client.js';
import { RedisServer } from '../support/redis-server.js';
import { startWeir, type WeirProcess } from '../support/weir-process.js';

const RULES = `
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000 }
`;

function workersOf(weir: WeirProcess): number[] {
  const children = execFileSync('pgrep', ['-P', String(weir.pid), '-f', 'main.ts'], {
    encoding: 'utf8',
  });
  return children.trim().split('\n').map(Number);
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpMs = performance.now() + 15_000;
  while (!(await condition())) {
    if (performance.now() > giveUpMs) throw new Error('it did not come true');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

describe('several workers', function () {
  this.timeout(60_000);
  let redis: RedisServer;
  let weir: WeirProcess;

  before(async () => {
    redis = await RedisServer.start();
    weir = await startWeir({
      files: { 'shop.yaml': RULES },
      env: { WORKERS: '2', REDIS_URL: `127.0.0.1:${redis.port}`, LOG_LEVEL: 'error' },
    });
  });

  after(async () => {
    await weir.stop();
    await redis.stop();
  });

  /** So many decisions, each over a connection of its own: they are handed out in turn. */
  async function decide(count: number): Promise<number> {
    let allowed = 0;
    for (let i = 0; i < count; i++) {
      const caller = callerOf(NATIVE, `127.0.0.1:${weir.grpcPort}`);
      const answer = await caller.call('ShouldRateLimit', {
        domain: 'shop',
        descriptor: { user: '42' },
      });
      if (answer['allowed'] === true) allowed++;
      caller.close();
    }
    return allowed;
  }

  async function scrape(metric: string): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${weir.httpPort}/metrics`);
    const line = (await response.text()).split('\n').find((each) => each.startsWith(metric));
    return Number(line?.split(' ').at(-1));
  }

  const DECISIONS = 'weir_decisions_total{domain="shop",rule="user",outcome="allowed"}';

  it('are as many as asked for', () => {
    expect(workersOf(weir)).to.have.length(2);
  });

  it('count in one Redis and tell their metrics as one', async () => {
    expect(await decide(10)).to.equal(10);
    for (let i = 0; i < 4; i++) expect(await scrape(DECISIONS)).to.equal(10);
    expect(await scrape('weir_build_info')).to.equal(1);
  });

  it('are replaced when they die, and what they counted stays', async () => {
    const before = workersOf(weir);
    const [first = 0] = before;
    process.kill(first, 'SIGKILL');
    await until(() => {
      const now = workersOf(weir);
      return now.length === 2 && !now.includes(first);
    });
    expect(await decide(6)).to.equal(6);
    expect(await scrape(DECISIONS)).to.equal(16);
    await until(() => weir.output().includes('a worker ended; another starts'));
  });

  it('end with the primary, whose end drains them all', async () => {
    const workers = workersOf(weir);
    weir.signal('SIGTERM');
    expect(await weir.ended()).to.equal(0);
    for (const pid of workers) {
      expect(() => process.kill(pid, 0)).to.throw('ESRCH');
    }
    // Only the death that an earlier test brought about is an error.
    const errors = [...weir.output().matchAll(/"level":"error".*"msg":"(.*)"/g)];
    expect(errors.map(([, message]) => message)).to.deep.equal(['a worker ended; another starts']);
  });
});

describe('several workers of which one has only begun', function () {
  this.timeout(60_000);

  it('end with the primary all the same', async () => {
    const redis = await RedisServer.start();
    const weir = await startWeir({
      files: { 'shop.yaml': RULES },
      env: { WORKERS: '2', REDIS_URL: `127.0.0.1:${redis.port}`, LOG_LEVEL: 'debug' },
    });
    try {
      // One that ended before would end the start.
      await until(() => weir.output().split('"weir listens"').length === 3);
      const [first = 0] = workersOf(weir);
      process.kill(first, 'SIGKILL');
      await until(() => {
        const now = workersOf(weir);
        return now.length === 2 && !now.includes(first);
      });
      // The new process is there; its program takes far longer to load than this signal to come.
      weir.signal('SIGTERM');
      expect(await weir.ended()).to.equal(0);
    } finally {
      await weir.stop();
      await redis.stop();
    }
  });
});

describe('several workers that cannot start', function () {
  this.timeout(60_000);

  it('end with exit code 1 when a port is taken', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo; // bound to TCP
    const redis = await RedisServer.start();
    try {
      const env = { WORKERS: '2', REDIS_URL: `127.0.0.1:${redis.port}`, GRPC_PORT: String(port) };
      const error = await startWeir({ files: {}, env }).then(
        () => expect.fail('it started'),
        (reason: unknown) => reason,
      );
      expect(String(error)).to.contain('something listens there already');
    } finally {
      other.close();
      await redis.stop();
    }
  });

  it('are one process when counters are in memory', async () => {
    const weir = await startWeir({ files: { 'shop.yaml': RULES }, env: { WORKERS: '2' } });
    expect(weir.output()).to.contain('one process serves, not several');
    expect(await weir.stop()).to.equal(0);
  });
});
