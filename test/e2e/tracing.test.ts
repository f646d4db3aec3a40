import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { hitCommand } from '../../src/cli/hit.js';
import { run } from '../cli/recorder.js';
import { startWeir } from '../support/weir-process.js';

const RULES =
  'domain: shop\ndescriptors:\n  - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }\n';
const TRACE = '0af7651916cd43dd8448eb211c80319c';

describe('a service that is traced', function () {
  this.timeout(30_000);
  let collector: Server;
  const received: string[] = [];

  before(async () => {
    collector = createServer((request, response) => {
      request.on('data', (chunk: Buffer) => received.push(chunk.toString()));
      request.on('end', () => response.setHeader('content-type', 'application/json').end('{}'));
    });
    collector.listen(0, '127.0.0.1');
    await once(collector, 'listening');
  });
  after(() => {
    collector.closeAllConnections();
    collector.close();
  });

  it('sends a span for each call, over gRPC and HTTP, at the latest when it ends', async () => {
    const { port } = collector.address() as AddressInfo; // it listens on TCP
    const weir = await startWeir({
      files: { 'shop.yaml': RULES },
      env: {
        TRACING_ENABLED: 'true',
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
      },
    });
    try {
      await run(hitCommand, '-s', `127.0.0.1:${weir.grpcPort}`, '-d', 'shop', 'user=42');
      const body = JSON.stringify({
        domain: 'shop',
        descriptors: [{ entries: [{ key: 'user', value: '42' }] }],
      });
      const headers = { traceparent: `00-${TRACE}-b7ad6b7169203331-01` };
      await fetch(`http://127.0.0.1:${weir.httpPort}/json`, { method: 'POST', body, headers });
    } finally {
      await weir.stop();
    }
    const sent = received.join('');
    const outcomes = [...sent.matchAll(/"weir\.outcome","value":\{"stringValue":"(\w+)"/g)];
    expect(outcomes.map(([, outcome]) => outcome)).to.deep.equal(['allowed', 'refused']);
    expect(sent).to.contain(TRACE);
  });
});
