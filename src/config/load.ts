/**
 * From the texts of configuration files to a snapshot: reads the rules of each file, merges domains,
 * and reports everything that is wrong at once. Knows no directories and no clock.
 */
import type { YAMLMap } from 'yaml';
import type { Limit, Snapshot, StoreErrorPolicy } from '../model.js';
import {
  compileRules,
  pathPart,
  type CompiledRules,
  type DomainDefinition,
  type RuleDefinition,
} from '../rules/rules.js';
import { isSecretKey } from '../store/keys.js';
import { FieldReader, type Findings } from './fields.js';
import { readLimit, type ReadLimit, type ReplacedName } from './limit.js';
import { ConfigError, didYouMean, joinPath, type Problem } from './problems.js';
import { DESCRIPTOR_FIELDS, FILE_FIELDS, RATE_LIMIT_FIELDS } from './schema.js';
import { SourceFile } from './source.js';

/** More are not listed: a template gone wrong makes thousands of the same kind. */
const MAX_PROBLEMS = 1000;

/** A configuration file by its name, without directory. */
export interface ConfigFile {
  readonly name: string;
  readonly text: string;
}

/** What reading depends on beside the files. */
export interface ReadOptions {
  /** Files of one domain add up; otherwise a domain may stand in one file only. */
  readonly mergeDomains: boolean;
  readonly defaultOnStoreError: StoreErrorPolicy;
}

export interface LoadOptions extends ReadOptions {
  /** For the snapshot: counts loads that succeeded, from 1. */
  readonly generation: number;
  /** For the snapshot: now, on the wall clock. */
  readonly nowMs: number;
}

/** What loading gave: the snapshot, and what is doubtful in the files. */
export interface Loaded {
  readonly snapshot: Snapshot;
  readonly warnings: readonly Problem[];
}

/** Which names a domain's limits have, and which of them its rules replace. */
interface Names {
  readonly known: Set<string>;
  readonly replaced: ReplacedName[];
}

/** A domain while files are read. */
interface DomainInProgress {
  readonly name: string;
  readonly file: string;
  readonly rules: RuleDefinition[];
  /** The first level's rules by key and value, to find the same rule in another file. */
  readonly first: Map<string, RuleDefinition>;
  readonly names: Names;
}

/**
 * Loads files, in the order of their names; no file at all is a configuration without domains.
 * Throws ConfigError with every problem of every file.
 */
export function loadConfig(files: readonly ConfigFile[], options: LoadOptions): Loaded {
  const { domains, names, warnings } = readRules(files, options);
  return { snapshot: toSnapshot(compileRules(domains), names, options), warnings };
}

/** What files say, before it is compiled: plain data. */
export interface ReadRules {
  readonly domains: readonly DomainDefinition[];
  /** The files' names, in order. */
  readonly names: readonly string[];
  readonly warnings: readonly Problem[];
}

/** Reads files in the order of their names. Throws ConfigError with every problem of every file. */
export function readRules(files: readonly ConfigFile[], options: ReadOptions): ReadRules {
  const findings: Findings = { problems: [], warnings: [] };
  const domains = new Map<string, DomainInProgress>();
  const sorted = [...files].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  for (const file of sorted) {
    try {
      new FileLoader(file, options, findings, domains).load();
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      findings.problems.push(...error.problems);
    }
  }
  warnOfUnknownNames(domains.values());
  if (findings.problems.length > 0) throw new ConfigError(inOrder(findings.problems));
  return {
    domains: [...domains.values()].map(({ name, rules }) => ({ name, rules })),
    names: sorted.map((file) => file.name),
    warnings: inOrder(findings.warnings),
  };
}

/** Compiled rules as the snapshot of a generation. */
export function toSnapshot(
  compiled: CompiledRules,
  names: readonly string[],
  { generation, nowMs }: Pick<LoadOptions, 'generation' | 'nowMs'>,
): Snapshot {
  return Object.freeze({
    generation,
    loadedAtMs: nowMs,
    files: Object.freeze([...names]),
    ...compiled,
  });
}

