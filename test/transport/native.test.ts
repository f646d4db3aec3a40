import { expect } from 'chai';
import { RequestError } from '../../src/limiter.js';
import { normaliseAddress } from '../../src/transport/ip-address.js';
import {
  decodeNativeRequest,
  type NativeDescriptor,
  type NativeRequest,
  type NativeResponse,
} from '../../src/transport/native-codec.js';
import { toDecisionRequest, toNativeResponse } from '../../src/transport/native.js';
import {
  decisionOf,
  descriptorDecision,
  limitDecision,
  limitOf,
  NOW_US,
  ruleOf,
  type LimitFields,
} from './fixtures.js';

function wireOf(
  descriptor: Partial<NativeDescriptor>,
  fields: Partial<NativeRequest> = {},
): NativeRequest {
  return {
    domain: '',
    descriptor: {
      endpoint: '',
      user: '',
      ip: '',
      apiKey: '',
      attributes: new Map(),
      ...descriptor,
    },
    hits: undefined,
    mode: 0,
    ...fields,
  };
}

/** The descriptors as `endpoint=/pay user=42`. */
function triedFor(descriptor: Partial<NativeDescriptor>): string[] {
  return toDecisionRequest(wireOf(descriptor), 64).descriptors.map(({ entries }) =>
    entries.map(({ key, value }) => `${key}=${value}`).join(' '),
  );
}

function refusalOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof RequestError) return `${error.code} ${error.message}`;
    throw error;
  }
  return 'none';
}

describe('a native request', () => {
  it('tries each identity alone and under the endpoint', () => {
    const descriptor = { endpoint: '/pay', user: '42', ip: '192.0.2.1', apiKey: 'secret' };
    expect(triedFor(descriptor)).to.deep.equal([
      'endpoint=/pay',
      'user=42',
      'ip=192.0.2.1',
      'api_key=secret',
      'client=key:K7gNU3sdo-OL0wNhqoVWhr',
      'endpoint=/pay user=42',
      'endpoint=/pay ip=192.0.2.1',
      'endpoint=/pay api_key=secret',
      'endpoint=/pay client=key:K7gNU3sdo-OL0wNhqoVWhr',
    ]);
  });

  it('takes for client the api key, else the user, else the address', () => {
    expect(triedFor({ user: '42', ip: '::1' })).to.include('client=user:42');
    expect(triedFor({ ip: '192.0.2.1' })).to.include('client=ip:192.0.2.1');
    expect(triedFor({ endpoint: '/pay' })).to.deep.equal(['endpoint=/pay']);
  });

  it('tries attributes in the order of their names, without those that are empty', () => {
    const attributes = new Map([
      ['plan', 'free'],
      ['model', 'small'],
      ['empty', ''],
    ]);
    expect(triedFor({ endpoint: '/pay', attributes })).to.deep.equal([
      'endpoint=/pay',
      'model=small',
      'plan=free',
      'endpoint=/pay model=small',
      'endpoint=/pay plan=free',
    ]);
  });

  it('is of the domain `default` when it names none', () => {
    expect(toDecisionRequest(wireOf({ user: '1' }), 64).domain).to.equal('default');
    expect(toDecisionRequest(wireOf({ user: '1' }, { domain: 'shop' }), 64).domain).to.equal(
      'shop',
    );
  });

  const modes = [
    [0, undefined, 1],
    [1, 'take', 1],
    [2, 'peek', 0],
    [3, 'record', 1],
    [4, 'give_back', 1],
  ] as const;
  for (const [number, mode, hits] of modes) {
    it(`has mode ${String(number)} mean ${mode ?? 'what is configured'}, and cost ${String(hits)} when not told`, () => {
      expect(toDecisionRequest(wireOf({ user: '1' }, { mode: number }), 64)).to.include({
        mode,
        hits,
      });
    });
  }

  it('keeps hits that are told, 0 too', () => {
    for (const hits of [0, 1, 5, Number.MAX_SAFE_INTEGER]) {
      expect(toDecisionRequest(wireOf({ user: '1' }, { hits }), 64).hits).to.equal(hits);
    }
  });

  const wrong: readonly [string, NativeRequest, string][] = [
    ['no descriptor', { ...wireOf({}), descriptor: undefined }, 'descriptor: is required'],
    ['an empty descriptor', wireOf({}), 'descriptor: at least one field must be set'],
    [
      'only an empty attribute',
      wireOf({ attributes: new Map([['a', '']]) }),
      'descriptor: at least one field must be set',
    ],
    ['no address', wireOf({ ip: '1.2.3' }), 'descriptor.ip: is not an IPv4 or IPv6 address'],
    ['a zone', wireOf({ ip: 'fe80::1%eth0' }), 'descriptor.ip: is not an IPv4 or IPv6 address'],
    ['hits of 2^53', wireOf({ user: '1' }, { hits: 2 ** 53 }), 'hits: above 2^53 - 1'],
    ['an unknown mode', wireOf({ user: '1' }, { mode: 5 }), 'mode: 5 is none of those defined'],
    [
      'a bad attribute name',
      wireOf({ attributes: new Map([['Plan', 'x']]) }),
      'descriptor.attributes: a name must be like [a-z][a-z0-9_]{0,62}',
    ],
    [
      'an attribute named client',
      wireOf({ attributes: new Map([['client', 'x']]) }),
      'descriptor.attributes: client is a name of its own kind',
    ],
  ];
  for (const [what, wire, message] of wrong) {
    it(`is refused for ${what}`, () => {
      expect(refusalOf(() => toDecisionRequest(wire, 64))).to.equal(`invalid_argument ${message}`);
    });
  }

  it('is refused for more than 16 attributes', () => {
    const attribute = (i: number): Buffer =>
      Buffer.from([0x2a, 5, 0x0a, 3, 0x61, 0x30 + Math.floor(i / 10), 0x30 + (i % 10)]);
    const bytesOf = (count: number): Buffer => {
      const inner = Buffer.concat(Array.from({ length: count }, (_, i) => attribute(i)));
      return Buffer.concat([Buffer.from([0x12, inner.length]), inner]);
    };
    expect(decodeNativeRequest(bytesOf(16)).descriptor?.attributes.size).to.equal(16);
    expect(refusalOf(() => decodeNativeRequest(bytesOf(17)))).to.equal(
      'invalid_argument descriptor.attributes: more than 16',
    );
  });
});

