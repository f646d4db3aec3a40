import { expect } from 'chai';
import type { JsonObject } from '../../src/model.js';
import type { EnvoyRequest, EnvoyResponse, EnvoyStatus } from '../../src/transport/envoy-codec.js';
import { toDecisionRequest, toResponse, type HeaderNames } from '../../src/transport/envoy.js';
import {
  decisionOf,
  descriptorDecision,
  descriptorOf,
  limitDecision,
  limitOf,
  ruleOf,
  type LimitFields,
} from './fixtures.js';

const NO_OPTIONS = { headers: undefined, dynamicMetadata: false };
const HEADERS: HeaderNames = {
  limit: 'RateLimit-Limit',
  remaining: 'RateLimit-Remaining',
  reset: 'RateLimit-Reset',
  retryAfter: 'Retry-After',
};
const WIRE: EnvoyRequest = { domain: 'shop', descriptors: [], hitsAddend: 0 };

type Descriptors = Parameters<typeof decisionOf>[0];

function respond(
  descriptors: Descriptors,
  fields: Parameters<typeof decisionOf>[1] = {},
  options: Partial<Parameters<typeof toResponse>[2]> = {},
): EnvoyResponse {
  return toResponse(decisionOf(descriptors, fields), WIRE, { ...NO_OPTIONS, ...options });
}

/** The status of a descriptor with these limits. */
function statusOf(...limits: readonly LimitFields[]): EnvoyStatus | undefined {
  return respond([descriptorDecision({ limits: limits.map(limitDecision) })]).statuses[0];
}

const refused = { fits: false, retryAfterUs: 20_000_000, resetUs: 30_000_000 };

describe("a request over Envoy's API", () => {
  const descriptor = descriptorOf(['user', '42']);

  it('costs 1 when it names no hits', () => {
    const wire = { domain: 'shop', descriptors: [descriptor], hitsAddend: 0 };
    expect(toDecisionRequest(wire)).to.deep.equal({
      domain: 'shop',
      descriptors: [descriptor],
      hits: 1,
      mode: undefined,
    });
    expect(toDecisionRequest({ ...wire, hitsAddend: 5 }).hits).to.equal(5);
  });

  it('may have descriptors without entries, and entries without key', () => {
    const descriptors = [descriptorOf(), descriptorOf(['', ''])];
    const wire = { domain: 'shop', descriptors, hitsAddend: 0 };
    expect(toDecisionRequest(wire).descriptors).to.equal(descriptors);
  });
});