/** Reads one file into the domains. */
class FileLoader {
  constructor(
    private readonly file: ConfigFile,
    private readonly options: ReadOptions,
    private readonly findings: Findings,
    private readonly domains: Map<string, DomainInProgress>,
  ) {}

  load(): void {
    const report = (problem: Problem): unknown => this.findings.problems.push(problem);
    const source = SourceFile.parse(this.file.name, this.file.text, report);
    if (source === undefined) return;
    const root = source.asMap(source.root);
    if (root === undefined) {
      const empty = source.asScalar(source.root)?.kind === 'null';
      const message = empty
        ? 'the file is empty: it needs a `domain`'
        : 'the file must be a map with `domain` and `descriptors`';
      report({ ...source.position(source.root), path: '', message });
      return;
    }
    const reader = new FieldReader(
      source,
      this.findings,
      'file',
      FILE_FIELDS,
      root,
      '',
      0,
    ).checkKeys();
    const domain = this.openDomain(reader);
    const maps = reader.maps('descriptors') ?? [];
    const rules = this.readLevel(reader, maps, domain.name, domain.first, domain.names);
    domain.rules.push(...rules);
  }

  private openDomain(reader: FieldReader<typeof FILE_FIELDS>): DomainInProgress {
    const text = reader.text('domain');
    const name = text ?? '';
    const known = this.domains.get(name);
    if (text === '' || !reader.has('domain')) {
      reader.refuse(undefined, 'the domain is missing or empty: the file needs a `domain`');
    } else if (known !== undefined) {
      if (this.options.mergeDomains) return known;
      reader.refuse(
        'domain',
        `\`${name}\` is declared in ${known.file} already; files of one domain are merged with MERGE_DOMAIN_CONFIG=true`,
      );
    }
    const names = { known: new Set<string>(), replaced: [] };
    const opened = { name, file: this.file.name, rules: [], first: new Map(), names };
    if (name !== '' && known === undefined) this.domains.set(name, opened);
    return opened;
  }

  private readLevel(
    parent: FieldReader<typeof FILE_FIELDS> | FieldReader<typeof DESCRIPTOR_FIELDS>,
    maps: readonly YAMLMap[],
    path: string,
    known: Map<string, RuleDefinition>,
    names: Names,
  ): RuleDefinition[] {
    const rules: RuleDefinition[] = [];
    for (const [index, map] of maps.entries()) {
      const place = `${joinPath(path, 'descriptors')}[${String(index)}]`;
      const rule = this.readRule(parent, map, path, place, names);
      if (rule === undefined) continue;
      const identity = JSON.stringify([rule.key, rule.value]);
      const first = known.get(identity);
      if (first === undefined) known.set(identity, rule);
      else this.refuseTwin(rule, first, path);
      rules.push(rule);
    }
    return rules;
  }

  private refuseTwin(rule: RuleDefinition, first: RuleDefinition, path: string): void {
    const { file, line } = first.position;
    const shown = joinPath(path, pathPart(rule.key, rule.value, rule.hashValue));
    const message = `\`${shown}\` is declared twice, first at ${file}:${String(line)}; for several limits on one key use the list \`rate_limits\``;
    this.findings.problems.push({ ...rule.position, path: shown, message });
  }

