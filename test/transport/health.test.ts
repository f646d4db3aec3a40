import { status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { Bench, failureOf, HEALTH, SERVERS } from './grpc-client.js';

for (const { server, direct } of SERVERS) {
  describe(`gRPC health, beside ${server}`, () => {
    let bench: Bench;

    beforeEach(async () => {
      bench = await new Bench(undefined, { direct }).start();
    });

    afterEach(async () => {
      await bench.stop();
    });

    const services = [
      '',
      'ratelimit',
      'envoy.service.ratelimit.v3.RateLimitService',
      'weir.v1.RateLimiter',
    ];

    it('is the same for every service', async () => {
      const caller = bench.caller(HEALTH);
      for (const service of services) {
        expect(await caller.call('Check', { service })).to.deep.equal({ status: 'SERVING' });
      }
      bench.health.set(false, 'no configuration is loaded');
      for (const service of services) {
        expect(await caller.call('Check', { service })).to.deep.equal({ status: 'NOT_SERVING' });
      }
    });

    it('does not know other services', async () => {
      const call = bench.caller(HEALTH).call('Check', { service: 'nope' });
      expect(await failureOf(call)).to.deep.equal({
        code: status.NOT_FOUND,
        details: 'unknown service',
      });
    });

    it('lists all services', async () => {
      const serving = { status: 'SERVING' };
      expect(await bench.caller(HEALTH).call('List', {})).to.deep.equal({
        statuses: Object.fromEntries(services.map((service) => [service, serving])),
      });
    });

    async function watched(service: string, change: () => void): Promise<unknown[]> {
      const stream = bench.caller(HEALTH).watch({ service });
      stream.on('error', () => undefined);
      const seen: unknown[] = [];
      await new Promise<void>((resolve) => {
        stream.on('data', (message) => {
          if (seen.push(message) === 1) change();
          setTimeout(resolve, 100);
        });
      });
      stream.cancel();
      return seen;
    }

    it('tells a watcher every change once', async () => {
      const seen = await watched('ratelimit', () => {
        bench.health.set(false, 'draining');
        bench.health.set(false, 'draining');
        bench.health.set(true, '');
      });
      expect(seen).to.deep.equal([
        { status: 'SERVING' },
        { status: 'NOT_SERVING' },
        { status: 'SERVING' },
      ]);
    });

    it('tells a watcher of an unknown service so, and nothing more', async () => {
      const seen = await watched('nope', () => {
        bench.health.set(false, 'draining');
      });
      expect(seen).to.deep.equal([{ status: 'SERVICE_UNKNOWN' }]);
    });
  });
}