describe("a status of Envoy's API", () => {
  it('says nothing of a descriptor that nothing limits', () => {
    expect(statusOf()).to.deep.equal({
      code: 1,
      currentLimit: undefined,
      limitRemaining: 0,
      secondsUntilReset: 0,
    });
  });

  it('shows the largest remaining for an unlimited rule', () => {
    const { statuses } = respond([descriptorDecision({ unlimited: true })]);
    expect(statuses[0]).to.deep.equal({
      code: 1,
      currentLimit: undefined,
      limitRemaining: 4294967295,
      secondsUntilReset: 0,
    });
  });

  it('shows limit, remaining and reset, in whole seconds rounded up', () => {
    const limit = limitOf({ name: 'per-hour', requests: 100, unit: 'hour' });
    expect(statusOf({ limit, outcome: { remaining: 7, resetUs: 2_000_001 } })).to.deep.equal({
      code: 1,
      currentLimit: { requestsPerUnit: 100, unit: 3, name: 'per-hour' },
      limitRemaining: 7,
      secondsUntilReset: 3,
    });
  });

  const units = [
    ['second', 1],
    ['minute', 2],
    ['hour', 3],
    ['day', 4],
    ['month', 5],
    ['year', 6],
    ['week', 7],
  ] as const;
  for (const [unit, number] of units) {
    it(`numbers the unit ${unit} ${String(number)}`, () => {
      expect(statusOf({ limit: limitOf({ unit }) })?.currentLimit?.unit).to.equal(number);
    });
  }

  it('has unit UNKNOWN for a window of several units', () => {
    const status = statusOf({ limit: limitOf({ unit: 'second', unitMultiplier: 30 }) });
    expect(status?.currentLimit?.unit).to.equal(0);
  });

  it('never shows a duration of 0', () => {
    expect(statusOf({ outcome: { resetUs: 0 } })?.secondsUntilReset).to.equal(1);
  });

  it('caps what remains at 32 bits', () => {
    const status = statusOf({ outcome: { remaining: Number.MAX_SAFE_INTEGER } });
    expect(status?.limitRemaining).to.equal(4294967295);
  });

  it('shows when the hits would fit once they do not', () => {
    expect(statusOf({ outcome: refused })).to.deep.include({
      code: 2,
      limitRemaining: 0,
      secondsUntilReset: 20,
    });
  });

  it('shows the reset when they never can', () => {
    const status = statusOf({ outcome: { ...refused, retryAfterUs: -1 } });
    expect(status).to.include({ code: 2, secondsUntilReset: 30 });
  });

  it('shows the reset of a shadow rule that is over, and OK', () => {
    const limits = [limitDecision({ role: 'shadow', outcome: refused })];
    const { statuses } = respond([descriptorDecision({ limits, overLimit: false })]);
    expect(statuses[0]).to.include({ code: 1, limitRemaining: 0, secondsUntilReset: 30 });
  });

  describe('of several limits', () => {
    const named = (name: string, outcome: LimitFields['outcome']): LimitFields => ({
      limit: limitOf({ name }),
      outcome: outcome ?? {},
    });
    const chosen = (...limits: LimitFields[]): string | undefined =>
      statusOf(...limits)?.currentLimit?.name;

    it('shows the one with the least remaining, the first on a tie', () => {
      expect(
        chosen(
          named('a', { remaining: 5 }),
          named('b', { remaining: 3 }),
          named('c', { remaining: 3 }),
        ),
      ).to.equal('b');
    });

    it('shows a refused one before one with nothing left', () => {
      expect(chosen(named('a', { remaining: 0 }), named('b', refused))).to.equal('b');
    });

    it('says that nothing is left for hits that do not fit, though fewer would', () => {
      expect(statusOf({ outcome: { ...refused, remaining: 2 } })?.limitRemaining).to.equal(0);
    });

    it('shows the refused one with the longest wait, and "never" is longest', () => {
      const never = { ...refused, retryAfterUs: -1 };
      const long = { ...refused, retryAfterUs: 50_000_000 };
      expect(chosen(named('a', refused), named('b', long))).to.equal('b');
      expect(chosen(named('a', long), named('b', never), named('c', never))).to.equal('b');
    });
  });

  describe('answered by policy', () => {
    for (const source of ['allow', 'local'] as const) {
      it(`shows no limit when ${source} passes`, () => {
        expect(statusOf({ source, outcome: { remaining: 0, resetUs: 0 } })).to.deep.equal({
          code: 1,
          currentLimit: undefined,
          limitRemaining: 0,
          secondsUntilReset: 0,
        });
      });
    }

    for (const source of ['deny', 'local'] as const) {
      it(`shows no limit and one second when ${source} refuses`, () => {
        expect(statusOf({ source, outcome: { ...refused, retryAfterUs: 0 } })).to.deep.equal({
          code: 2,
          currentLimit: undefined,
          limitRemaining: 0,
          secondsUntilReset: 1,
        });
      });
    }

    it('hides the limits that the store answered beside it, while all fit', () => {
      const status = statusOf({ outcome: { remaining: 3 } }, { source: 'allow' });
      expect(status?.currentLimit).to.equal(undefined);
    });
  });

  describe('of a limit that is not disclosed', () => {
    it('tells a coarse duration under `limit`, whether it fits or not', () => {
      const limit = limitOf({ disclose: 'limit' });
      const hidden = { currentLimit: undefined, limitRemaining: 0 };
      expect(statusOf({ limit, outcome: { resetUs: 31_000_000 } })).to.deep.equal({
        ...hidden,
        code: 1,
        secondsUntilReset: 36,
      });
      const outcome = { fits: false, retryAfterUs: 1000, resetUs: 31_000_000 };
      expect(statusOf({ limit, outcome })).to.deep.equal({
        ...hidden,
        code: 2,
        secondsUntilReset: 6,
      });
    });

    it('tells nothing under `none`, but a second when refused', () => {
      const limit = limitOf({ disclose: 'none' });
      expect(statusOf({ limit })).to.include({ limitRemaining: 0, secondsUntilReset: 0 });
      expect(statusOf({ limit, outcome: refused })).to.include({ code: 2, secondsUntilReset: 1 });
      expect(statusOf({ limit, outcome: refused })?.currentLimit).to.equal(undefined);
    });
  });

  it('stands for each descriptor in order', () => {
    const { statuses, overallCode } = respond([
      descriptorDecision({ limits: [limitDecision()] }),
      descriptorDecision(),
      descriptorDecision({ limits: [limitDecision({ outcome: refused })] }),
    ]);
    expect(statuses.map(({ code }) => code)).to.deep.equal([1, 1, 2]);
    expect(overallCode).to.equal(2);
  });

  it('may say OVER_LIMIT while the whole is OK', () => {
    const over = descriptorDecision({
      limits: [limitDecision({ role: 'quota', outcome: refused })],
    });
    const { overallCode, statuses } = respond([over], { allowed: true });
    expect([overallCode, statuses[0]?.code]).to.deep.equal([1, 2]);
  });
});

