import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { until } from '../support/redis-store.js';
import { startWeir } from '../support/weir-process.js';

describe('weir serve', function () {
  this.timeout(30_000);
  let other: Server;

  before(async () => {
    other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
  });

  after(() => {
    other.close();
  });

  it('says which port is taken, and how to choose another', async () => {
    const { port } = other.address() as AddressInfo; // bound to TCP
    const started = startWeir({ files: {}, env: { GRPC_PORT: String(port) } });
    const error = await started.then(
      () => expect.fail('it started'),
      (reason: unknown) => reason,
    );
    expect(String(error)).to.contain(
      `cannot listen on 127.0.0.1:${String(port)}: something listens there already. ` +
        'GRPC_PORT, GRPC_UDS, PORT and DEBUG_PORT choose where',
    );
  });

  it('drains in a hurry when told again, and ends with 0 however often it is', async () => {
    const weir = await startWeir({ files: {}, env: { DRAIN_DELAY: '60s', LOG_LEVEL: 'info' } });
    const client = connect(weir.grpcPort, '127.0.0.1');
    await once(client, 'connect');
    const askedMs = performance.now();
    weir.signal('SIGTERM');
    await until(() => weir.output().includes('"weir drains"'));
    weir.signal('SIGTERM');
    await until(() => weir.output().includes('"weir hurries"'));
    weir.signal('SIGINT');
    expect(await weir.ended()).to.equal(0);
    expect(performance.now() - askedMs).to.be.lessThan(20_000);
    expect(weir.output()).to.not.match(/"level":"(error|fatal)"|unhandled/i);
    client.destroy();
    await weir.stop();
  });

  it('ends with 0 when told to while it is still starting', async () => {
    const root = mkdtempSync(join(tmpdir(), 'weir-serve-'));
    // Never answers the greeting of TLS, for which the start waits a moment.
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo; // bound to TCP
    const child = spawn(process.execPath, ['--import', 'tsx', 'src/main.ts', 'serve'], {
      env: {
        ...process.env,
        NODE_V8_COVERAGE: '',
        RUNTIME_ROOT: root,
        REDIS_URL: `rediss://127.0.0.1:${port}`,
        ...Object.fromEntries(['PORT', 'GRPC_PORT', 'DEBUG_PORT'].map((name) => [name, '0'])),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let printed = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (printed += chunk.toString()));
    }
    try {
      await once(silent, 'connection');
      child.kill('SIGTERM');
      const [code] = (await once(child, 'exit')) as [number | null];
      expect([code, printed.match(/unhandled|"level":"error"/gi)]).to.deep.equal([0, null]);
    } finally {
      child.kill('SIGKILL');
      silent.close();
      rmSync(root, { recursive: true, force: true });
    }
  });
});
