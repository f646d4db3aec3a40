/**
 * From the resources of an xDS answer to configuration files: each becomes the YAML text that says the
 * same, so that it meets the checks which files meet. Knows no connection and checks no rule itself.
 */
import { createHash } from 'node:crypto';
import type { JsonValue } from '../model.js';
import type { ConfigFile } from './load.js';
import type { Problem } from './problems.js';
import type {
  AnyMessage,
  ConfigMessage,
  DescriptorMessage,
  PolicyMessage,
  StructMessage,
  ValueMessage,
  XdsWire,
} from './xds-wire.js';

/** The type of the resources that hold rules. */
export const CONFIG_TYPE_URL = 'type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig';
const CONFIG_TYPE = 'ratelimit.config.ratelimit.v3.RateLimitConfig';
const ENVELOPE_TYPE = 'envoy.service.discovery.v3.Resource';

/** What the resources of one answer say. */
export interface ResourceReading {
  /** Sorted by name, as servers send resources in any order. */
  readonly files: readonly ConfigFile[];
  /** What could not be decoded. */
  readonly problems: readonly Problem[];
  /** The same for the same files and problems. */
  readonly digest: string;
}

/** A tree that YAML can say; what is undefined is left out. */
type YamlTree =
  | string
  | number
  | boolean
  | readonly YamlTree[]
  | Flow
  | { [field: string]: YamlTree | undefined };

/** A value of any shape, on one line. */
class Flow {
  constructor(readonly value: JsonValue) {}
}

/** Decodes all resources. Never throws: what cannot be decoded is a problem of the reading. */
export function readResources(wire: XdsWire, resources: readonly AnyMessage[]): ResourceReading {
  const files: ConfigFile[] = [];
  const problems: Problem[] = [];
  const taken = new Map<string, number>();
  for (const [index, resource] of resources.entries()) {
    const place = `xds:#${String(index + 1)}`;
    const decoded = decode(wire, resource);
    if (typeof decoded === 'string') {
      problems.push({ file: place, line: 1, column: 1, path: '', message: decoded });
      continue;
    }
    const name = decoded.name === '' ? place : `xds:${decoded.name}`;
    const count = (taken.get(name) ?? 0) + 1;
    taken.set(name, count);
    files.push({ ...decoded, name: count === 1 ? name : `${name}#${String(count)}` });
  }
  files.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  const digest = createHash('sha256')
    .update(JSON.stringify([files, problems]))
    .digest('base64url');
  return { files, problems, digest };
}

/** The rules of one domain as a YAML file: one field a line, metadata on a line of its own. */
export function toYaml(config: ConfigMessage): string {
  const lines: string[] = [];
  writeMap(lines, '', '', {
    domain: config.domain,
    descriptors: config.descriptors.map(descriptorTree),
  });
  return `${lines.join('\n')}\n`;
}

/** The file, named as the server names it, or why there is none. */
function decode(wire: XdsWire, resource: AnyMessage): ConfigFile | string {
  try {
    let inner: AnyMessage | null = resource;
    if (typeName(inner) === ENVELOPE_TYPE) {
      inner = wire.decodeEnvelope(Buffer.from(inner.value)).resource;
      if (inner === null) return 'is an envelope without a resource';
    }
    const type = typeName(inner);
    if (type !== CONFIG_TYPE) return `has the type ${printable(type)}, which is not ${CONFIG_TYPE}`;
    const config = wire.decodeConfig(Buffer.from(inner.value));
    return {
      name: printable(config.name === '' ? config.domain : config.name),
      text: toYaml(config),
    };
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown error';
    return `cannot be decoded as ${CONFIG_TYPE}: ${reason}`;
  }
}

function typeName(message: AnyMessage): string {
  return message.type_url.slice(message.type_url.lastIndexOf('/') + 1);
}

/** A server's word as it may stand in logs and problems. */
function printable(text: string): string {
  // eslint-disable-next-line no-control-regex -- they are what is taken out
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, '?').slice(0, 256);
}

