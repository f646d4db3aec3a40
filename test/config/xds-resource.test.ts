import { expect } from 'chai';
import fc from 'fast-check';
import { loadConfig } from '../../src/config/load.js';
import { ConfigError } from '../../src/config/problems.js';
import { readResources } from '../../src/config/xds-resource.js';
import { loadXdsWire } from '../../src/config/xds-wire.js';
import { pack, TYPE_URL } from '../support/xds-server.js';

const wire = loadXdsWire();
const OPTIONS = {
  mergeDomains: false,
  defaultOnStoreError: 'allow',
  generation: 1,
  nowMs: 0,
} as const;

/** As Envoy's own control plane library writes it. */
const FROM_AN_EXISTING_SERVER =
  'CgRlZGdlEgRlZGdlGkMKBHVzZXISBHZpcCoaEQgHEKwCIgN2aXAqBQoDYWxsIgoKBHBhdGgaAhgBKAEwATgBQhAKDgoEdGllchIGGgRnb2xk';

function text(...resources: { type_url: string; value: Uint8Array }[]): string {
  const { files, problems } = readResources(wire, resources);
  return [...problems.map(({ message }) => message), ...files.map((file) => file.text)].join(
    '---\n',
  );
}

function names(...messages: object[]): string[] {
  const resources = messages.map((message) => pack(message));
  return readResources(wire, resources).files.map(({ name }) => name);
}