describe('an address', () => {
  const cases: readonly [string, number, string | undefined][] = [
    ['192.0.2.1', 64, '192.0.2.1'],
    ['::ffff:192.0.2.1', 64, '192.0.2.1'],
    ['::FFFF:c000:0201', 64, '192.0.2.1'],
    ['2001:db8:1:2:3:4:5:6', 64, '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:0002::', 64, '2001:db8:1:2::/64'],
    ['2001:db8:1:2:3:4:5:6', 48, '2001:db8:1::/48'],
    ['2001:db8:1:2ff:3:4:5:6', 60, '2001:db8:1:2f0::/60'],
    ['2001:db8::1', 128, '2001:db8::1/128'],
    ['2001:db8:0:1:1:1:1:1', 128, '2001:db8:0:1:1:1:1:1/128'],
    ['1:0:0:2:0:0:0:3', 128, '1:0:0:2::3/128'],
    ['::', 64, '::/64'],
    ['::1', 64, '::/64'],
    ['::1', 128, '::1/128'],
    ['1::', 128, '1::/128'],
    ['64:ff9b::192.0.2.33', 128, '64:ff9b::c000:221/128'],
    ['fe80::1%eth0', 64, undefined],
    ['192.0.2.1:80', 64, undefined],
    ['[::1]', 64, undefined],
    ['192.0.2.01', 64, undefined],
    ['192.0.2.256', 64, undefined],
    [' 192.0.2.1', 64, undefined],
    ['1:2:3:4:5:6:7', 64, undefined],
    ['', 64, undefined],
  ];
  for (const [text, prefix, expected] of cases) {
    it(`${JSON.stringify(text)} counts as ${expected ?? 'none'} with ${String(prefix)} bits`, () => {
      expect(normaliseAddress(text, prefix)).to.equal(expected);
    });
  }
});

