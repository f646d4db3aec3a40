/**
 * The messages of an xDS server as bytes: the .proto files, loaded once, and the shapes that they give.
 * Owns encoding and decoding; knows no connection and not what rules mean.
 */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadSync, type MessageTypeDefinition, type PackageDefinition } from '@grpc/proto-loader';

/** The method that streams resources of any type. */
export const ADS_PATH =
  '/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources';

/** A subscription, or the word on one answer. Unset fields are left out. */
export interface DiscoveryRequest {
  readonly version_info: string;
  readonly node: XdsNode;
  readonly type_url: string;
  readonly response_nonce: string;
  readonly error_detail?: { readonly code: number; readonly message: string };
}

/** Who asks. */
export interface XdsNode {
  readonly id: string;
  readonly metadata: {
    readonly fields: Readonly<Record<string, { readonly stringValue: string }>>;
  };
  readonly user_agent_name: string;
}

/** All resources as they are now. */
export interface DiscoveryResponse {
  readonly version_info: string;
  readonly resources: readonly AnyMessage[];
  readonly type_url: string;
  readonly nonce: string;
}

/** A message with its type's name. */
export interface AnyMessage {
  readonly type_url: string;
  readonly value: Uint8Array;
}

/** The rules of one domain, as decoded: absent messages are null, absent `optional` fields undefined. */
export interface ConfigMessage {
  readonly name: string;
  readonly domain: string;
  readonly descriptors: readonly DescriptorMessage[];
}

export interface DescriptorMessage {
  readonly key: string;
  readonly value: string;
  readonly rate_limit: PolicyMessage | null;
  readonly rate_limits: readonly PolicyMessage[];
  readonly descriptors: readonly DescriptorMessage[];
  readonly shadow_mode: boolean;
  readonly quota_mode: boolean;
  readonly detailed_metric: boolean;
  readonly value_to_metric: boolean;
  readonly share_threshold: boolean;
  readonly hash_value: boolean;
  readonly metadata: StructMessage | null;
}

export interface PolicyMessage {
  /** The name, or the number when it has no name here. */
  readonly unit: string | number;
  readonly requests_per_unit: number;
  readonly unlimited: boolean;
  readonly name: string;
  readonly replaces: readonly { readonly name: string }[];
  readonly unit_multiplier?: number;
  readonly algorithm: string;
  readonly burst?: number;
  readonly precision: string;
  readonly on_store_error: string;
  readonly count_rejected?: boolean;
  readonly disclose: string;
}

export interface StructMessage {
  readonly fields: Readonly<Record<string, ValueMessage>>;
}

/** One of the fields is set; none stands for null. */
export interface ValueMessage {
  readonly numberValue?: number;
  readonly stringValue?: string;
  readonly boolValue?: boolean;
  readonly structValue?: StructMessage;
  readonly listValue?: { readonly values: readonly ValueMessage[] };
}

/** Encodes and decodes. The decoders throw on what is no message of the type. */
export interface XdsWire {
  encodeRequest(request: DiscoveryRequest): Buffer;
  decodeResponse(bytes: Buffer): DiscoveryResponse;
  /** The resource in an envelope; null when the envelope is empty. */
  decodeEnvelope(bytes: Buffer): { readonly name: string; readonly resource: AnyMessage | null };
  decodeConfig(bytes: Buffer): ConfigMessage;
}

/** Loads the .proto files. Throws when they are not there, as an incomplete installation. */
export function loadXdsWire(): XdsWire {
  const definitions = loadSync(
    ['envoy/service/discovery/v3/ads.proto', 'ratelimit/config/ratelimit/v3/rls_conf.proto'],
    {
      includeDirs: [protoRoot()],
      keepCase: true,
      enums: String,
      longs: Number,
      defaults: true,
      arrays: true,
    },
  );
  const request = messageType(definitions, 'envoy.service.discovery.v3.DiscoveryRequest');
  const response = messageType(definitions, 'envoy.service.discovery.v3.DiscoveryResponse');
  const envelope = messageType(definitions, 'envoy.service.discovery.v3.Resource');
  const config = messageType(definitions, 'ratelimit.config.ratelimit.v3.RateLimitConfig');
  // The casts below: the loader fills every field that the .proto files declare, and no other.
  return {
    encodeRequest: (message) => request.serialize(message),
    decodeResponse: (bytes) => response.deserialize(bytes) as DiscoveryResponse,
    decodeEnvelope: (bytes) =>
      envelope.deserialize(bytes) as { name: string; resource: AnyMessage | null },
    decodeConfig: (bytes) => config.deserialize(bytes) as ConfigMessage,
  };
}

function messageType(
  definitions: PackageDefinition,
  name: string,
): MessageTypeDefinition<object, object> {
  const found = definitions[name];
  if (found === undefined || !('deserialize' in found)) throw new Error(`no message ${name}`);
  return found as MessageTypeDefinition<object, object>;
}

/** Beside the compiled code, or beside the source. */
function protoRoot(): string {
  const here = dirname(fileURLToPath(import.meta.url));
  const beside = join(here, '..', 'proto');
  return existsSync(beside) ? beside : join(here, '..', '..', 'proto');
}
