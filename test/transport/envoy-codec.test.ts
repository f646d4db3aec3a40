import { expect } from 'chai';
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { RequestError } from '../../src/limiter.js';
import { MAX_HITS, type Descriptor, type JsonValue } from '../../src/model.js';
import {
  decodeRequest,
  encodeResponse,
  unitOf,
  type EnvoyRequest,
  type EnvoyResponse,
} from '../../src/transport/envoy-codec.js';
import { protoRoot } from '../../src/transport/reflection.js';

const root = new protobuf.Root();
root.resolvePath = (_origin, target) =>
  protobuf.common.get(target) === null ? `${protoRoot()}/${target}` : target;
root.loadSync('envoy/service/ratelimit/v3/rls.proto');
const RequestType = root.lookupType('envoy.service.ratelimit.v3.RateLimitRequest');
const ResponseType = root.lookupType('envoy.service.ratelimit.v3.RateLimitResponse');

const BOUNDS = { maxDescriptors: 128, maxEntries: 32, maxValueBytes: 65_536 };

interface RawRequest {
  domain: string;
  hitsAddend: number;
  descriptors: {
    entries: { key: string; value: string }[];
    limit: { requestsPerUnit: number; unit: number } | null;
    hitsAddend: { value: string } | null;
    isNegativeHits: boolean;
  }[];
}

/** What the generated codec sees, in the shape of ours. */
function generated(bytes: Uint8Array): EnvoyRequest {
  const message = RequestType.toObject(RequestType.decode(bytes), {
    longs: String,
    defaults: true,
  });
  return inOurShape(message as RawRequest);
}

function inOurShape(message: RawRequest): EnvoyRequest {
  return {
    domain: message.domain,
    hitsAddend: message.hitsAddend,
    descriptors: message.descriptors.map(({ entries, limit, hitsAddend, isNegativeHits }) => {
      const unit = limit && unitOf(limit.unit);
      return {
        entries,
        override: limit && unit ? { requests: limit.requestsPerUnit, unit } : undefined,
        hits: hitsAddend ? Math.min(Number(hitsAddend.value), MAX_HITS) : undefined,
        giveBack: isNegativeHits,
      };
    }),
  };
}

type Seen = EnvoyRequest | 'refused';

function ours(bytes: Uint8Array): Seen {
  try {
    return decodeRequest(Buffer.from(bytes), BOUNDS);
  } catch (error) {
    if (error instanceof RequestError) return 'refused';
    throw error;
  }
}

function modelled(bytes: Uint8Array): Seen {
  try {
    return inOurShape(modelOf(Buffer.from(bytes)));
  } catch (error) {
    if (error instanceof Malformed) return 'refused';
    throw error;
  }
}

class Malformed extends Error {}

type Field = readonly [number: number, value: bigint | Buffer | undefined];

/** All fields of a message, by slices and big integers: too simple to be wrong, and slow. */
function fieldsOf(bytes: Buffer, group = 0): { fields: Field[]; rest: Buffer } {
  const fields: Field[] = [];
  let rest = bytes;
  const varint = (): bigint => {
    const length = rest.findIndex((byte) => byte < 128) + 1;
    if (length === 0 || length > 10) throw new Malformed();
    const value = rest
      .subarray(0, length)
      .reduceRight((sum, byte) => sum * 128n + BigInt(byte & 127), 0n);
    rest = rest.subarray(length);
    return BigInt.asUintN(64, value);
  };
  const take = (length: number): Buffer => {
    if (length > rest.length) throw new Malformed();
    const taken = rest.subarray(0, length);
    rest = rest.subarray(length);
    return taken;
  };
  while (rest.length > 0) {
    const tag = Number(BigInt.asUintN(32, varint()));
    const number = tag >>> 3;
    if (number === 0) throw new Malformed();
    if (tag % 8 === 0) fields.push([number, varint()]);
    else if (tag % 8 === 1) take(8);
    else if (tag % 8 === 2) fields.push([number, take(Number(BigInt.asUintN(32, varint())))]);
    else if (tag % 8 === 3) rest = fieldsOf(rest, number).rest;
    else if (tag % 8 === 4 && number === group) return { fields, rest };
    else if (tag % 8 === 5) take(4);
    else throw new Malformed();
  }
  if (group !== 0) throw new Malformed();
  return { fields, rest };
}

