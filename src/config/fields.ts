/**
 * Reads the fields of one map by the table of its place: checks the keys, turns scalars into what the
 * field holds, and reports what is wrong with its position. Knows the format, not what it means.
 */
import type { YAMLMap } from 'yaml';
import type { JsonObject, Position } from '../model.js';
import { parseDurationUs } from './duration.js';
import { readJsonObject } from './metadata.js';
import { didYouMean, joinPath, type Problem } from './problems.js';
import { KNOWN_KEYS, OWN_KEYS, PLACES, type Field, type Fields, type PlaceName } from './schema.js';
import type { SourceEntry, SourceFile, SourceNode } from './source.js';
import type { ScalarValue } from './scalar.js';

/** Where problems and warnings of a load are gathered. */
export interface Findings {
  readonly problems: Problem[];
  readonly warnings: Problem[];
}

const INT64_MAX = 9223372036854775807n;
const INT64_MIN = -9223372036854775808n;

/** How a place is called in messages. */
const PLACE_WORDS: Readonly<Record<PlaceName, string>> = {
  file: 'at the top of a file',
  descriptor: 'in a descriptor',
  rate_limit: 'in rate_limit',
  replaces: 'in replaces',
};

/** The names of the fields of a kind, so that reading a field as something else does not compile. */
type NamesOf<F extends Fields, K extends Field['kind']> = {
  [N in keyof F & string]: F[N]['kind'] extends K ? N : never;
}[keyof F & string];

/** The fields of one map. A field that is left out, null or wrong reads as undefined. */
export class FieldReader<F extends Fields> {
  private readonly entries = new Map<string, SourceEntry>();
  private readonly others: SourceEntry[] = [];

  /** `path` says in messages where the map stands; `depth` is how many maps it stands in. */
  constructor(
    private readonly source: SourceFile,
    private readonly findings: Findings,
    private readonly place: PlaceName,
    private readonly fields: F,
    private readonly map: YAMLMap,
    public path: string,
    readonly depth: number,
  ) {
    for (const entry of source.entries(map, depth)) {
      if (entry.key.kind === 'text' && Object.hasOwn(fields, entry.text)) {
        this.entries.set(entry.text, entry);
      } else this.others.push(entry);
    }
  }

  /** Reports keys that are unknown, and warns of those that are known elsewhere. */
  checkKeys(): this {
    for (const [name, { repeated }] of this.entries) {
      if (repeated) this.warn(name, 'is written twice in one map; the last one counts');
    }
    for (const entry of this.others) {
      if (this.keyIsKnown(entry, this.path)) this.checkMisplaced(entry);
    }
    return this;
  }

  /** Whether the field is written and not null. */
  has(name: keyof F & string): boolean {
    const entry = this.entries.get(name);
    return entry !== undefined && this.source.asScalar(entry.value)?.kind !== 'null';
  }

  /** Where the field's value begins, or the map when the field is not written. */
  at(name?: keyof F & string): Position {
    const entry = name === undefined ? undefined : this.entries.get(name);
    return this.source.position(entry === undefined ? this.map : (entry.value ?? entry.keyNode));
  }

  /** A reader for a map below this one. */
  below<G extends Fields>(place: PlaceName, fields: G, map: YAMLMap, path: string): FieldReader<G> {
    return new FieldReader(this.source, this.findings, place, fields, map, path, this.depth + 1);
  }

  /** Reports a problem with the field. */
  refuse(name: (keyof F & string) | undefined, message: string): void {
    this.findings.problems.push(this.finding(name, message));
  }

  /** Reports what is doubtful about the field. */
  warn(name: (keyof F & string) | undefined, message: string): void {
    this.findings.warnings.push(this.finding(name, message));
  }

  /** Text, as it stands in the file: `012`, `yes` and dates too, but no decimal number. */
  text(name: NamesOf<F, 'text'>): string | undefined {
    const scalar = this.scalar(name, 'text');
    if (scalar === undefined) return undefined;
    return scalar.kind === 'text' ? scalar.value : this.source.text(this.value(name));
  }

  /** The source text of any field, unchecked; empty when it is no scalar. */
  textOf(name: keyof F & string): string {
    return this.source.text(this.value(name));
  }