describe("headers in Envoy's answer", () => {
  function headersOf(
    descriptors: Descriptors,
    fields: Parameters<typeof decisionOf>[1] = {},
    names: Partial<HeaderNames> = {},
  ): Record<string, string> {
    const { headers } = respond(descriptors, fields, { headers: { ...HEADERS, ...names } });
    return Object.fromEntries(headers.map(({ key, value }) => [key, value]));
  }
  const with_ = (fields: LimitFields): Descriptors[number] =>
    descriptorDecision({ limits: [limitDecision(fields)] });

  it('are absent unless switched on', () => {
    expect(respond([with_({})]).headers).to.deep.equal([]);
  });

  it('speak of the descriptor with the least left, the first on a tie', () => {
    const descriptors = [
      with_({ limit: limitOf({ requests: 5 }), outcome: { remaining: 4 } }),
      with_({ limit: limitOf({ requests: 3 }), outcome: { remaining: 2 } }),
      with_({ limit: limitOf({ requests: 2 }), outcome: { remaining: 2 } }),
      descriptorDecision(),
      descriptorDecision({ unlimited: true }),
    ];
    expect(headersOf(descriptors)).to.deep.equal({
      'RateLimit-Limit': '3',
      'RateLimit-Remaining': '2',
      'RateLimit-Reset': '30',
    });
  });

  it('speak of the last that is over, whatever is left elsewhere', () => {
    const descriptors = [
      with_({ limit: limitOf({ requests: 1 }), outcome: refused }),
      with_({ limit: limitOf({ requests: 2 }), outcome: { ...refused, retryAfterUs: 7_000_000 } }),
      with_({ limit: limitOf({ requests: 3 }), outcome: { remaining: 0 } }),
    ];
    expect(headersOf(descriptors)).to.deep.equal({
      'RateLimit-Limit': '2',
      'RateLimit-Remaining': '0',
      'RateLimit-Reset': '7',
      'Retry-After': '20',
    });
  });

  it('do not take a quota that is over for more than nothing left', () => {
    const descriptors = [
      with_({ limit: limitOf({ requests: 1 }), outcome: { remaining: 0 } }),
      descriptorDecision({
        rule: ruleOf({ quota: true }),
        limits: [
          limitDecision({ limit: limitOf({ requests: 2 }), role: 'quota', outcome: refused }),
        ],
      }),
    ];
    expect(headersOf(descriptors, { allowed: true })['RateLimit-Limit']).to.equal('1');
  });

  it('do not do so either where SHADOW_MODE, or a quota with room, makes it a shadow', () => {
    const shadow = (requests: number, quota: boolean): Descriptors[number] =>
      descriptorDecision({
        rule: ruleOf({ quota }),
        limits: [limitDecision({ limit: limitOf({ requests }), role: 'shadow', outcome: refused })],
      });
    const limitIn = (descriptors: Descriptors, quotaMode: boolean): string | undefined =>
      respond(descriptors, { allowed: true }, { headers: HEADERS, quotaMode }).headers[0]?.value;
    expect(limitIn([shadow(1, true), shadow(2, true)], false)).to.equal('1');
    expect(limitIn([shadow(1, false), shadow(2, false)], true)).to.equal('1');
    expect(limitIn([shadow(1, false), shadow(2, false)], false)).to.equal('2');
  });

  it('do not ask to wait for a quota that cannot refuse', () => {
    const descriptors = [
      with_({ outcome: { ...refused, retryAfterUs: 3_000_000 } }),
      with_({ role: 'shadow', outcome: { ...refused, retryAfterUs: 90_000_000 } }),
    ];
    expect(headersOf(descriptors)['Retry-After']).to.equal('3');
  });

  it('ask to wait until the first quota has room', () => {
    const quota = (seconds: number): Descriptors[number] =>
      with_({ role: 'quota', outcome: { ...refused, retryAfterUs: seconds * 1_000_000 } });
    expect(headersOf([quota(9), quota(4), quota(6)])['Retry-After']).to.equal('4');
  });

  it('have no Retry-After where SHADOW_MODE passes what is over', () => {
    const over = with_({ role: 'shadow', outcome: refused });
    expect(headersOf([over], { allowed: true })).to.not.have.property('Retry-After');
  });

  it('leave out a header without name', () => {
    const names = { retryAfter: '', remaining: 'X-Left' };
    expect(headersOf([with_({ outcome: refused })], {}, names)).to.deep.equal({
      'RateLimit-Limit': '10',
      'X-Left': '0',
      'RateLimit-Reset': '20',
    });
  });

  it('tell no more than the limit discloses, and nothing of another instead', () => {
    const open = with_({ outcome: { remaining: 8 } });
    const tight = (disclose: 'limit' | 'none'): Descriptors[number] =>
      with_({ limit: limitOf({ requests: 2, disclose }), outcome: { remaining: 1 } });
    expect(headersOf([open, tight('limit')])).to.deep.equal({
      'RateLimit-Limit': '2',
      'RateLimit-Reset': '30',
    });
    expect(headersOf([open, tight('none')])).to.deep.equal({});
  });

  it('bring only Retry-After when a policy refused', () => {
    expect(headersOf([with_({ source: 'deny', outcome: refused })])).to.deep.equal({
      'Retry-After': '1',
    });
  });
});