function modelOf(bytes: Buffer): RawRequest {
  const numbers = (fields: readonly Field[], number: number): bigint[] =>
    fields.flatMap(([n, value]) => (n === number && typeof value === 'bigint' ? [value] : []));
  const parts = (fields: readonly Field[], number: number): Buffer[] =>
    fields.flatMap(([n, value]) => (n === number && Buffer.isBuffer(value) ? [value] : []));
  const uint32Of = (fields: readonly Field[], number: number): number =>
    Number(BigInt.asUintN(32, numbers(fields, number).at(-1) ?? 0n));
  const textOf = (fields: readonly Field[], number: number): string =>
    (parts(fields, number).at(-1) ?? Buffer.alloc(0)).toString('utf8');
  const { fields } = fieldsOf(bytes);
  return {
    domain: textOf(fields, 1),
    hitsAddend: uint32Of(fields, 3),
    descriptors: parts(fields, 2).map((part) => {
      const descriptor = fieldsOf(part).fields;
      const limits = parts(descriptor, 2);
      const limit = limits.flatMap((each) => fieldsOf(each).fields);
      const hits = parts(descriptor, 3);
      const value = hits.flatMap((each) => fieldsOf(each).fields);
      return {
        entries: parts(descriptor, 1).map((entry) => {
          const inner = fieldsOf(entry).fields;
          return { key: textOf(inner, 1), value: textOf(inner, 2) };
        }),
        limit:
          limits.length === 0
            ? null
            : { requestsPerUnit: uint32Of(limit, 1), unit: uint32Of(limit, 2) },
        hitsAddend: hits.length === 0 ? null : { value: String(numbers(value, 1).at(-1) ?? 0n) },
        isNegativeHits: (numbers(descriptor, 4).at(-1) ?? 0n) !== 0n,
      };
    }),
  };
}

const text = fc.string({ unit: 'binary', maxLength: 20 });
const uint32 = fc.oneof(fc.nat(20), fc.integer({ min: 0, max: 0xffffffff }));

const requests = fc.record(
  {
    domain: text,
    hitsAddend: uint32,
    descriptors: fc.array(
      fc.record(
        {
          entries: fc.array(fc.record({ key: text, value: text }, { requiredKeys: [] }), {
            maxLength: 4,
          }),
          limit: fc.record(
            { requestsPerUnit: uint32, unit: fc.integer({ min: -3, max: 300 }) },
            { requiredKeys: [] },
          ),
          hitsAddend: fc.record(
            {
              value: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map((value) => ({
                low: Number(value & 0xffffffffn) | 0,
                high: Number(value >> 32n) | 0,
                unsigned: true,
              })),
            },
            { requiredKeys: [] },
          ),
          isNegativeHits: fc.boolean(),
        },
        { requiredKeys: [] },
      ),
      { maxLength: 5 },
    ),
  },
  { requiredKeys: [] },
);

const json: fc.Arbitrary<JsonValue> = fc.letrec<{ value: JsonValue }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constant(null),
    fc.boolean(),
    fc.double({ noNaN: true }),
    text,
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(text, tie('value'), { maxKeys: 3 }),
  ),
})).value;

const responses: fc.Arbitrary<EnvoyResponse> = fc.record({
  overallCode: fc.constantFrom(1 as const, 2 as const),
  statuses: fc.array(
    fc.record({
      code: fc.constantFrom(1 as const, 2 as const),
      currentLimit: fc.option(fc.record({ requestsPerUnit: uint32, unit: fc.nat(7), name: text }), {
        nil: undefined,
      }),
      limitRemaining: uint32,
      secondsUntilReset: fc.oneof(fc.nat(100), fc.nat(2 ** 31 - 1)),
    }),
    { maxLength: 130 },
  ),
  headers: fc.array(fc.record({ key: text, value: text }), { maxLength: 4 }),
  dynamicMetadata: fc.option(fc.dictionary(text, json, { maxKeys: 4 }), { nil: undefined }),
});