  /** A whole number within the bounds of its table. */
  whole(name: NamesOf<F, 'whole'>): number | undefined {
    const field = this.fields[name];
    const scalar = this.scalar(name, 'a whole number');
    if (scalar === undefined || field?.kind !== 'whole') return undefined;
    if (scalar.kind !== 'whole') {
      this.refuse(name, `is ${describe(scalar)} where a whole number belongs`);
      return undefined;
    }
    if (scalar.value < BigInt(field.min) || scalar.value > BigInt(field.max)) {
      const bounds = `${String(field.min)} to ${String(field.max)}`;
      this.refuse(name, `must be ${bounds}, not ${String(scalar.value)}`);
      return undefined;
    }
    if (/^\+?0[0-9]/.test(this.source.text(this.value(name)))) {
      this.warn(name, `is read as an octal number: ${String(scalar.value)}`);
    }
    return Number(scalar.value);
  }

  /** A boolean: true, yes, on and so on, without quotes. */
  flag(name: NamesOf<F, 'flag'>): boolean | undefined {
    const scalar = this.scalar(name, 'a boolean');
    if (scalar === undefined) return undefined;
    if (scalar.kind === 'boolean') return scalar.value;
    this.refuse(name, `is ${describe(scalar)} where a boolean belongs (true or false, unquoted)`);
    return undefined;
  }

  /** One of the choices of its table. */
  choice<C extends string>(name: NamesOf<F, 'choice'>, choices: readonly C[]): C | undefined {
    const field = this.fields[name];
    const scalar = this.scalar(name, 'text');
    if (scalar === undefined || field?.kind !== 'choice') return undefined;
    const text = this.source.text(this.value(name));
    const found = choices.find((each) => each === (field.anyCase ? text.toLowerCase() : text));
    if (found === undefined) {
      const hint = didYouMean(text, choices);
      this.refuse(name, `\`${text}\` is not one of ${choices.join(', ')}${hint}`);
    }
    return found;
  }

  /** A duration such as `500ms` or `1m30s`, in µs. */
  durationUs(name: NamesOf<F, 'duration'>): number | undefined {
    const scalar = this.scalar(name, 'a duration');
    if (scalar === undefined) return undefined;
    const text = this.source.text(this.value(name));
    const us = parseDurationUs(text);
    if (us === undefined) {
      this.refuse(name, `\`${text}\` is not a duration; write it like \`500ms\` or \`10s\``);
    }
    return us;
  }

  /** A map of a place of its own. */
  mapOf(name: NamesOf<F, 'map'>): YAMLMap | undefined {
    if (!this.has(name)) return undefined;
    const map = this.source.asMap(this.value(name));
    if (map === undefined) this.refuse(name, `is ${this.describeNode(name)} where a map belongs`);
    return map;
  }

  /** A list of maps; what is no map is reported and left out. */
  maps(name: NamesOf<F, 'list'>): readonly YAMLMap[] | undefined {
    if (!this.has(name)) return undefined;
    const items = this.source.asList(this.value(name));
    if (items === undefined) {
      this.refuse(name, `is ${this.describeNode(name)} where a list of maps belongs`);
      return undefined;
    }
    const maps: YAMLMap[] = [];
    for (const [index, item] of items.entries()) {
      const map = this.source.asMap(item);
      if (map !== undefined) maps.push(map);
      else this.refuseItem(item, index, joinPath(this.path, name));
    }
    return maps;
  }

  /** Any map, as JSON, frozen; keys keep their text. */
  json(name: NamesOf<F, 'metadata'>): JsonObject | undefined {
    if (!this.has(name)) return undefined;
    const map = this.source.asMap(this.value(name));
    if (map === undefined) {
      this.refuse(name, `is ${this.describeNode(name)} where a map belongs`);
      return undefined;
    }
    const path = joinPath(this.path, name);
    return readJsonObject(this.source, this.findings.problems, map, path, this.depth + 1);
  }

  private value(name: string): SourceNode {
    return this.entries.get(name)?.value ?? null;
  }

  private finding(name: string | undefined, message: string): Problem {
    const path = name === undefined ? this.path : joinPath(this.path, name);
    return { ...this.at(name), path, message };
  }

