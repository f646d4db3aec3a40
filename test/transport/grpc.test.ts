import { status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { RequestError } from '../../src/limiter.js';
import { decisionOf, descriptorDecision, FixedLimiter, limitDecision } from './fixtures.js';
import { Bench, ENVOY, failureOf, NATIVE, SERVERS } from './grpc-client.js';

for (const { server, direct } of SERVERS) {
  describe(`gRPC server, by ${server}`, () => {
    let bench: Bench;

    beforeEach(async () => {
      bench = await new Bench(undefined, { direct }).start();
    });

    afterEach(async () => {
      await bench.stop();
    });

    it("answers Envoy's API", async () => {
      bench.limiter.answer = () =>
        decisionOf([descriptorDecision({ limits: [limitDecision()] }), descriptorDecision()]);
      const answer = await bench.caller(ENVOY).call('ShouldRateLimit', {
        domain: 'shop',
        descriptors: [
          { entries: [{ key: 'user', value: '42' }] },
          { entries: [{ key: 'nope', value: '' }] },
        ],
      });
      expect(answer).to.deep.include({
        overall_code: 'OK',
        statuses: [
          {
            code: 'OK',
            current_limit: { requests_per_unit: 10, unit: 'MINUTE', name: '' },
            limit_remaining: 9,
            duration_until_reset: { seconds: 30, nanos: 0 },
            quota: null,
          },
          {
            code: 'OK',
            current_limit: null,
            limit_remaining: 0,
            duration_until_reset: null,
            quota: null,
          },
        ],
      });
      expect(bench.limiter.last()).to.deep.equal({
        domain: 'shop',
        descriptors: [
          {
            entries: [{ key: 'user', value: '42' }],
            override: undefined,
            hits: undefined,
            giveBack: false,
          },
          {
            entries: [{ key: 'nope', value: '' }],
            override: undefined,
            hits: undefined,
            giveBack: false,
          },
        ],
        hits: 1,
        mode: undefined,
      });
      expect(bench.observer).to.include({ decisions: 1, invalid: 0, late: 0 });
      expect(bench.observer.requests).to.deep.equal(['envoy']);
    });

    it('answers the native API', async () => {
      bench.limiter.answer = () => decisionOf([descriptorDecision({ limits: [limitDecision()] })]);
      const answer = await bench
        .caller(NATIVE)
        .call('ShouldRateLimit', { domain: 'shop', descriptor: { user: '42' } });
      expect(answer).to.deep.include({
        allowed: true,
        limit: 10,
        remaining: 9,
        reset_time: { seconds: 1_700_000_030, nanos: 0 },
        reset_after: { seconds: 30, nanos: 0 },
        retry_after: null,
        limit_name: 'user',
        degraded: false,
      });
      expect(bench.observer.requests).to.deep.equal(['native']);
    });

    it('names the field that is wrong', async () => {
      const call = bench.caller(NATIVE).call('ShouldRateLimit', { descriptor: { ip: 'x' } });
      expect(await failureOf(call)).to.deep.equal({
        code: status.INVALID_ARGUMENT,
        details: 'descriptor.ip: is not an IPv4 or IPv6 address',
      });
      expect(bench.observer.invalid).to.equal(1);
    });

    it('names the domain first when both it and the descriptors are missing', async () => {
      expect(await failureOf(bench.caller(ENVOY).call('ShouldRateLimit', {}))).to.deep.equal({
        code: status.INVALID_ARGUMENT,
        details: 'domain: must not be empty',
      });
    });

    it('answers FAILED_PRECONDITION while nothing is loaded', async () => {
      bench.limiter.answer = () => {
        throw new RequestError('failed_precondition', 'no configuration is loaded');
      };
      const call = bench.caller(NATIVE).call('ShouldRateLimit', { descriptor: { user: 'x' } });
      expect(await failureOf(call)).to.deep.equal({
        code: status.FAILED_PRECONDITION,
        details: 'no configuration is loaded',
      });
      expect(bench.observer.invalid).to.equal(0);
    });

    it('answers INTERNAL without details when the limiter fails', async () => {
      bench.limiter.answer = () => {
        throw new Error('secret');
      };
      const call = bench.caller(NATIVE).call('ShouldRateLimit', { descriptor: { user: 'x' } });
      expect(await failureOf(call)).to.deep.equal({
        code: status.INTERNAL,
        details: 'internal error',
      });
      expect(bench.logger.lines).to.deep.equal(['request failed']);
    });

    it('refuses more descriptors than its bound', async () => {
      const descriptors = new Array(129).fill({ entries: [{ key: 'a', value: 'b' }] });
      const call = bench.caller(ENVOY).call('ShouldRateLimit', { domain: 'shop', descriptors });
      expect(await failureOf(call)).to.deep.equal({
        code: status.INVALID_ARGUMENT,
        details: 'descriptors: more than 128',
      });
    });

    it('refuses a message above its bound', async () => {
      const call = bench.caller(ENVOY).call('ShouldRateLimit', { domain: 'x'.repeat(1_100_000) });
      expect((await failureOf(call)).code).to.equal(status.RESOURCE_EXHAUSTED);
    });

    describe('deadline', () => {
      it('gives a decision three quarters of what the caller has left', async () => {
        const before = performance.now();
        await bench
          .caller(NATIVE)
          .call('ShouldRateLimit', { descriptor: { user: 'x' } }, { deadline: Date.now() + 80 });
        const deadlineMs = bench.limiter.asked[0]?.deadlineMs ?? 0;
        expect(deadlineMs - before).to.be.within(1, 75);
      });

      it('caps it by the decision time-out, which holds alone without a deadline', async () => {
        for (const options of [{}, { deadline: Date.now() + 60_000 }]) {
          const before = performance.now();
          await bench
            .caller(NATIVE)
            .call('ShouldRateLimit', { descriptor: { user: 'x' } }, options);
          const deadlineMs = bench.limiter.asked.at(-1)?.deadlineMs ?? 0;
          expect(deadlineMs).to.be.within(before + 100, performance.now() + 100);
        }
      });

      it('counts an answer that comes after the caller gave up, and does not send it', async () => {
        let finish = (): void => undefined;
        const limiter = new FixedLimiter();
        limiter.decide = (request, _deadlineMs, done) => {
          finish = () => {
            done(limiter.answer(request));
          };
        };
        const late = await new Bench(limiter, { direct }).start();
        try {
          const call = late
            .caller(NATIVE)
            .call('ShouldRateLimit', { descriptor: { user: 'x' } }, { deadline: Date.now() + 30 });
          expect((await failureOf(call)).code).to.equal(status.DEADLINE_EXCEEDED);
          await new Promise((resolve) => setTimeout(resolve, 30));
          finish();
          expect(late.observer.late).to.equal(1);
          expect(late.logger.lines).to.deep.equal([]);
        } finally {
          await late.stop();
        }
      });
    });
  });
}