describe('resources of an xDS server', () => {
  it('say what the bytes of an existing server say', () => {
    const value = Buffer.from(FROM_AN_EXISTING_SERVER, 'base64');
    expect(text({ type_url: TYPE_URL, value })).to.equal(
      `domain: "edge"
descriptors:
  - key: "user"
    value: "vip*"
    rate_limit:
      unit: "week"
      requests_per_unit: 300
      name: "vip"
      replaces:
        - name: "all"
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    metadata: {"tier":"gold"}
    descriptors:
      - key: "path"
        rate_limit:
          unlimited: true
`,
    );
  });

  it('carry the fields that files have and existing servers lack', () => {
    const resource = pack({
      domain: 'd',
      descriptors: [
        {
          key: 'k',
          value: '*',
          value_to_metric: true,
          share_threshold: true,
          hash_value: true,
          rate_limits: [
            { unit: 'SECOND', requests_per_unit: 10, algorithm: 'token_bucket', burst: 20 },
            {
              unit: 'MINUTE',
              unit_multiplier: 5,
              requests_per_unit: 100,
              algorithm: 'sliding_window_counter',
              precision: '10s',
              on_store_error: 'deny',
              count_rejected: false,
              disclose: 'limit',
            },
          ],
        },
      ],
    });
    const { snapshot } = loadConfig(readResources(wire, [resource]).files, OPTIONS);
    const rule = snapshot.rules[0];
    expect(rule).to.include({ valueToMetric: true, shareThreshold: true, hashValue: true });
    expect(rule?.limits[0]).to.include({ algorithm: 'token_bucket', requests: 10, burst: 20 });
    expect(rule?.limits[1]).to.include({
      algorithm: 'sliding_window_counter',
      windowUs: 300_000_000,
      precisionUs: 10_000_000,
      onStoreError: 'deny',
      countRejected: false,
      disclose: 'limit',
    });
  });

  it('leave out a unit that is not known, and show one without a name', () => {
    const policy = { requests_per_unit: 1 };
    expect(text(pack({ domain: 'd', descriptors: [{ key: 'k', rate_limit: policy }] }))).to.equal(
      'domain: "d"\ndescriptors:\n  - key: "k"\n    rate_limit:\n      requests_per_unit: 1\n',
    );
    const unit9 = { ...policy, unit: 9 };
    expect(text(pack({ domain: 'd', descriptors: [{ key: 'k', rate_limit: unit9 }] }))).to.contain(
      'unit: "9"',
    );
  });

  it('say 0 and unlimited without raising doubt', () => {
    const rules = [
      { key: 'banned', rate_limit: { unit: 'DAY', requests_per_unit: 0 } },
      { key: 'free', rate_limit: { unlimited: true } },
    ];
    const { files } = readResources(wire, [pack({ domain: 'd', descriptors: rules })]);
    const { snapshot, warnings } = loadConfig(files, OPTIONS);
    expect(warnings).to.deep.equal([]);
    expect(snapshot.rules[0]?.limits[0]?.requests).to.equal(0);
    expect(snapshot.rules[1]?.unlimited).to.equal(true);
  });

  it('may be in an envelope', () => {
    const inner = pack({ domain: 'd' });
    const envelope = pack({ resource: inner }, 'envoy.service.discovery.v3.Resource');
    expect(text(envelope)).to.equal('domain: "d"\ndescriptors: []\n');
    expect(text(pack({}, 'envoy.service.discovery.v3.Resource'))).to.equal(
      'is an envelope without a resource',
    );
  });

  it('are named by themselves, else by their domain, else by their place, and told apart', () => {
    expect(
      names({ name: 'n', domain: 'd' }, { name: 'n' }, { domain: 'd' }, {}, { name: 'a\nb' }),
    ).to.deep.equal(['xds:#4', 'xds:a?b', 'xds:d', 'xds:n', 'xds:n#2']);
  });

  it('with a metadata of any shape keep it, except for numbers that JSON lacks', () => {
    const fields = {
      n: { numberValue: 1e21 },
      half: { numberValue: 0.5 },
      nan: { numberValue: NaN },
      none: { nullValue: 'NULL_VALUE' },
      list: { listValue: { values: [{ boolValue: true }, { stringValue: '2001-01-01' }] } },
      'a: b': { structValue: { fields: {} } },
    };
    const resource = pack({ domain: 'd', descriptors: [{ key: 'k', metadata: { fields } }] });
    const { snapshot } = loadConfig(readResources(wire, [resource]).files, OPTIONS);
    expect(snapshot.rules[0]?.metadata).to.deep.equal({
      n: 1e21,
      half: 0.5,
      nan: null,
      none: null,
      list: [true, '2001-01-01'],
      'a: b': {},
    });
  });

  it('that are nested too deeply are a problem', () => {
    let value: Buffer = pack({ domain: 'd' }).value;
    for (let depth = 0; depth < 5000; depth++) value = nested(depth === 4999 ? 3 : 4, value);
    const { problems } = readResources(wire, [{ type_url: TYPE_URL, value }]);
    expect(problems.map(({ message }) => message)).to.deep.equal([
      'cannot be decoded as ratelimit.config.ratelimit.v3.RateLimitConfig: maximum nesting depth exceeded',
    ]);
  });

  it('keep every text as it is', () => {
    const anyText = fc.string({ unit: 'binary', minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(anyText, anyText, anyText, (domain, key, word) => {
        const metadata = { fields: { [`k${word}`]: { stringValue: word } } };
        const descriptors = [{ key: `k${key}`, value: word, metadata }];
        const resource = pack({ domain, descriptors });
        const { snapshot } = loadConfig(readResources(wire, [resource]).files, OPTIONS);
        expect([...snapshot.domains]).to.deep.equal([domain]);
        expect(snapshot.rules[0]).to.include({ key: `k${key}`, value: word });
        expect(snapshot.rules[0]?.metadata).to.deep.equal({ [`k${word}`]: word });
      }),
      { numRuns: 300 },
    );
  });

  it('of any bytes are rules or problems, never anything else', () => {
    const good = Buffer.from(FROM_AN_EXISTING_SERVER, 'base64');
    const damaged = fc
      .array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { minLength: 1, maxLength: 8 })
      .map((changes) => {
        const bytes = Buffer.from(good);
        for (const [at, byte] of changes) bytes[at] = byte;
        return bytes;
      });
    const anyBytes = fc.oneof(fc.uint8Array({ maxLength: 64 }), damaged);
    let loaded = 0;
    let refused = 0;
    fc.assert(
      fc.property(fc.array(anyBytes, { maxLength: 3 }), (values) => {
        const reading = readResources(
          wire,
          values.map((value) => ({ type_url: TYPE_URL, value })),
        );
        expect(reading.files.length + reading.problems.length).to.equal(values.length);
        try {
          loadConfig(reading.files, OPTIONS);
          loaded++;
        } catch (error) {
          expect(error).to.be.instanceOf(ConfigError);
          refused++;
        }
      }),
      { numRuns: 2000 },
    );
    expect(Math.min(loaded, refused)).to.be.greaterThan(50);
  });
});

/** The bytes as field `number` of a message. */
function nested(number: number, bytes: Buffer): Buffer {
  const head = [(number << 3) | 2];
  let rest = bytes.length;
  for (; rest > 127; rest >>>= 7) head.push((rest & 127) | 128);
  return Buffer.concat([Buffer.from([...head, rest]), bytes]);
}