  private readRule(
    parent: FieldReader<typeof FILE_FIELDS> | FieldReader<typeof DESCRIPTOR_FIELDS>,
    map: YAMLMap,
    parentPath: string,
    place: string,
    names: Names,
  ): RuleDefinition | undefined {
    const reader = parent.below('descriptor', DESCRIPTOR_FIELDS, map, place);
    const key = reader.text('key') ?? '';
    const value = reader.text('value');
    const hashValue = (reader.flag('hash_value') ?? false) || isSecretKey(key);
    if (key === '') reader.refuse(undefined, 'a descriptor needs a `key`, and not an empty one');
    else
      reader.path = joinPath(
        parentPath,
        pathPart(key, value === '' ? undefined : value, hashValue),
      );
    reader.checkKeys();
    if (value === '')
      reader.warn('value', 'is empty, which is the same as none: any value matches');
    const limits = this.readLimits(reader, names);
    const children = this.readLevel(
      reader,
      reader.maps('descriptors') ?? [],
      reader.path,
      new Map(),
      names,
    );
    const shareThreshold = reader.flag('share_threshold') ?? false;
    if (shareThreshold && value?.includes('*') !== true) {
      reader.refuse('share_threshold', 'needs a value with a wildcard (`*`)');
    } else if (shareThreshold && key.includes('*')) {
      reader.warn('share_threshold', 'has no effect where the key itself is a pattern');
    }
    const rule: RuleDefinition = {
      key,
      value: value === '' ? undefined : value,
      limits: limits.flatMap((each) => each.limit ?? []),
      unlimited: limits.some((each) => each.unlimited),
      shadow: reader.flag('shadow_mode') ?? false,
      quota: reader.flag('quota_mode') ?? false,
      replaces: [...new Set(limits.flatMap((each) => each.replaces.map(({ name }) => name)))],
      shareThreshold,
      hashValue,
      detailedMetric: reader.flag('detailed_metric') ?? false,
      valueToMetric: reader.flag('value_to_metric') ?? false,
      metadata: reader.json('metadata'),
      position: reader.at(),
      children,
    };
    return key === '' ? undefined : rule;
  }

  /** The limits of `rate_limit` or of `rate_limits`, checked against each other. */
  private readLimits(
    reader: FieldReader<typeof DESCRIPTOR_FIELDS>,
    names: Names,
  ): readonly ReadLimit[] {
    const single = reader.mapOf('rate_limit');
    const several = reader.maps('rate_limits');
    if (reader.has('rate_limit') && reader.has('rate_limits')) {
      reader.refuse('rate_limits', 'stands beside `rate_limit`; put all limits into the list');
    }
    if (several?.length === 0) reader.warn('rate_limits', 'is empty: nothing is limited here');
    const maps = [
      ...(single === undefined ? [] : [{ map: single, path: `${reader.path}.rate_limit` }]),
      ...(several ?? []).map((map, index) => ({
        map,
        path: `${reader.path}.rate_limits[${String(index)}]`,
      })),
    ];
    const limits = maps.map(({ map, path }) => {
      const below = reader.below('rate_limit', RATE_LIMIT_FIELDS, map, path).checkKeys();
      const limit = readLimit(below, this.options.defaultOnStoreError);
      return { ...limit, below };
    });
    const own = new Set(limits.map((each) => each.name).filter((name) => name !== ''));
    for (const name of own) names.known.add(name);
    const heads = new Map<string, Limit>();
    for (const { limit, unlimited, replaces, below } of limits) {
      if (replaces.some(({ name }) => own.has(name))) {
        below.refuse('replaces', 'names the rule itself');
      }
      names.replaced.push(...replaces);
      if (unlimited && limits.length > 1) {
        below.refuse('unlimited', 'stands beside other limits; leave one or the other out');
      }
      if (limit === undefined) continue;
      if (heads.has(limit.keyHead)) {
        below.refuse(undefined, 'has the algorithm and the window of an earlier one in this list');
      }
      heads.set(limit.keyHead, limit);
    }
    return limits;
  }
}

/** By file and position, and no more of them than anybody reads. */
function inOrder(problems: readonly Problem[]): readonly Problem[] {
  const sorted = [...problems].sort(
    (a, b) =>
      (a.file < b.file ? -1 : a.file > b.file ? 1 : 0) || a.line - b.line || a.column - b.column,
  );
  return sorted.slice(0, MAX_PROBLEMS);
}

/** A misspelt name in `replaces` replaces nothing, which would go unnoticed. */
function warnOfUnknownNames(domains: Iterable<DomainInProgress>): void {
  for (const { names, name: domain } of domains) {
    for (const { name, warn } of names.replaced) {
      if (names.known.has(name)) continue;
      const hint = didYouMean(name, [...names.known]);
      warn(`no limit of the domain \`${domain}\` has the name \`${name}\`${hint}`);
    }
  }
}
