import { expect } from 'chai';
import { startWeir, type WeirProcess } from '../support/weir-process.js';
import { pack, XdsTestServer } from '../support/xds-server.js';

describe('weir serve with an xDS server', function () {
  this.timeout(30_000);
  let server: XdsTestServer;
  let weir: WeirProcess;

  before(async () => {
    server = await XdsTestServer.start();
    server.onRequest = ({ response_nonce }) => {
      if (response_nonce === '') server.send('1', [rules(1)]);
    };
    weir = await startWeir({
      files: {},
      env: {
        CONFIG_TYPE: 'GRPC_XDS_SOTW',
        CONFIG_GRPC_XDS_SERVER_URL: `127.0.0.1:${server.port}`,
        CONFIG_GRPC_XDS_NODE_ID: 'edge',
      },
    });
  });

  after(async () => {
    await weir.stop();
    server.stop();
  });

  /** The status of one request by HTTP: 200 or 429. */
  async function ask(): Promise<number> {
    const descriptors = [{ entries: [{ key: 'user', value: '42' }] }];
    const response = await fetch(`http://127.0.0.1:${weir.httpPort}/json`, {
      method: 'POST',
      body: JSON.stringify({ domain: 'edge', descriptors }),
    });
    return response.status;
  }

  it('decides by its rules, and by the new ones once it has accepted them', async () => {
    expect((await server.request()).node.id).to.equal('edge');
    expect(await server.request()).to.include({ version_info: '1', error_detail: null });
    expect([await ask(), await ask()]).to.deep.equal([200, 429]);
    server.send('2', [rules(2)]);
    expect(await server.request()).to.include({ version_info: '2', error_detail: null });
    expect([await ask(), await ask()]).to.deep.equal([200, 429]);
  });
});

function rules(perYear: number) {
  return pack({
    name: 'edge',
    domain: 'edge',
    descriptors: [{ key: 'user', rate_limit: { unit: 'YEAR', requests_per_unit: perYear } }],
  });
}
