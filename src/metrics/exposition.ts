/**
 * Metrics as plain data, and the text that Prometheus reads: classic or OpenMetrics. Pure; knows no
 * metric by name. Data from several processes can be merged before it is written.
 */

/** One number of a family. `labels` is written as it stands: `domain="shop",rule="user"`, or empty. */
export interface Sample {
  /** Appended to the family's name: `_bucket`, `_sum`, `_count`, or empty. */
  readonly suffix: string;
  readonly labels: string;
  readonly value: number;
}

/** One metric. */
export interface Metric {
  /** As in the classic format: a counter's ends in `_total`, unless it must have a foreign name. */
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary';
  /** How the numbers of several processes become one. */
  readonly merge: 'sum' | 'max';
}

/** A metric with all its samples. */
export interface Family extends Metric {
  readonly samples: readonly Sample[];
}

/** A metric whose samples are made while they are written. */
export interface LazyFamily extends Metric {
  readonly samples: Iterable<Sample>;
}

/** What a scrape is answered with. */
export interface Exposition {
  readonly contentType: string;
  /** UTF-8, in pieces that may end in the middle of a line but not of a character. */
  readonly body: readonly Buffer[];
}

/** What a scrape is answered with, in one. */
export function textOf(exposition: Exposition): string {
  return exposition.body.map((piece) => piece.toString()).join('');
}

/**
 * Writes families in the format that the Accept header asks for; the classic one unless it does. Gives way
 * to decisions now and then: what they count meanwhile is in the samples that are still to be written.
 */
export async function writeExposition(
  families: Iterable<LazyFamily>,
  accept: string | undefined,
): Promise<Exposition> {
  const openMetrics = accept?.includes('application/openmetrics-text') ?? false;
  const text = new Writer();
  let sliceEndMs = performance.now() + SLICE_MS;
  for (const family of families) {
    for (const line of linesOf(family, openMetrics)) {
      text.add(line);
      if (!text.hasGrown || performance.now() < sliceEndMs) continue;
      await nextTurn();
      sliceEndMs = performance.now() + SLICE_MS;
    }
  }
  if (openMetrics) text.add('# EOF\n');
  const version = openMetrics
    ? 'application/openmetrics-text; version=1.0.0'
    : 'text/plain; version=0.0.4';
  return { contentType: `${version}; charset=utf-8`, body: text.end() };
}

/** So long decisions wait for a scrape, at most and now and then. */
const SLICE_MS = 2;

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

function* linesOf(family: LazyFamily, openMetrics: boolean): Generator<string> {
  const isCounter = openMetrics && family.type === 'counter' && family.name.endsWith('_total');
  const name = isCounter ? family.name.replace(/_total$/, '') : family.name;
  // OpenMetrics knows no counter by another name.
  const type = openMetrics && family.type === 'counter' && !isCounter ? 'unknown' : family.type;
  yield `# HELP ${name} ${escapeHelp(family.help)}\n# TYPE ${name} ${type}\n`;
  for (const { suffix, labels, value } of family.samples) {
    const full = isCounter ? family.name : name + suffix;
    // OpenMetrics wants the bounds of buckets as floats.
    const written =
      openMetrics && suffix === '_bucket' ? labels.replace(/(le="\d+)"/, '$1.0"') : labels;
    const place = written === '' ? full : `${full}{${written}}`;
    yield `${place} ${writeNumber(value)}\n`;
  }
}

/**
 * Gathers text in pieces of bytes, a few KB at a time. Megabytes of string parts that all live until the
 * end keep the garbage collector busy for longer than the writing takes, and one large text is turned
 * into bytes in one go.
 */
class Writer {
  /** Whether the last text made it write what it had gathered: once in some 50 lines. */
  hasGrown = false;
  private readonly pieces: Buffer[] = [];
  private piece = Buffer.allocUnsafe(PIECE_BYTES);
  private length = 0;
  private part = '';

  add(text: string): void {
    this.part += text;
    this.hasGrown = this.part.length > 4096;
    if (this.hasGrown) this.flush();
  }

  end(): readonly Buffer[] {
    this.flush();
    this.closePiece();
    return this.pieces;
  }

  private flush(): void {
    const most = this.part.length * 3;
    if (this.length + most > this.piece.length) {
      this.closePiece();
      this.piece = Buffer.allocUnsafe(Math.max(PIECE_BYTES, most));
    }
    this.length += this.piece.write(this.part, this.length);
    this.part = '';
  }

  private closePiece(): void {
    if (this.length > 0) this.pieces.push(this.piece.subarray(0, this.length));
    this.length = 0;
  }
}

const PIECE_BYTES = 64 * 1024;

function writeNumber(value: number): string {
  if (value === Infinity) return '+Inf';
  return value === -Infinity ? '-Inf' : String(value);
}

/** `name="value"`, for any value. */
export function label(name: string, value: string): string {
  return `${name}="${value.replace(/[\\"\n]/g, (character) => (character === '\n' ? '\\n' : '\\' + character))}"`;
}

function escapeHelp(help: string): string {
  return help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}

/** One set of families out of those of several processes, in the order in which they first appear. */
export function mergeFamilies(processes: readonly (readonly Family[])[]): Family[] {
  const merged = new Map<string, { family: Family; samples: Map<string, Sample> }>();
  for (const family of processes.flat()) {
    let target = merged.get(family.name);
    if (target === undefined) {
      target = { family, samples: new Map() };
      merged.set(family.name, target);
    }
    for (const sample of family.samples) {
      const key = `${sample.suffix}{${sample.labels}`;
      const other = target.samples.get(key)?.value ?? sample.value;
      const value =
        !target.samples.has(key) || family.merge === 'max'
          ? Math.max(other, sample.value)
          : other + sample.value;
      target.samples.set(key, { ...sample, value });
    }
  }
  return [...merged.values()].map(({ family, samples }) => ({
    ...family,
    samples: [...samples.values()],
  }));
}
