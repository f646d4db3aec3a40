import { connect } from 'node:http2';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect } from 'chai';
import { Bench, HEALTH, SERVERS } from './grpc-client.js';

const CHECK = {
  ':method': 'POST',
  ':path': `/${HEALTH}/Check`,
  'content-type': 'application/grpc',
  te: 'trailers',
};

for (const { server, direct } of SERVERS) {
  describe(`connections that live for one probe, by ${server}`, function () {
    this.timeout(60_000);
    let bench: Bench;
    let answered = 0;
    let collectGarbage: () => void;

    before(async () => {
      setFlagsFromString('--expose-gc');
      collectGarbage = runInNewContext('gc') as () => void; // what the flag brings
      bench = await new Bench(undefined, { direct }).start();
    });
    after(() => bench.stop());

    const probe = (killed: boolean): Promise<void> =>
      new Promise((resolve, reject) => {
        const session = connect(`http://127.0.0.1:${bench.port}`);
        session.on('error', reject);
        session.on('close', resolve);
        const stream = session.request(CHECK);
        stream.on('error', () => undefined);
        stream.resume();
        stream.end(Buffer.alloc(5));
        stream.on('trailers', (trailers: Record<string, unknown>) => {
          if (trailers['grpc-status'] === '0') answered++;
        });
        if (killed) {
          stream.once('ready', () => {
            session.destroy();
          });
        } else {
          stream.on('close', () => {
            session.close();
          });
        }
      });
    const heapAfter = async (probes: number): Promise<number> => {
      for (let i = 0; i < probes; i++) await probe(i % 5 === 0);
      const giveUpMs = performance.now() + 5000;
      while (bench.server.connections > 0 && performance.now() < giveUpMs) {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      expect(bench.server.connections).to.equal(0);
      for (let i = 0; i < 3; i++) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        collectGarbage();
      }
      return process.memoryUsage().heapUsed;
    };

    it('leave nothing behind, whether they are closed or killed', async () => {
      await heapAfter(300);
      const before = await heapAfter(200);
      const grown = (await heapAfter(2000)) - before;
      // The heap goes up and down by less than a megabyte; what stayed of each would be kilobytes.
      expect(grown / 2000).to.be.lessThan(1000);
      expect(answered).to.be.at.least(2000);
    });
  });
}