describe("dynamic metadata in Envoy's answer", () => {
  function metadataOf(descriptors: Descriptors, wire: Partial<EnvoyRequest> = {}): unknown {
    const response = toResponse(
      decisionOf(descriptors),
      { ...WIRE, ...wire },
      { headers: undefined, dynamicMetadata: true },
    );
    return JSON.parse(JSON.stringify(response.dynamicMetadata));
  }
  const withMetadata = (metadata: JsonObject, fields = {}): Descriptors[number] =>
    descriptorDecision({ rule: ruleOf({ metadata }), ...fields });

  it('is absent unless switched on', () => {
    expect(respond([descriptorDecision()]).dynamicMetadata).to.equal(undefined);
  });

  it('repeats the request', () => {
    const descriptor = {
      ...descriptorOf(['plain', 'p'], ['x', '']),
      hits: 3,
      giveBack: true,
      override: { requests: 5, unit: 'day' as const },
    };
    const descriptors = [descriptorDecision({ descriptor }), descriptorDecision()];
    expect(metadataOf(descriptors, { hitsAddend: 2 })).to.deep.equal({
      domain: 'shop',
      hitsAddend: 2,
      descriptors: [
        {
          entries: ['plain=p', 'x='],
          limit: { requestsPerUnit: 5, unit: 'DAY' },
          hitsAddend: 3,
          isNegativeHits: true,
        },
        { entries: ['user=42'] },
      ],
    });
  });

  it('merges maps of the rules that passed, the first wins otherwise', () => {
    const one = { pick: { name: 'one', zone: 'za' }, same: 1 };
    const two = { pick: { name: 'two', tier: 2 }, same: 2, list: ['a', { b: true }], none: null };
    const descriptors = [withMetadata(one), withMetadata(two, { unlimited: true })];
    expect(metadataOf(descriptors)).to.have.deep.property('metadata', {
      pick: { name: 'one', zone: 'za', tier: 2 },
      same: 1,
      list: ['a', { b: true }],
      none: null,
    });
    expect(one).to.deep.equal({ pick: { name: 'one', zone: 'za' }, same: 1 });
  });

  it('leaves out rules that are over, and keeps shadow rules', () => {
    const limits = [limitDecision({ outcome: refused })];
    expect(metadataOf([withMetadata({ a: 1 }, { limits })])).to.not.have.property('metadata');
    const shadow = withMetadata({ a: 1 }, { limits, overLimit: false });
    expect(metadataOf([shadow])).to.have.deep.property('metadata', { a: 1 });
  });

  it('takes `__proto__` for a key like any other', () => {
    const evil = JSON.parse(
      '{"__proto__": {"polluted": true}, "a": {"__proto__": {"b": 1}}}',
    ) as JsonObject;
    const response = JSON.stringify(metadataOf([withMetadata(evil), withMetadata(evil)]));
    expect(response).to.include(
      '"metadata":{"__proto__":{"polluted":true},"a":{"__proto__":{"b":1}}}',
    );
    expect(({} as Record<string, unknown>)['polluted']).to.equal(undefined);
  });

  it('shows secrets as their digest', () => {
    const rule = ruleOf({ chain: [ruleOf(), ruleOf({ hashValue: true })] });
    const descriptor = descriptorOf(['user', 'u'], ['token', 'secret'], ['api_key', 'secret']);
    expect(metadataOf([descriptorDecision({ rule, descriptor })])).to.have.deep.property(
      'descriptors',
      [{ entries: ['user=u', 'token=K7gNU3sdo-OL0wNhqoVWhr', 'api_key=K7gNU3sdo-OL0wNhqoVWhr'] }],
    );
  });
});