  private scalar(name: string, wanted: string): ScalarValue | undefined {
    const entry = this.entries.get(name);
    if (entry === undefined) return undefined;
    const scalar = this.source.asScalar(entry.value);
    if (scalar === undefined) {
      this.refuse(name, `is ${this.describeNode(name)} where ${wanted} belongs`);
      return undefined;
    }
    if (scalar.kind === 'null') return undefined;
    return this.scalarIsUsual(scalar, entry.value, joinPath(this.path, name)) ? scalar : undefined;
  }

  /** Decimal and very large numbers are read differently by everyone, so they need quotes. */
  private scalarIsUsual(scalar: ScalarValue, node: SourceNode, path: string): boolean {
    const message =
      scalar.kind === 'float'
        ? 'is a floating point number; write a whole number, or put text in quotes'
        : scalar.kind === 'whole' && (scalar.value > INT64_MAX || scalar.value < INT64_MIN)
          ? 'is a number beyond 64 bits; if it is text, put it in quotes'
          : undefined;
    if (message === undefined) return true;
    this.findings.problems.push({ ...this.source.position(node), path, message });
    return false;
  }

  private keyIsKnown(entry: SourceEntry, path: string): boolean {
    const at = this.source.position(entry.keyNode);
    const { key, text } = entry;
    if (key.kind !== 'text') {
      const message =
        text === ''
          ? 'a key is not text'
          : `the key \`${text}\` is ${describe(key)}, not text; put it in quotes`;
      this.findings.problems.push({ ...at, path, message });
      return false;
    }
    if (KNOWN_KEYS.has(text)) return true;
    const message = `unknown key \`${text}\`${didYouMean(text, [...KNOWN_KEYS.keys()])}`;
    this.findings.problems.push({ ...at, path, message });
    return false;
  }

  private checkMisplaced(entry: SourceEntry): void {
    const places = (KNOWN_KEYS.get(entry.text) ?? []).map((each) => PLACE_WORDS[each]);
    const where = `${PLACE_WORDS[this.place]}; it belongs ${places.join(' or ')}`;
    const finding = {
      ...this.source.position(entry.keyNode),
      path: joinPath(this.path, entry.text),
    };
    if (OWN_KEYS.has(entry.text)) {
      this.findings.problems.push({ ...finding, message: `has no place ${where}` });
    } else this.findings.warnings.push({ ...finding, message: `has no effect ${where}` });
    if (PLACES.descriptor[entry.text]?.kind === 'metadata') return;
    this.checkIgnored(entry.value, joinPath(this.path, entry.text), this.depth + 1);
  }

  /** What stands in the wrong place has no effect, but still holds known keys and usual scalars. */
  private checkIgnored(node: SourceNode, path: string, depth: number): void {
    const map = this.source.asMap(node);
    if (map !== undefined) {
      for (const entry of this.source.entries(map, depth)) {
        if (this.keyIsKnown(entry, path) && entry.text !== 'metadata') {
          this.checkIgnored(entry.value, joinPath(path, entry.text), depth + 1);
        }
      }
      return;
    }
    for (const [index, item] of (this.source.asList(node) ?? []).entries()) {
      if (this.source.asMap(item) === undefined) this.refuseItem(item, index, path);
      else this.checkIgnored(item, `${path}[${String(index)}]`, depth + 1);
    }
    const scalar = this.source.asScalar(node);
    if (scalar !== undefined) this.scalarIsUsual(scalar, node, path);
  }

  private refuseItem(item: SourceNode, index: number, path: string): void {
    const what = describeNode(this.source, item);
    const message = `is ${what} where a map belongs`;
    const at = this.source.position(item);
    this.findings.problems.push({ ...at, path: `${path}[${String(index)}]`, message });
  }

  private describeNode(name: string): string {
    return describeNode(this.source, this.value(name));
  }
}

/** Says what a node is, never its text: it may be a secret. */
function describeNode(source: SourceFile, node: SourceNode): string {
  if (source.asMap(node) !== undefined) return 'a map';
  if (source.asList(node) !== undefined) return 'a list';
  return describe(source.asScalar(node) ?? { kind: 'null' });
}

function describe(scalar: ScalarValue): string {
  if (scalar.kind === 'null') return 'empty';
  if (scalar.kind === 'text') return 'text';
  if (scalar.kind === 'boolean') return 'a boolean';
  return scalar.kind === 'whole' ? 'a number' : 'a floating point number';
}
