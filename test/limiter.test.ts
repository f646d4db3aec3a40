import { expect } from 'chai';
import { loadConfig } from '../src/config/load.js';
import { RequestError, createLimiter } from '../src/limiter.js';
import type { Limiter, LimiterOptions } from '../src/limiter.js';
import type { Decision, DecisionRequest, Descriptor, Snapshot } from '../src/model.js';
import { CounterKeys } from '../src/store/keys.js';
import { MemoryStore } from '../src/store/memory.js';
import { StoreError } from '../src/store/store.js';
import type { Gate, StoreRequest } from '../src/store/store.js';
import { CountingObserver } from './support/scripted-store.js';

const NOW_US = 1_800_000_000_000_000;

/** `endpoint=/pay,user=42` with what else a descriptor may carry. */
function descriptor(text: string, more: Partial<Descriptor> = {}): Descriptor {
  const entries = text.split(',').map((pair) => {
    const [key = '', value = ''] = pair.split('=');
    return { key, value };
  });
  return { entries, override: undefined, hits: undefined, giveBack: false, ...more };
}

function request(
  descriptors: readonly Descriptor[],
  more: Partial<DecisionRequest> = {},
): DecisionRequest {
  return { domain: 'shop', descriptors, hits: 1, mode: undefined, ...more };
}

interface Bench {
  readonly limiter: Limiter;
  /** Requests that reached the store. */
  readonly asked: StoreRequest[];
  /** While set, the store fails so. */
  failure: StoreError | undefined;
  decide(...descriptors: (string | Descriptor)[]): Decision;
  decideRequest(request: DecisionRequest): Decision;
}

function snapshotOf(rules: string): Snapshot {
  const text = `domain: shop\ndescriptors:\n${rules}`;
  return loadConfig([{ name: 'shop.yaml', text }], {
    mergeDomains: false,
    defaultOnStoreError: 'allow',
    generation: 1,
    nowMs: 0,
  }).snapshot;
}

function bench(rules: string, options: Partial<LimiterOptions> = {}): Bench {
  const snapshot = snapshotOf(rules);
  const nowUs = (): number => NOW_US;
  const observer = new CountingObserver();
  const store = new MemoryStore({ nowUs, observer });
  const asked: StoreRequest[] = [];
  const gate: Gate = {
    submit(asking) {
      asked.push(asking);
      if (self.failure === undefined) store.decide([asking], () => undefined);
      else asking.fail(self.failure);
    },
  };
  const limiter = createLimiter({
    snapshot: () => snapshot,
    keys: new CounterKeys(''),
    gate,
    fallback: new MemoryStore({ nowUs, observer }),
    instances: () => 1,
    nowUs,
    shadowMode: false,
    quotaMode: false,
    stopIncrement: undefined,
    defaultOnStoreError: 'allow',
    ...options,
  });
  const self: Bench = {
    limiter,
    asked,
    failure: undefined,
    decide: (...descriptors) =>
      self.decideRequest(
        request(descriptors.map((d) => (typeof d === 'string' ? descriptor(d) : d))),
      ),
    decideRequest: (asking) => {
      const answers: Decision[] = [];
      limiter.decide(asking, Infinity, (decision) => answers.push(decision));
      expect(answers).to.have.length(1);
      return answers[0] as Decision;
    },
  };
  return self;
}

/** What a caller sees of each descriptor: `OK 4`, `OVER 0`, `-` where nothing limits it. */
function view(decision: Decision): string {
  const parts = decision.descriptors.map(({ limits, overLimit, unlimited }) => {
    if (limits.length === 0) return unlimited ? 'unlimited' : '-';
    const left = Math.min(...limits.map(({ outcome }) => outcome.remaining));
    return `${overLimit ? 'OVER' : 'OK'} ${String(left)}`;
  });
  return `${decision.allowed ? 'allowed' : 'refused'}: ${parts.join(', ')}`;
}

const USER_2 = '  - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}\n';

