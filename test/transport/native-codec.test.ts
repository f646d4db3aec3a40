import { expect } from 'chai';
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { RequestError } from '../../src/limiter.js';
import {
  decodeNativeRequest,
  encodeNativeResponse,
  type NativeLimitResult,
  type NativeResponse,
} from '../../src/transport/native-codec.js';
import { protoRoot } from '../../src/transport/reflection.js';

const root = new protobuf.Root();
root.resolvePath = (_origin, target) =>
  protobuf.common.get(target) === null ? `${protoRoot()}/${target}` : target;
root.loadSync('weir/v1/rate_limiter.proto');
const RequestType = root.lookupType('weir.v1.ShouldRateLimitRequest');
const ResponseType = root.lookupType('weir.v1.ShouldRateLimitResponse');

const text = fc.string({ unit: 'binary', maxLength: 20 });
const hits = fc.oneof(fc.nat(20), fc.maxSafeNat());

describe('the codec of the native messages', () => {
  it('reads what a generated codec writes', () => {
    const descriptor = fc.record({
      endpoint: text,
      user: text,
      ip: text,
      apiKey: text,
      attributes: fc.dictionary(text, text, { maxKeys: 5, noNullPrototype: true }),
    });
    const requests = fc.record({
      domain: text,
      descriptor: fc.option(descriptor, { nil: undefined }),
      hits: fc.option(hits, { nil: undefined }),
      mode: fc.nat(300),
    });
    fc.assert(
      fc.property(requests, (request) => {
        const fields = Object.fromEntries(
          Object.entries(request).filter(([, value]) => value !== undefined),
        );
        const bytes = RequestType.encode(RequestType.create(fields)).finish();
        const read = decodeNativeRequest(Buffer.from(bytes));
        const attributes = Object.entries(request.descriptor?.attributes ?? {});
        expect(read).to.deep.equal({
          ...request,
          descriptor: request.descriptor && {
            ...request.descriptor,
            attributes: new Map(attributes),
          },
        });
      }),
      { numRuns: 2000, seed: 8081 },
    );
  });

  it('refuses other bytes with a RequestError and nothing else', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        try {
          decodeNativeRequest(Buffer.from(bytes));
        } catch (error) {
          expect(error).to.be.instanceOf(RequestError);
        }
      }),
      { numRuns: 20_000, seed: 8081 },
    );
  });

  it('writes what a generated codec reads', () => {
    const optional = <T>(of: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
      fc.option(of, { nil: undefined });
    const results: fc.Arbitrary<NativeLimitResult> = fc.record({
      name: text,
      allowed: fc.boolean(),
      enforced: fc.boolean(),
      degraded: fc.boolean(),
      algorithm: fc.nat(4),
      windowUs: optional(hits),
      limit: optional(hits),
      burst: optional(hits),
      remaining: optional(hits),
      resetAfterUs: optional(hits),
      retryAfterUs: optional(hits),
    });
    const responses: fc.Arbitrary<NativeResponse> = fc.record({
      allowed: fc.boolean(),
      limit: optional(hits),
      remaining: optional(hits),
      resetTimeUs: optional(hits),
      resetAfterUs: optional(hits),
      retryAfterUs: optional(hits),
      limitName: text,
      degraded: fc.boolean(),
      limits: fc.array(results, { maxLength: 20 }),
    });
    fc.assert(
      fc.property(responses, (response) => {
        const decoded = ResponseType.toObject(ResponseType.decode(encodeNativeResponse(response)), {
          longs: Number,
        });
        const { limits, ...top } = response;
        expect(decoded).to.deep.equal({
          ...onWire(top),
          ...(limits.length > 0 && { limits: limits.map(onWire) }),
        });
      }),
      { numRuns: 1000, seed: 8081 },
    );
  });
});

/** Times become seconds and nanoseconds; what is undefined, empty or false is left out. */
function onWire(fields: object): Record<string, unknown> {
  const wire: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
    if (value === undefined || value === '' || value === false) continue;
    if (name === 'algorithm' && value === 0) continue;
    if (name.endsWith('Us') && typeof value === 'number') {
      const nanos = (value % 1_000_000) * 1000;
      const seconds = Math.floor(value / 1_000_000);
      wire[name.slice(0, -2)] = { ...(seconds > 0 && { seconds }), ...(nanos > 0 && { nanos }) };
    } else wire[name] = value;
  }
  return wire;
}