/** One edit of a message: a byte changed, bytes left out, put in, or doubled. */
function mutate(bytes: Uint8Array, edits: readonly (readonly [number, number, number])[]): Buffer {
  let mutated = Buffer.from(bytes);
  for (const [kind, where, value] of edits) {
    const at = mutated.length === 0 ? 0 : where % mutated.length;
    const head = mutated.subarray(0, at);
    const tail = mutated.subarray(at);
    if (kind === 0 && mutated.length > 0) mutated[at] = value;
    else if (kind === 1) mutated = Buffer.concat([head, tail.subarray(1 + (value % 4))]);
    else if (kind === 2) mutated = Buffer.concat([head, Buffer.from([value]), tail]);
    else if (kind === 3) mutated = Buffer.from(head);
    else mutated = Buffer.concat([head, tail, tail]);
  }
  return mutated;
}

const edits = fc.array(fc.tuple(fc.nat(4), fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 });

/** Bytes as hexadecimal, spaces allowed. */
function hex(text: string): Buffer {
  return Buffer.from(text.replaceAll(' ', ''), 'hex');
}

const NOTHING = { entries: [], override: undefined, hits: undefined, giveBack: false };

describe("the codec of Envoy's messages", () => {
  it('reads names alike whether met before or not', () => {
    const named = (name: string): EnvoyRequest =>
      decodeRequest(
        Buffer.concat([Buffer.from([10, name.length / 2]), Buffer.from(name, 'hex')]),
        BOUNDS,
      );
    // Of one length, with the same ends; and one whose characters are the bytes of the next.
    const names = ['616263', '616463', '616263', 'c3b1c3a9', 'f1e9', 'c3b1c3a9', '', '00'];
    expect(names.map((name) => named(name).domain)).to.deep.equal([
      'abc',
      'adc',
      'abc',
      'ñé',
      '\ufffd\ufffd',
      'ñé',
      '',
      '\0',
    ]);
    expect(() => decodeRequest(Buffer.from('0a03616263', 'hex'), { ...BOUNDS, maxValueBytes: 2 }))
      .to.throw(RequestError)
      .with.property('message', 'domain: longer than 2 bytes');
  });

  const readings: readonly [string, string, Partial<Descriptor>][] = [
    ['a unit of 0 as no override', '12 06 12 04 08 05 10 00', {}],
    ['no unit as no override', '12 04 12 02 08 05', {}],
    ['an unknown unit as no override', '12 06 12 04 08 05 10 08', {}],
    ['a negative unit as no override', '12 0f 12 0d 08 05 10 ffffffffffffffffff01', {}],
    ['unit 1', '12 06 12 04 08 05 10 01', { override: { requests: 5, unit: 'second' } }],
    ['unit 7', '12 06 12 04 08 05 10 07', { override: { requests: 5, unit: 'week' } }],
    [
      'an override of nothing per minute',
      '12 04 12 02 10 02',
      { override: { requests: 0, unit: 'minute' } },
    ],
    [
      'an override in two parts',
      '12 08 12 02 08 05 12 02 10 03',
      { override: { requests: 5, unit: 'hour' } },
    ],
    ['hits of 0 as told', '12 02 1a 00', { hits: 0 }],
    ['hits of 0 as told in full', '12 04 1a 02 08 00', { hits: 0 }],
    ['hits of 5 billion', '12 08 1a 06 08 80e497d012', { hits: 5_000_000_000 }],
    ['the most hits', '12 0d 1a 0b 08 ffffffffffffffffff01', { hits: 9007199254740991 }],
    ['hits that are given back', '12 06 1a 02 08 03 20 01', { hits: 3, giveBack: true }],
    ['a number of another field, skipped', '12 04 98 06 96 01', {}],
    ['a group, skipped', '12 06 2b 08 01 10 02 2c', {}],
    ['a field of another type, skipped', '12 02 08 01', {}],
    [
      'bytes that are not UTF-8',
      '12 06 0a 04 0a 02 ff 61',
      { entries: [{ key: '\ufffda', value: '' }] },
    ],
  ];
  for (const [what, bytes, descriptor] of readings) {
    it(`reads ${what}`, () => {
      expect(decodeRequest(hex(bytes), BOUNDS).descriptors).to.deep.equal([
        { ...NOTHING, ...descriptor },
      ]);
    });
  }

  const refusals: readonly [string, string, string][] = [
    ['a length beyond the end', '0a 05 61', 'it ends in the middle of a field'],
    [
      'a length beyond the outer message',
      '12 02 0a 05 61 61 61 61 61',
      'it ends in the middle of a field',
    ],
    ['a number of eleven bytes', '18 ffffffffffffffffffff01', 'a number of more than ten bytes'],
    ['field number 0', '00 01', 'field number 0'],
    ['wire type 7', '0f', 'wire type 7'],
    ['an end without a group', '0c', 'a group ends that did not begin'],
    ['another end than the group', '2b 34', 'a group ends that did not begin'],
    ['a group without end', '2b 08 01', 'it ends in the middle of a field'],
    ['groups nested without end', '2b'.repeat(40), 'groups nested too deeply'],
  ];
  for (const [what, bytes, message] of refusals) {
    it(`refuses ${what}`, () => {
      expect(() => decodeRequest(hex(bytes), BOUNDS)).to.throw(
        RequestError,
        `malformed message: ${message}`,
      );
    });
  }

  it('refuses what is beyond its bounds, naming the field', () => {
    const bounds = { maxDescriptors: 2, maxEntries: 2, maxValueBytes: 3 };
    const cases: readonly [string, string][] = [
      ['1200 1200 1200', 'descriptors: more than 2'],
      ['1206 0a00 0a00 0a00', 'descriptors.entries: more than 2'],
      ['0a04 61616161', 'domain: longer than 3 bytes'],
      ['1208 0a06 0a04 61616161', 'descriptors.entries.key: longer than 3 bytes'],
      ['1208 0a06 1204 61616161', 'descriptors.entries.value: longer than 3 bytes'],
    ];
    for (const [bytes, message] of cases) {
      expect(() => decodeRequest(hex(bytes), bounds)).to.throw(RequestError, message);
    }
  });

  const runs = { numRuns: 2000, seed: 8081 };

  it('reads what a generated codec writes', () => {
    fc.assert(
      fc.property(requests, (request) => {
        const bytes = RequestType.encode(RequestType.create(request)).finish();
        expect(ours(bytes)).to.deep.equal(generated(bytes));
      }),
      runs,
    );
  });

  it('reads mutated messages as the model does, or refuses them alike', () => {
    fc.assert(
      fc.property(requests, edits, (request, changes) => {
        const bytes = mutate(RequestType.encode(RequestType.create(request)).finish(), changes);
        expect(ours(bytes)).to.deep.equal(modelled(bytes));
      }),
      { numRuns: 20_000, seed: 8081 },
    );
  }).timeout(30_000);

  it('reads any bytes as the model does, or refuses them alike', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        expect(ours(bytes)).to.deep.equal(modelled(bytes));
      }),
      { numRuns: 20_000, seed: 8081 },
    );
  });

  it('writes the very bytes that a generated codec writes', () => {
    fc.assert(
      fc.property(responses, (response) => {
        const { statuses, headers, dynamicMetadata } = response;
        const object = {
          overallCode: response.overallCode,
          statuses: statuses.map((status) => ({
            code: status.code,
            ...(status.currentLimit && {
              currentLimit: nonZero(status.currentLimit as unknown as Record<string, unknown>),
            }),
            ...nonZero({ limitRemaining: status.limitRemaining }),
            ...(status.secondsUntilReset > 0 && {
              durationUntilReset: { seconds: status.secondsUntilReset },
            }),
          })),
          responseHeadersToAdd: headers,
          ...(dynamicMetadata && { dynamicMetadata: struct(dynamicMetadata) }),
        };
        const expected = ResponseType.encode(ResponseType.create(object)).finish();
        expect(encodeResponse(response).equals(expected)).to.equal(true);
      }),
      { numRuns: 500, seed: 8081 },
    );
  });
});

function nonZero(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== 0 && value !== ''),
  );
}

function struct(object: Readonly<Record<string, JsonValue>>): object {
  const fields = Object.create(null) as Record<string, unknown>;
  for (const [key, value] of Object.entries(object)) fields[key] = wrapped(value);
  return { fields };
}

function wrapped(value: JsonValue): object {
  if (value === null) return { nullValue: 0 };
  if (typeof value === 'number') return { numberValue: value };
  if (typeof value === 'string') return { stringValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  if (Array.isArray(value)) return { listValue: { values: value.map(wrapped) } };
  return { structValue: struct(value as Record<string, JsonValue>) };
}
