import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { FixedLimiter, unmatched } from './fixtures.js';
import { Bench, ENVOY, failureOf, HEALTH, NATIVE, SERVERS } from './grpc-client.js';

const REQUEST = { descriptor: { user: 'x' } };

async function elapsedOf(work: Promise<unknown>): Promise<number> {
  const before = performance.now();
  await work;
  return performance.now() - before;
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await pause(5);
}

interface HeldLimiter {
  readonly limiter: FixedLimiter;
  /** Resolves when a call has come. */
  readonly asked: () => Promise<void>;
  readonly release: () => void;
}

/** A limiter that answers when it is told to. */
function heldLimiter(): HeldLimiter {
  const limiter = new FixedLimiter();
  const held: (() => void)[] = [];
  limiter.decide = (request, _deadlineMs, done) => {
    held.push(() => {
      done(unmatched(request));
    });
  };
  return {
    limiter,
    asked: () => until(() => held.length > 0),
    release: () =>
      held.forEach((answer) => {
        answer();
      }),
  };
}

for (const { server, direct } of SERVERS) {
  describe(`drain, by ${server}`, () => {
    let bench: Bench;

    afterEach(async () => {
      await bench.stop();
    });

    it('ends at once with idle clients', async () => {
      bench = await new Bench(undefined, { direct }).start();
      await bench.caller(NATIVE).call('ShouldRateLimit', REQUEST);
      const elapsed = await elapsedOf(bench.server.drain({ delayMs: 0, timeoutMs: 5000 }));
      expect(elapsed).to.be.lessThan(2500);
      expect(bench.server.connections).to.equal(0);
    });

    it('says NOT_SERVING and still answers while it waits', async () => {
      bench = await new Bench(undefined, { direct }).start();
      const before = performance.now();
      let ended = false;
      const drained = bench.server.drain({ delayMs: 1000, timeoutMs: 5000 }).then(() => {
        ended = true;
      });
      expect(await bench.caller(HEALTH).call('Check', {})).to.deep.equal({ status: 'NOT_SERVING' });
      const answer = await bench.caller(NATIVE).call('ShouldRateLimit', REQUEST);
      expect(answer).to.include({ allowed: true });
      expect(ended).to.equal(false);
      await drained;
      expect(performance.now() - before).to.be.within(990, 4000);
    });

    it('finishes calls in flight', async () => {
      const { limiter, asked, release } = heldLimiter();
      bench = await new Bench(limiter, { direct }).start();
      const call = bench.caller(NATIVE).call('ShouldRateLimit', REQUEST);
      await asked();
      const drained = bench.server.drain({ delayMs: 0, timeoutMs: 5000 });
      await pause(50);
      release();
      expect(await call).to.include({ allowed: true });
      expect(await elapsedOf(drained)).to.be.lessThan(2500);
    });

    it('cuts a call that is stuck at its time-out', async () => {
      const { limiter, asked } = heldLimiter();
      bench = await new Bench(limiter, { direct }).start();
      const call = failureOf(
        bench.caller(ENVOY).call('ShouldRateLimit', { domain: 'a', descriptors: [{}] }),
      );
      await asked();
      const elapsed = await elapsedOf(bench.server.drain({ delayMs: 0, timeoutMs: 100 }));
      expect(elapsed).to.be.within(90, 2500);
      expect((await call).code).to.be.oneOf([
        status.UNAVAILABLE,
        status.CANCELLED,
        status.INTERNAL,
      ]);
    });

    it('is not held up by a health watch', async () => {
      bench = await new Bench(undefined, { direct }).start();
      const stream = bench.caller(HEALTH).watch({});
      const seen: unknown[] = [];
      stream.on('data', (message) => seen.push(message));
      const ended = new Promise<void>((resolve) => {
        stream.on('error', () => undefined);
        stream.on('close', resolve);
        stream.on('end', resolve);
      });
      await until(() => seen.length > 0);
      const elapsed = await elapsedOf(bench.server.drain({ delayMs: 50, timeoutMs: 5000 }));
      await ended;
      expect(elapsed).to.be.lessThan(2500);
      expect(seen).to.deep.equal([{ status: 'SERVING' }, { status: 'NOT_SERVING' }]);
    });

    it('is not held up by clients that are half open or silent', async () => {
      bench = await new Bench(undefined, { direct }).start();
      const silent = connect({ port: bench.port, host: '127.0.0.1', allowHalfOpen: true });
      const half = connect({ port: bench.port, host: '127.0.0.1', allowHalfOpen: true });
      const session = connectHttp2(`http://127.0.0.1:${String(bench.port)}`);
      for (const client of [silent, half, session]) client.on('error', () => undefined);
      half.end();
      await pause(100);
      const elapsed = await elapsedOf(bench.server.drain({ delayMs: 0, timeoutMs: 5000 }));
      expect(elapsed).to.be.lessThan(2500);
      await until(() => bench.server.connections === 0);
      for (const client of [silent, half, session]) client.destroy();
    });

    it('is shortened by a second call, and resolves for both', async () => {
      const { limiter, asked } = heldLimiter();
      bench = await new Bench(limiter, { direct }).start();
      const call = failureOf(bench.caller(NATIVE).call('ShouldRateLimit', REQUEST));
      await asked();
      const elapsed = await elapsedOf(
        (async () => {
          const first = bench.server.drain({ delayMs: 10_000, timeoutMs: 10_000 });
          await pause(10);
          const second = bench.server.drain({ delayMs: 10_000, timeoutMs: 10_000 });
          await pause(10);
          await Promise.all([first, second, bench.server.drain({ delayMs: 0, timeoutMs: 0 })]);
        })(),
      );
      expect(elapsed).to.be.lessThan(2500);
      await call;
    });

    it('refuses new connections from the GOAWAY on', async () => {
      bench = await new Bench(undefined, { direct }).start();
      await bench.server.drain({ delayMs: 0, timeoutMs: 0 });
      const caller = bench.caller(NATIVE);
      const call = caller.call('ShouldRateLimit', REQUEST, { deadline: Date.now() + 1000 });
      expect((await failureOf(call)).code).to.equal(status.UNAVAILABLE);
    });

    it('works on a server that never listened', async () => {
      bench = new Bench(undefined, { direct });
      expect(await elapsedOf(bench.server.drain({ delayMs: 0, timeoutMs: 1000 }))).to.be.lessThan(
        900,
      );
    });
  });
}
