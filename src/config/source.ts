/**
 * One configuration file as YAML nodes with positions: aliases followed, merge keys expanded, bounds
 * kept. The only place that knows the YAML library; knows nothing of rules.
 */
import {
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Composer,
  Lexer,
  LineCounter,
  Parser,
  visit,
  type Alias,
  type CST,
  type Document,
  type Node,
  type YAMLMap,
} from 'yaml';
import type { Position } from '../model.js';
import { ConfigError, type Problem } from './problems.js';
import { resolvePlain, type ScalarValue } from './scalar.js';

/** Nodes that are read of one file, each alias counted anew: above it, the file is a bomb. */
const MAX_NODES = 2_000_000;
/** Maps and lists inside each other; also what ends an alias that holds itself. */
const MAX_DEPTH = 200;
/** Maps, lists and documents that may be open at once in the text. */
const MAX_OPEN = 250;

const TAGS = new Set(
  ['str', 'map', 'seq', 'null', 'bool', 'int', 'float'].map((each) => `tag:yaml.org,2002:${each}`),
);

/** A node of the file; null where nothing is written. */
export type SourceNode = Node | null;

/** One key of a map, after merging, with its value. */
export interface SourceEntry {
  readonly keyNode: Node;
  readonly key: ScalarValue;
  /** The key as it stands in the file. */
  readonly text: string;
  readonly value: SourceNode;
  /** The map itself has this key more than once; this is the last one. */
  readonly repeated: boolean;
}

/** One parsed file. Its methods throw ConfigError when a bound is exceeded: the rest is not read. */
export class SourceFile {
  private nodesRead = 0;

  private constructor(
    readonly name: string,
    readonly root: SourceNode,
    private readonly lines: LineCounter,
    private readonly aliases: ReadonlyMap<Alias, Node>,
  ) {}

  /**
   * Parses the text. What is wrong with the YAML itself goes to `report`; undefined is returned when
   * that leaves nothing to read. An empty file has the root null.
   */
  static parse(
    name: string,
    text: string,
    report: (problem: Problem) => void,
  ): SourceFile | undefined {
    const lines = new LineCounter();
    const at = (offset: number): Position => toPosition(name, lines, offset);
    const composer = new Composer({
      schema: 'failsafe',
      uniqueKeys: false,
      prettyErrors: false,
      logLevel: 'silent',
    });
    const documents = [...composer.compose(parseTokens(name, text, lines))];
    const filled = documents.filter((document) => !isEmpty(document));
    let broken = false;
    for (const document of documents) {
      for (const error of document.errors) {
        broken = true;
        // What follows a colon and a quote is the file's own text, which may be a secret.
        const message = `invalid YAML: ${error.message.replace(/: ".*$/s, '')}`;
        report({ ...at(error.pos[0]), path: '', message });
      }
    }
    if (broken) return undefined;
    const [first, second] = filled;
    if (second !== undefined) {
      const message = 'more than one YAML document in a file; put each domain in a file of its own';
      report({ ...at(second.range[0]), path: '', message });
    }
    const root = (first?.contents ?? null) as SourceNode;
    const aliases =
      first === undefined ? new Map<Alias, Node>() : resolveAliases(first, at, report);
    return aliases === undefined ? undefined : new SourceFile(name, root, lines, aliases);
  }

  /** Where a node begins; the file's first line for what is not written. */
  position(node: SourceNode): Position {
    return toPosition(this.name, this.lines, node?.range?.[0] ?? 0);
  }

  /** The node itself, or what its alias stands for. Counts what is read. */
  follow(node: SourceNode): SourceNode {
    if (++this.nodesRead > MAX_NODES) {
      throw this.bound(node, 'the file is too large once its aliases are expanded');
    }
    return isAlias(node) ? (this.aliases.get(node) ?? null) : node;
  }

  /** The map that the node is, or undefined. */
  asMap(node: SourceNode): YAMLMap | undefined {
    const real = this.follow(node);
    return isMap(real) ? real : undefined;
  }

  /** The list's items, or undefined when the node is no list. */
  asList(node: SourceNode): readonly SourceNode[] | undefined {
    const real = this.follow(node);
    return isSeq(real) ? (real.items as SourceNode[]) : undefined;
  }

  /** The scalar that the node is, or undefined. What is not written is null. */
  asScalar(node: SourceNode): ScalarValue | undefined {
    const real = this.follow(node);
    if (real === null) return { kind: 'null' };
    if (!isScalar(real)) return undefined;
    const text = scalarText(real);
    if (real.tag?.endsWith(':str') === true) return { kind: 'text', value: text };
    if (real.type !== 'PLAIN' && real.tag === undefined) return { kind: 'text', value: text };
    const value = resolvePlain(text);
    return value.kind === 'whole' && real.tag?.endsWith(':float') === true
      ? { kind: 'float', value: Number(value.value) }
      : value;
  }