describe('a native response', () => {
  const refused = { fits: false, retryAfterUs: 20_000_001, resetUs: 30_000_000 };

  /** One descriptor for each limit, of the rule with that index. */
  function respond(
    limits: readonly (LimitFields & { index?: number; path?: string })[],
    fields: Parameters<typeof decisionOf>[1] = {},
  ): NativeResponse {
    const descriptors = limits.map((limit, i) =>
      descriptorDecision({
        rule: ruleOf({ index: limit.index ?? i, path: limit.path ?? `rule${String(i)}` }),
        limits: [limitDecision(limit)],
      }),
    );
    return toNativeResponse(decisionOf(descriptors, fields));
  }

  it('is empty but for `allowed` when no rule matched', () => {
    expect(toNativeResponse(decisionOf([descriptorDecision()]))).to.deep.equal({
      allowed: true,
      limit: undefined,
      remaining: undefined,
      resetTimeUs: undefined,
      resetAfterUs: undefined,
      retryAfterUs: undefined,
      limitName: '',
      degraded: false,
      limits: [],
    });
  });

  it('shows the limit with the least remaining, and all in the order of the configuration', () => {
    const response = respond([
      { index: 2, outcome: { remaining: 5 }, path: 'two' },
      { index: 0, outcome: { remaining: 7 }, path: 'zero' },
      {
        index: 1,
        outcome: { remaining: 3, resetUs: 1_234_567 },
        limit: limitOf({ name: 'one', requests: 4, algorithm: 'token_bucket', burst: 6 }),
      },
    ]);
    expect(response).to.deep.include({
      allowed: true,
      limit: 4,
      remaining: 3,
      resetTimeUs: NOW_US + 1_234_567,
      resetAfterUs: 1_234_567,
      retryAfterUs: undefined,
      limitName: 'one',
    });
    expect(response.limits.map(({ name }) => name)).to.deep.equal(['zero', 'one', 'two']);
    expect(response.limits[1]).to.deep.equal({
      name: 'one',
      allowed: true,
      enforced: true,
      degraded: false,
      algorithm: 4,
      windowUs: 60_000_000,
      limit: 4,
      burst: 6,
      remaining: 3,
      resetAfterUs: 1_234_567,
      retryAfterUs: undefined,
    });
  });

  it('shows the refused limit with the longest wait, exactly', () => {
    const long = { ...refused, retryAfterUs: 40_000_007 };
    const response = respond([
      { outcome: { remaining: 0 } },
      { outcome: refused },
      { outcome: long },
      { outcome: { ...long, retryAfterUs: 90_000_000 }, role: 'shadow' },
    ]);
    expect(response).to.include({ allowed: false, limitName: 'rule2', retryAfterUs: 40_000_007 });
    expect(response.limits.map(({ allowed, enforced }) => [allowed, enforced])).to.deep.equal([
      [true, true],
      [false, true],
      [false, true],
      [false, false],
    ]);
  });

  it('has no retry-after when the hits can never fit', () => {
    const never = { ...refused, retryAfterUs: -1 };
    const response = respond([{ outcome: refused }, { outcome: never }]);
    expect(response).to.include({ limitName: 'rule1', retryAfterUs: undefined });
    expect(response.limits[1]?.retryAfterUs).to.equal(undefined);
  });

  it('lets neither shadow limits nor a quota without room speak for what passed', () => {
    const response = respond(
      [
        { outcome: { remaining: 0 }, role: 'shadow' },
        { outcome: refused, role: 'quota' },
        { outcome: { remaining: 4 }, role: 'quota' },
      ],
      { allowed: true },
    );
    expect(response).to.include({ limitName: 'rule2', remaining: 4 });
  });

  it('rounds up to a tenth of the window, and hides what remains, under `disclose: limit`', () => {
    const limit = limitOf({ disclose: 'limit' });
    const outcome = { ...refused, resetUs: 30_000_001 };
    expect(respond([{ limit, outcome }])).to.include({
      limit: 10,
      remaining: undefined,
      resetAfterUs: 36_000_000,
      resetTimeUs: NOW_US + 36_000_000,
      retryAfterUs: 24_000_000,
    });
  });

  it('shows name, allowed, enforced and degraded only under `disclose: none`', () => {
    const limit = limitOf({ disclose: 'none', name: 'quiet' });
    const response = respond([{ outcome: { remaining: 3 } }, { limit, outcome: refused }]);
    expect(response).to.include({ limitName: 'quiet', limit: undefined, remaining: undefined });
    expect(response).to.include({ resetTimeUs: undefined, retryAfterUs: undefined });
    expect(response.limits[1]).to.deep.equal({
      name: 'quiet',
      allowed: false,
      enforced: true,
      degraded: false,
      algorithm: 0,
      windowUs: undefined,
      limit: undefined,
      burst: undefined,
      remaining: undefined,
      resetAfterUs: undefined,
      retryAfterUs: undefined,
    });
  });

  it('shows no figures of a counter that policy stood in for', () => {
    const outcome = { fits: false, remaining: 0, resetUs: 0, retryAfterUs: 0 };
    const response = respond([{ source: 'deny', outcome }], { degraded: true });
    expect(response).to.include({
      allowed: false,
      degraded: true,
      limit: 10,
      remaining: undefined,
      resetAfterUs: undefined,
      retryAfterUs: 1_000_000,
    });
    expect(response.limits[0]).to.include({ degraded: true, windowUs: 60_000_000 });
  });
});
