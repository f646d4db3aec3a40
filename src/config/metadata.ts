/**
 * Reads a rule's metadata: any map, as JSON. The one part of a file without a table of its own; keys
 * keep their text, values the type that YAML 1.1 gives them.
 */
import type { YAMLMap } from 'yaml';
import type { JsonObject, JsonValue } from '../model.js';
import { joinPath, type Problem } from './problems.js';
import type { SourceFile, SourceNode } from './source.js';

/** The map, frozen throughout. What JSON cannot hold is added to `problems`. */
export function readJsonObject(
  source: SourceFile,
  problems: Problem[],
  map: YAMLMap,
  path: string,
  depth: number,
): JsonObject {
  const pairs = source.entries(map, depth).map(({ keyNode, text, value }): [string, JsonValue] => {
    if (source.asScalar(keyNode) === undefined) {
      const message = 'a key is a map or a list';
      problems.push({ ...source.position(keyNode), path, message });
    }
    return [text, readJson(source, problems, value, joinPath(path, text), depth + 1)];
  });
  return Object.freeze(Object.fromEntries(pairs));
}

function readJson(
  source: SourceFile,
  problems: Problem[],
  node: SourceNode,
  path: string,
  depth: number,
): JsonValue {
  source.checkDepth(node, depth);
  const map = source.asMap(node);
  if (map !== undefined) return readJsonObject(source, problems, map, path, depth);
  const items = source.asList(node);
  if (items !== undefined) {
    return Object.freeze(
      items.map((item, index) =>
        readJson(source, problems, item, `${path}[${String(index)}]`, depth + 1),
      ),
    );
  }
  const scalar = source.asScalar(node) ?? { kind: 'null' };
  if (scalar.kind === 'null') return null;
  if (scalar.kind === 'float' && !Number.isFinite(scalar.value)) {
    const message = 'is no number that JSON has; put it in quotes';
    problems.push({ ...source.position(node), path, message });
  }
  return scalar.kind === 'whole' ? Number(scalar.value) : scalar.value;
}