function descriptorTree(message: DescriptorMessage): YamlTree {
  return {
    key: message.key,
    value: orLeftOut(message.value),
    rate_limit: message.rate_limit === null ? undefined : policyTree(message.rate_limit),
    rate_limits: orLeftOut(message.rate_limits.map(policyTree)),
    shadow_mode: orLeftOut(message.shadow_mode),
    quota_mode: orLeftOut(message.quota_mode),
    share_threshold: orLeftOut(message.share_threshold),
    hash_value: orLeftOut(message.hash_value),
    detailed_metric: orLeftOut(message.detailed_metric),
    value_to_metric: orLeftOut(message.value_to_metric),
    metadata: message.metadata === null ? undefined : new Flow(toJson(message.metadata)),
    descriptors: orLeftOut(message.descriptors.map(descriptorTree)),
  };
}

function policyTree(message: PolicyMessage): YamlTree {
  const { unit, unlimited } = message;
  return {
    unlimited: orLeftOut(unlimited),
    // UNKNOWN is what protobuf has for "not said". A number without name here is shown as it is.
    unit: unit === 'UNKNOWN' ? undefined : String(unit).toLowerCase(),
    unit_multiplier: message.unit_multiplier,
    // Protobuf does not tell 0 from "not said"; 0 is what both mean, and said so it raises no doubt.
    requests_per_unit: unlimited ? orLeftOut(message.requests_per_unit) : message.requests_per_unit,
    algorithm: orLeftOut(message.algorithm),
    burst: message.burst,
    precision: orLeftOut(message.precision),
    on_store_error: orLeftOut(message.on_store_error),
    count_rejected: message.count_rejected,
    disclose: orLeftOut(message.disclose),
    name: orLeftOut(message.name),
    replaces: orLeftOut(message.replaces.map(({ name }) => ({ name }))),
  };
}

/** Protobuf's "not said" (empty, 0, false, no items) as undefined. */
function orLeftOut<T extends string | number | boolean | readonly unknown[]>(
  value: T,
): T | undefined {
  if (Array.isArray(value)) return value.length === 0 ? undefined : value;
  return value === '' || value === 0 || value === false ? undefined : value;
}

/** With sorted keys, as protobuf's maps have no order. Numbers that JSON lacks become null. */
function toJson(struct: StructMessage): JsonValue {
  const keys = Object.keys(struct.fields).sort();
  return Object.fromEntries(keys.map((key) => [key, valueToJson(struct.fields[key])]));
}

function valueToJson(value: ValueMessage | undefined): JsonValue {
  if (value?.structValue !== undefined) return toJson(value.structValue);
  if (value?.listValue !== undefined) return value.listValue.values.map(valueToJson);
  const number = value?.numberValue;
  if (number !== undefined) return Number.isFinite(number) ? number : null;
  return value?.stringValue ?? value?.boolValue ?? null;
}

/** Writes a map's fields, the first one after `head`, the others after `indent`. */
function writeMap(
  lines: string[],
  head: string,
  indent: string,
  map: { [field: string]: YamlTree | undefined },
): void {
  let start = head;
  for (const [field, value] of Object.entries(map)) {
    if (value === undefined) continue;
    writeField(lines, `${start}${field}:`, indent, value);
    start = indent;
  }
  if (start === head && head !== indent) lines.push(`${head}{}`);
}

function writeField(lines: string[], start: string, indent: string, value: YamlTree): void {
  if (typeof value === 'string') lines.push(`${start} ${quote(value)}`);
  else if (typeof value !== 'object') lines.push(`${start} ${String(value)}`);
  else if (value instanceof Flow) lines.push(`${start} ${escape(JSON.stringify(value.value))}`);
  else if (isList(value)) {
    lines.push(value.length === 0 ? `${start} []` : start);
    for (const item of value) {
      // Every list of the format holds maps.
      writeMap(lines, `${indent}  - `, `${indent}    `, item as { [field: string]: YamlTree });
    }
  } else if (Object.values(value).every((field) => field === undefined)) lines.push(`${start} {}`);
  else {
    lines.push(start);
    writeMap(lines, `${indent}  `, `${indent}  `, value);
  }
}

function isList(value: object): value is readonly YamlTree[] {
  return Array.isArray(value);
}

/** Always in quotes: no value is mistaken for a number, a date or a boolean. */
function quote(text: string): string {
  return escape(JSON.stringify(text));
}

/** JSON is YAML, save for characters that YAML does not take as they are. */
function escape(json: string): string {
  return json.replace(
    /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
