import { createRequire } from 'node:module';
import path from 'node:path';
import { credentials, loadPackageDefinition, type ClientDuplexStream } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { expect } from 'chai';
import descriptor from 'protobufjs/ext/descriptor/index.js';
import { Bench } from './grpc-client.js';

type Reflected = Record<string, unknown>;

/** One question to the server, over the published protocol. */
async function ask(port: number, version: 'v1' | 'v1alpha', request: object): Promise<Reflected> {
  const library = path.dirname(
    createRequire(import.meta.url).resolve('@grpc/reflection/package.json'),
  );
  const definition = loadSync(
    path.join(library, `build/proto/grpc/reflection/${version}/reflection.proto`),
    { keepCase: true, defaults: false },
  );
  const services = loadPackageDefinition(definition) as unknown as {
    grpc: {
      reflection: Record<
        string,
        {
          ServerReflection: new (...args: unknown[]) => {
            ServerReflectionInfo(): ClientDuplexStream<object, Reflected>;
            close(): void;
          };
        }
      >;
    };
  };
  const Client = services.grpc.reflection[version]?.ServerReflection;
  if (Client === undefined) throw new Error('no such version');
  const client = new Client(`127.0.0.1:${String(port)}`, credentials.createInsecure());
  const stream = client.ServerReflectionInfo();
  try {
    return await new Promise<Reflected>((resolve, reject) => {
      stream.on('data', resolve);
      stream.on('error', reject);
      stream.write(request);
    });
  } finally {
    stream.end();
    client.close();
  }
}

describe('reflection', () => {
  let bench: Bench;

  before(async () => {
    bench = await new Bench().start();
  });

  after(async () => {
    await bench.stop();
  });

  for (const version of ['v1', 'v1alpha'] as const) {
    it(`lists the services in ${version}`, async () => {
      const answer = await ask(bench.port, version, { list_services: '' });
      expect(answer['list_services_response']).to.deep.equal({
        service: [
          { name: 'envoy.service.ratelimit.v3.RateLimitService' },
          { name: 'weir.v1.RateLimiter' },
          { name: 'grpc.health.v1.Health' },
        ],
      });
    });
  }

  const files: readonly [string, string, readonly string[]][] = [
    [
      'envoy.service.ratelimit.v3.RateLimitService',
      'envoy/service/ratelimit/v3/rls.proto',
      [
        'envoy/config/core/v3/base.proto',
        'envoy/extensions/common/ratelimit/v3/ratelimit.proto',
        'google/protobuf/duration.proto',
        'google/protobuf/struct.proto',
        'google/protobuf/timestamp.proto',
      ],
    ],
    [
      'envoy.extensions.common.ratelimit.v3.RateLimitDescriptor',
      'envoy/extensions/common/ratelimit/v3/ratelimit.proto',
      ['envoy/type/v3/ratelimit_unit.proto', 'google/protobuf/wrappers.proto'],
    ],
    ['envoy.config.core.v3.HeaderValue', 'envoy/config/core/v3/base.proto', []],
    ['envoy.type.v3.RateLimitUnit', 'envoy/type/v3/ratelimit_unit.proto', []],
    [
      'weir.v1.RateLimiter',
      'weir/v1/rate_limiter.proto',
      ['google/protobuf/duration.proto', 'google/protobuf/timestamp.proto'],
    ],
  ];
  for (const [symbol, name, dependency] of files) {
    it(`finds ${symbol} in ${name}`, async () => {
      const answer = await ask(bench.port, 'v1', { file_containing_symbol: symbol });
      const { file_descriptor_proto: encoded } = answer['file_descriptor_response'] as {
        file_descriptor_proto: Buffer[];
      };
      const decoded = encoded.map(
        (bytes) => descriptor.FileDescriptorProto.decode(bytes) as descriptor.IFileDescriptorProto,
      );
      const found = decoded.find((file) => file.name === name);
      expect(found?.dependency).to.deep.equal(dependency);
    });
  }

  it('names the entries of a map as the language prescribes, or tools written in Go refuse them', async () => {
    const answer = await ask(bench.port, 'v1', { file_containing_symbol: 'weir.v1.RateLimiter' });
    const { file_descriptor_proto: encoded } = answer['file_descriptor_response'] as {
      file_descriptor_proto: Buffer[];
    };
    const message = encoded
      .map(
        (bytes) => descriptor.FileDescriptorProto.decode(bytes) as descriptor.IFileDescriptorProto,
      )
      .flatMap((file) => (file.package === 'weir.v1' ? (file.messageType ?? []) : []))
      .find((each) => each.name === 'Descriptor');
    expect(message?.nestedType?.map((nested) => nested.name)).to.deep.equal(['AttributesEntry']);
    expect(message?.field?.find((field) => field.name === 'attributes')?.typeName).to.equal(
      'AttributesEntry',
    );
  });
});