describe('limiter', () => {
  it('admits as many as the limit says, for each value', () => {
    const { decide } = bench(USER_2);
    expect(['a', 'a', 'a', 'b'].map((u) => view(decide(`user=${u}`)))).to.deep.equal([
      'allowed: OK 1',
      'allowed: OK 0',
      'refused: OVER 0',
      'allowed: OK 1',
    ]);
  });

  it('asks no store about what nothing limits', () => {
    const b = bench('  - {key: free, rate_limit: {unlimited: true}}\n');
    expect(view(b.decide('free=x', 'nope=x'))).to.equal('allowed: unlimited, -');
    expect(b.asked).to.have.length(0);
  });

  it('limits the rest of a request that is unlimited in part', () => {
    const b = bench('  - {key: free, rate_limit: {unlimited: true}}\n' + USER_2);
    expect(Array.from({ length: 3 }, () => view(b.decide('free=x', 'user=a')))).to.deep.equal([
      'allowed: unlimited, OK 1',
      'allowed: unlimited, OK 0',
      'refused: unlimited, OVER 0',
    ]);
  });

  it('answers by one snapshot throughout, though another comes while the store is asked', () => {
    const limits = (user: number, ip: number): Snapshot =>
      snapshotOf(
        ['user', 'ip']
          .map(
            (key, i) =>
              `  - {key: ${key}, rate_limit: {unit: hour, requests_per_unit: ${[user, ip][i] ?? 0}}}\n`,
          )
          .join(''),
      );
    const [a, b] = [limits(1, 1000), limits(1000, 1)];
    let snapshot = a;
    const waiting: StoreRequest[] = [];
    const held = bench('', {
      snapshot: () => snapshot,
      gate: { submit: (asked) => waiting.push(asked) },
    });
    const answers: Decision[] = [];
    const ask = (): void => {
      const both = request(['user=x', 'ip=y'].map((text) => descriptor(text)));
      held.limiter.decide(both, Infinity, (decision) => answers.push(decision));
    };
    ask();
    snapshot = b;
    ask();
    for (const asked of waiting.reverse()) asked.fail(new StoreError('connection', 'as it says'));
    expect(
      answers.map((decision) => [
        decision.snapshot === a,
        ...decision.descriptors.map(({ limits: [one] }) => one?.charge.limit.requests),
      ]),
    ).to.deep.equal([
      [false, 1000, 1],
      [true, 1, 1000],
    ]);
  });

  it('allows an unknown domain, and ignores what it brings', () => {
    const b = bench(USER_2);
    const override = { requests: 0, unit: 'hour' } as const;
    const decision = b.decideRequest(
      request([descriptor('user=a', { override })], { domain: 'elsewhere' }),
    );
    expect(view(decision)).to.equal('allowed: -');
    expect(decision.domainKnown).to.equal(false);
  });

  it('throws while no configuration is loaded', () => {
    const b = bench(USER_2, { snapshot: (): Snapshot | undefined => undefined });
    expect(() => b.decide('user=a'))
      .to.throw(RequestError)
      .with.property('code', 'failed_precondition');
  });

  it('takes nothing from any limit when one of them refuses', () => {
    const b = bench(
      USER_2 + '  - {key: site, rate_limit: {unit: minute, requests_per_unit: 100}}\n',
    );
    for (let i = 0; i < 5; i++) b.decide('user=a', 'site=s');
    expect(view(b.decide('site=s'))).to.equal('allowed: OK 97');
  });

  it('enforces several windows of one rule together, each with its own counter', () => {
    const b = bench(
      '  - key: user\n    rate_limits:\n' +
        '      - {unit: second, requests_per_unit: 2}\n' +
        '      - {unit: day, requests_per_unit: 3}\n',
    );
    b.decide('user=a');
    b.decide('user=a');
    const decision = b.decide('user=a');
    expect(decision.descriptors[0]?.limits.map((l) => l.outcome.fits)).to.deep.equal([false, true]);
    expect(decision.descriptors[0]?.limits.map((l) => l.outcome.remaining)).to.deep.equal([0, 1]);
  });

  describe('replaces', () => {
    const RULES =
      '  - {key: a, rate_limit: {name: cap, unit: hour, requests_per_unit: 0}}\n' +
      '  - {key: b, rate_limit: {replaces: [{name: cap}], unit: hour, requests_per_unit: 3}}\n';

    it('drops the named limit from the same request, in any order', () => {
      const b = bench(RULES);
      expect(view(b.decide('a=1', 'b=1'))).to.equal('allowed: -, OK 2');
      expect(view(b.decide('b=1', 'a=1'))).to.equal('allowed: OK 1, -');
      expect(view(b.decide('a=1'))).to.equal('refused: OVER 0');
    });

    it('does not come from a descriptor that brings its own limit', () => {
      const override = { requests: 8, unit: 'hour' } as const;
      const decision = bench(RULES).decide('a=1', descriptor('b=1', { override }));
      expect(view(decision)).to.equal('refused: OVER 0, OK 8');
    });
  });

  describe('shadow mode', () => {
    it('never refuses, and does not keep other limits from being reached', () => {
      const b = bench(
        '  - {key: trial, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}\n' +
          '  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n',
      );
      const seen = Array.from({ length: 7 }, () => b.decide('trial=t', 'user=a').allowed);
      expect(seen).to.deep.equal([true, true, true, true, true, false, false]);
      expect(view(b.decide('trial=t'))).to.equal('allowed: OK 0');
    });

    it('of the whole service refuses nothing, while statuses still tell', () => {
      const b = bench(USER_2, { shadowMode: true });
      for (let i = 0; i < 2; i++) b.decide('user=a');
      expect(view(b.decide('user=a'))).to.equal('allowed: OVER 0');
    });
  });

  describe('quota mode', () => {
    const POOL =
      '  - {key: pool, value: e, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n' +
      '  - {key: pool, value: w, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}\n';

    it('refuses only when no quota of the request has room', () => {
      const b = bench(POOL);
      const seen = Array.from({ length: 4 }, () => view(b.decide('pool=e', 'pool=w')));
      expect(seen).to.deep.equal([
        'allowed: OK 0, OK 2',
        'allowed: OVER 0, OK 1',
        'allowed: OVER 0, OK 0',
        'refused: OVER 0, OVER 0',
      ]);
    });

    it('of a rule takes no account of unmatched descriptors; of the whole service it does', () => {
      const exhausted = (b: Bench): string => {
        b.decide('pool=e');
        return view(b.decide('pool=e', 'nope=x'));
      };
      expect(exhausted(bench(POOL))).to.equal('refused: OVER 0, -');
      expect(exhausted(bench(POOL, { quotaMode: true }))).to.equal('allowed: OVER 0, -');
    });

    it('of the whole service does refuse where unmatched descriptors are only candidates', () => {
      const b = bench(POOL, { quotaMode: true });
      const both = [descriptor('pool=e'), descriptor('nope=x')];
      const ask = (): string => view(b.decideRequest(request(both, { candidates: true })));
      expect([ask(), ask()]).to.deep.equal(['allowed: OK 0', 'refused: OVER 0']);
    });

    it('always has room in a rule that is in shadow mode too', () => {
      const b = bench(
        POOL +
          '  - {key: s, quota_mode: true, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}\n',
      );
      b.decide('pool=e');
      expect(view(b.decide('pool=e', 's=1'))).to.equal('allowed: OVER 0, OK 0');
    });

    it('does not hold for a limit that the request brings', () => {
      const override = { requests: 0, unit: 'hour' } as const;
      const decision = bench(POOL).decide(descriptor('pool=e', { override }), 'pool=w');
      expect(view(decision)).to.equal('refused: OVER 0, OK 3');
    });
  });

  describe('a limit that the request brings', () => {
    it('replaces number and unit of the rule, and counts with it', () => {
      const b = bench('  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}\n');
      for (let i = 0; i < 3; i++) b.decide('user=a');
      const override = { requests: 5, unit: 'hour' } as const;
      expect(view(b.decide(descriptor('user=a', { override })))).to.equal('allowed: OK 1');
      expect(view(b.decide('user=a'))).to.equal('allowed: OK 5');
    });

    it('keeps the algorithm, save that a large one is not an exact log', () => {
      const b = bench(
        '  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: sliding_window}}\n',
      );
      const algorithmOf = (requests: number): string | undefined =>
        b.decide(descriptor('user=a', { override: { requests, unit: 'day' } })).descriptors[0]
          ?.limits[0]?.charge.limit.algorithm;
      expect(algorithmOf(10_000)).to.equal('sliding_window');
      expect(algorithmOf(10_001)).to.equal('sliding_window_counter');
    });

    it('counts real values, not the wildcard that a rule shares', () => {
      const b = bench(
        '  - {key: m, value: "m-*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}\n',
      );
      const override = { requests: 4, unit: 'hour' } as const;
      b.decide(descriptor('m=m-1', { override }));
      expect(view(b.decide(descriptor('m=m-2', { override })))).to.equal('allowed: OK 3');
      expect(view(b.decide('m=m-3'))).to.equal('allowed: OK 9');
    });
  });

  describe('hits that count when refused', () => {
    const modeOf = (
      rateLimit: string,
      options: Partial<LimiterOptions>,
      asking: DecisionRequest,
    ): string | undefined => {
      const b = bench(
        `  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5${rateLimit}}}\n`,
        options,
      );
      b.decideRequest(asking);
      return b.asked[0]?.charges[0]?.mode;
    };
    const plain = request([descriptor('user=a')]);
    const named = request([descriptor('user=a', { hits: 2 })]);

    it("follow the call's own mode before everything else", () => {
      const always = ', count_rejected: true';
      expect(modeOf(always, {}, { ...plain, mode: 'take' })).to.equal('take');
      expect(modeOf('', { stopIncrement: true }, { ...plain, mode: 'record' })).to.equal('record');
      expect(modeOf('', {}, { ...plain, mode: 'peek' })).to.equal('peek');
    });

    it('then the rule', () => {
      expect(modeOf(', count_rejected: true', { stopIncrement: true }, plain)).to.equal('record');
      expect(modeOf(', count_rejected: false', { stopIncrement: false }, named)).to.equal('take');
    });

    it('then the setting', () => {
      expect(modeOf('', { stopIncrement: true }, named)).to.equal('take');
      expect(modeOf('', { stopIncrement: false }, plain)).to.equal('record');
    });

    it('else count when the descriptor names them', () => {
      expect(modeOf('', {}, named)).to.equal('record');
      expect(modeOf('', {}, plain)).to.equal('take');
    });

    it('are a look when there are none, and given back when it says so', () => {
      expect(modeOf('', {}, request([descriptor('user=a', { hits: 0 })]))).to.equal('peek');
      const back = request([descriptor('user=a', { hits: 3, giveBack: true })]);
      expect(modeOf('', {}, back)).to.equal('give_back');
    });

    it('empty a budget that is charged afterwards', () => {
      const b = bench('  - {key: user, rate_limit: {unit: hour, requests_per_unit: 10}}\n');
      expect(view(b.decide(descriptor('user=a', { hits: 0 })))).to.equal('allowed: OK 10');
      b.decide(descriptor('user=a', { hits: 25 }));
      expect(view(b.decide(descriptor('user=a', { hits: 0 })))).to.equal('refused: OVER 0');
    });
  });

  describe('when the store does not answer', () => {
    const rule = (policy: string, more = ''): string =>
      `  - {key: ${policy}, rate_limit: {unit: minute, requests_per_unit: 4, on_store_error: ${policy}${more}}}\n`;
    const down = new StoreError('connection', 'as the test says');
    const failing = (rules: string, options: Partial<LimiterOptions> = {}): Bench => {
      const b = bench(rules, options);
      b.failure = down;
      return b;
    };

    it('lets pass, refuses or counts itself, as each limit says', () => {
      const b = failing(rule('allow') + rule('deny') + rule('local'));
      const five = (what: string): boolean[] =>
        Array.from({ length: 5 }, () => b.decide(`${what}=x`).allowed);
      expect(five('allow')).to.deep.equal([true, true, true, true, true]);
      expect(five('deny')).to.deep.equal([false, false, false, false, false]);
      expect(five('local')).to.deep.equal([true, true, true, true, false]);
    });

    it('refuses what has a limit of 0 whatever the policy, and lets look and give back', () => {
      const policies = ['allow', 'deny', 'local'];
      const b = failing(policies.map((policy) => rule(policy).replace('4', '0')).join(''));
      const asked = (policy: string, more: Partial<Descriptor>): string => {
        const decision = b.decide(descriptor(`${policy}=x`, more));
        return `${decision.allowed ? 'passes' : 'refused'} by ${decision.descriptors[0]?.limits[0]?.source ?? ''}`;
      };
      const told = policies.map((policy) => [
        asked(policy, {}),
        asked(policy, { hits: 3 }),
        asked(policy, { hits: 0 }),
        asked(policy, { hits: 3, giveBack: true }),
      ]);
      const refused = ['refused by deny', 'refused by deny'];
      expect(told).to.deep.equal([
        [...refused, 'passes by allow', 'passes by allow'],
        [...refused, 'refused by deny', 'refused by deny'],
        [...refused, 'passes by local', 'passes by local'],
      ]);
    });

    it('says that the answer is a policy, and which', () => {
      const decision = failing(rule('deny')).decide('deny=x');
      expect(decision.degraded).to.equal(true);
      expect(decision.descriptors[0]?.limits[0]).to.deep.include({
        source: 'deny',
        outcome: {
          fits: false,
          taken: false,
          remaining: 0,
          resetUs: 1_000_000,
          retryAfterUs: 1_000_000,
        },
      });
    });

    it('refuses when one of several policies does, and takes nothing locally then', () => {
      const b = failing(rule('local') + rule('deny') + rule('allow'));
      for (let i = 0; i < 9; i++) {
        expect(b.decide('allow=x', 'local=x', 'deny=x').allowed).to.equal(false);
      }
      expect(view(b.decide('local=x'))).to.equal('allowed: OK 3');
    });

    it('takes nothing locally either when no quota has room', () => {
      const quota =
        '  - {key: pool, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 4, on_store_error: deny}}\n';
      const b = failing(quota + rule('local'));
      expect(b.decide('pool=x', 'local=x').allowed).to.equal(false);
      expect(view(b.decide('local=x'))).to.equal('allowed: OK 3');
    });

    it('shares a limit out among the live instances, at least 1 each', () => {
      const admitted = (instances: number): number => {
        const b = failing(rule('local'), { instances: () => instances });
        return Array.from({ length: 9 }, () => b.decide('local=x')).filter((d) => d.allowed).length;
      };
      expect([1, 2, 3, 100].map(admitted)).to.deep.equal([4, 2, 1, 1]);
    });

    it('never refuses a shadow rule', () => {
      const b = failing(
        '  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1, on_store_error: deny}}\n',
      );
      expect(view(b.decide('s=x'))).to.equal('allowed: OK 0');
    });
  });
});
