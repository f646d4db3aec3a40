import { createServer, type AddressInfo, type Server } from 'node:net';
import { once } from 'node:events';
import { expect } from 'chai';
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
});