  /** The scalar's text as it stands in the file, without quotes. */
  text(node: SourceNode): string {
    const real = isAlias(node) ? (this.aliases.get(node) ?? null) : node;
    return isScalar(real) ? scalarText(real) : '';
  }

  /** The keys of a map, `<<` merged in: own keys go first, and of a key written twice the last one. */
  entries(map: YAMLMap, depth = 0): readonly SourceEntry[] {
    this.checkDepth(map, depth);
    const found = new Map<string, SourceEntry>();
    const own = new Set<SourceEntry>();
    const add = (entry: SourceEntry): unknown =>
      found.set(identify(entry.key.kind, entry.text), entry);
    for (const merged of this.merged(map).reverse()) {
      for (const entry of this.entries(merged, depth + 1)) add({ ...entry, repeated: false });
    }
    for (const pair of map.items) {
      const keyNode = pair.key as Node;
      if (isMergeKey(keyNode)) continue;
      const key = this.asScalar(keyNode);
      const text = this.text(keyNode);
      const before = found.get(identify(key?.kind, text));
      const repeated = before !== undefined && own.has(before);
      const value = (pair.value ?? null) as SourceNode;
      const entry = { keyNode, key: key ?? { kind: 'null' as const }, text, value, repeated };
      own.add(entry);
      add(entry);
    }
    return [...found.values()];
  }

  /** Throws when maps and lists are nested too deeply (or without end, by an alias). */
  checkDepth(node: SourceNode, depth: number): void {
    if (depth > MAX_DEPTH) throw this.bound(node, 'nested too deeply');
  }

  private bound(node: SourceNode, message: string): ConfigError {
    return new ConfigError([{ ...this.position(node), path: '', message }]);
  }

  /** What `<<` names, in its order; anything but maps is passed over, as it merges nothing. */
  private merged(map: YAMLMap): YAMLMap[] {
    const maps: YAMLMap[] = [];
    for (const pair of map.items) {
      if (!isMergeKey(pair.key)) continue;
      const value = (pair.value ?? null) as SourceNode;
      for (const item of this.asList(value) ?? [value]) {
        const each = this.asMap(item);
        if (each !== undefined) maps.push(each);
      }
    }
    return maps;
  }
}

/**
 * The library's own parser, step by step: it keeps a stack of what is open, while what comes after
 * it recurses, and a file of nothing but brackets would end the process.
 */
function* parseTokens(name: string, text: string, lines: LineCounter): Generator<CST.Token, void> {
  const parser = new Parser(lines.addNewLine);
  lines.addNewLine(0);
  for (const lexeme of new Lexer().lex(text)) {
    yield* parser.next(lexeme);
    if (parser.stack.length > MAX_OPEN) {
      const at = toPosition(name, lines, parser.offset);
      throw new ConfigError([{ ...at, path: '', message: 'nested too deeply' }]);
    }
  }
  yield* parser.end();
}

function toPosition(file: string, lines: LineCounter, offset: number): Position {
  const { line, col } = lines.linePos(offset);
  return { file, line: Math.max(line, 1), column: Math.max(col, 1) };
}

function isEmpty(document: Document): boolean {
  const { contents, errors } = document;
  if (errors.length > 0) return false;
  return (
    contents === null || (isScalar(contents) && contents.type === 'PLAIN' && contents.source === '')
  );
}

/** Text, and what only looks like it without quotes, are two keys. */
function identify(kind: ScalarValue['kind'] | undefined, text: string): string {
  return `${kind === 'text' ? '=' : '?'}${text}`;
}

function isMergeKey(node: unknown): boolean {
  return isScalar(node) && node.type === 'PLAIN' && node.source === '<<';
}

function scalarText(node: Node): string {
  return isScalar(node) && typeof node.value === 'string' ? node.value : '';
}

/**
 * Finds what each alias stands for, in one walk (the library's own way walks once per alias), and
 * looks at the tags on the way. Undefined when something is wrong.
 */
function resolveAliases(
  document: Document,
  at: (offset: number) => Position,
  report: (problem: Problem) => void,
): Map<Alias, Node> | undefined {
  const anchors = new Map<string, Node>();
  const aliases = new Map<Alias, Node>();
  const problems: Problem[] = [];
  const refuse = (node: Node, message: string): void => {
    problems.push({ ...at(node.range?.[0] ?? 0), path: '', message });
  };
  visit(document, {
    Node(_key, node) {
      if (isAlias(node)) {
        const target = anchors.get(node.source);
        if (target === undefined)
          refuse(node, `no anchor \`&${node.source}\` stands above this alias`);
        else aliases.set(node, target);
        return;
      }
      if (node.anchor !== undefined) anchors.set(node.anchor, node);
      if (node.tag !== undefined && !TAGS.has(node.tag)) {
        refuse(node, `the tag \`${node.tag}\` has no meaning here`);
      }
    },
  });
  problems.forEach(report);
  return problems.length > 0 ? undefined : aliases;
}
