/**
 * Server reflection: the .proto files as descriptors, under their true names and paths, so that tools
 * can call the services without having the files.
 */
import { EventEmitter } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { status, type ServiceDefinition } from '@grpc/grpc-js';
import type { PackageDefinition } from '@grpc/proto-loader';
import { ReflectionService } from '@grpc/reflection';
import protobuf from 'protobufjs';
import descriptor from 'protobufjs/ext/descriptor/index.js';
import type { StreamingMethod } from './calls.js';

/** The files that hold a service of ours; what they import comes along. */
const SERVICE_FILES = [
  'envoy/service/ratelimit/v3/rls.proto',
  'weir/v1/rate_limiter.proto',
  'grpc/health/v1/health.proto',
] as const;

/** Where the .proto files are: beside the compiled code, or beside the source. */
export function protoRoot(): string {
  const here = path.dirname(fileURLToPath(import.meta.url));
  const beside = path.join(here, '..', 'proto');
  return existsSync(beside) ? beside : path.join(here, '..', '..', 'proto');
}

/** grpc.reflection.v1 and v1alpha, by path. Throws when the .proto files are not there. */
export function reflectionMethods(): ReadonlyMap<string, StreamingMethod> {
  const fileDescriptorProtos = describeFiles(protoRoot());
  // Of a definition, reflection reads this one member; the loader's own merges files by package.
  const definition = { all: { fileDescriptorProtos } } as unknown as PackageDefinition;
  const methods = new Map<string, StreamingMethod>();
  const server = {
    addService: (service: ServiceDefinition, handlers: Readonly<Record<string, Handler>>) => {
      for (const [name, method] of Object.entries(service)) {
        const handler = handlers[name];
        if (handler !== undefined) methods.set(method.path, methodOf(handler, method));
      }
    },
  };
  // Of a server, it uses this one method.
  new ReflectionService(definition).addToServer(server);
  return methods;
}

/** As the library has a call of many messages; of its stream, reflection uses no more than this. */
type Handler = (stream: EventEmitter) => void;

function methodOf(handler: Handler, method: ServiceDefinition[string]): StreamingMethod {
  return (call) => {
    const stream = Object.assign(new EventEmitter(), {
      write: (message: unknown) => {
        call.write(method.responseSerialize(message));
      },
      end: () => {
        call.end();
      },
    });
    handler(stream);
    return {
      message: (bytes) => {
        let request: unknown;
        try {
          request = method.requestDeserialize(bytes);
        } catch {
          call.fail(status.INTERNAL, 'malformed message');
          return;
        }
        stream.emit('data', request);
      },
      ended: () => stream.emit('end'),
      closed: () => undefined,
    };
  };
}

/** A FileDescriptorProto for each service's file and all that they import. */
export function describeFiles(root: string): Buffer[] {
  const described = new Map<string, Buffer>();
  const visit = (name: string): void => {
    if (described.has(name)) return;
    const known = protobuf.common.get(name);
    const imports = known === null ? importsOf(path.join(root, name)) : [];
    const parsed = known === null ? loadFile(root, name) : protobuf.Root.fromJSON(known);
    described.set(name, encodeFile(parsed, name, imports));
    imports.forEach(visit);
  };
  SERVICE_FILES.forEach(visit);
  return [...described.values()];
}

function importsOf(file: string): readonly string[] {
  const { imports } = protobuf.parse(readFileSync(file, 'utf8'), { keepCase: true });
  return imports ?? [];
}

function loadFile(root: string, name: string): protobuf.Root {
  const loaded = new protobuf.Root();
  loaded.resolvePath = (_origin, target) =>
    protobuf.common.get(target) === null ? path.join(root, target) : target;
  return loaded.loadSync(name, { keepCase: true });
}

/** The library makes one file of each package; each of ours has one file only, which gets its name back. */
function encodeFile(parsed: protobuf.Root, name: string, imports: readonly string[]): Buffer {
  parsed.resolveAll();
  const wanted = path.dirname(name).replaceAll('/', '.');
  const file = parsed.toDescriptor('proto3').file.find((f) => f.package === wanted);
  if (file === undefined) throw new Error(`${name}: declares another package than ${wanted}`);
  for (const message of file.messageType ?? []) {
    markOptional(message);
    nameMapEntries(message);
  }
  const described: descriptor.IFileDescriptorProto = {
    ...file,
    name,
    dependency: imports,
    syntax: 'proto3',
  };
  return Buffer.from(descriptor.FileDescriptorProto.encode(described).finish());
}

/** An `optional` field has a oneof of its own, `_name`, and a mark that the library leaves out. */
function markOptional(message: descriptor.IDescriptorProto): void {
  for (const field of message.field ?? []) {
    const { oneofIndex } = field;
    if (
      oneofIndex === undefined ||
      message.oneofDecl?.[oneofIndex]?.name !== `_${field.name ?? ''}`
    )
      continue;
    Object.assign(field, { proto3Optional: true });
  }
  for (const nested of message.nestedType ?? []) markOptional(nested);
}

/**
 * A map is a list of messages that are nested under the name that the language prescribes:
 * `AttributesEntry` for `attributes`. The library leaves the `Entry` out, and readers in Go refuse that.
 */
function nameMapEntries(message: descriptor.IDescriptorProto): void {
  const nested = message.nestedType ?? [];
  for (const field of message.field ?? []) {
    const entry = nested.find((each) => each.name === field.typeName && each.options?.mapEntry);
    if (entry === undefined) continue;
    const words = (field.name ?? '').split('_');
    entry.name = `${words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('')}Entry`;
    field.typeName = entry.name;
  }
  nested.forEach(nameMapEntries);
}
