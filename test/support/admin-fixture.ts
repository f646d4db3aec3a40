/** An admin server on a real limiter with counters in memory, and a clock that a test may move. */
import { RecentDecisions } from '../../src/admin/recent-decisions.js';
import { createAdminServer } from '../../src/admin/server.js';
import type { AdminSources } from '../../src/admin/sources.js';
import { createLimiter } from '../../src/limiter.js';
import type { Decision, Descriptor, Logger, Mode, Snapshot } from '../../src/model.js';
import { loadConfig } from '../../src/config/load.js';
import { CounterKeys } from '../../src/store/keys.js';
import { MemoryStore } from '../../src/store/memory.js';
import { toDecisionRequest } from '../../src/transport/native.js';
import { entriesOf } from './decided.js';

export interface AdminFixture {
  readonly url: string;
  readonly sources: AdminSources;
  readonly logged: { readonly fields: object; readonly message: string }[];
  /** Moves the clock. */
  pass(ms: number): void;
  nowMs(): number;
  /** Asks as a caller would, so many times; the last answer. */
  ask(domain: string, descriptor: string, times?: number): Promise<Decision>;
  load(yaml: string): void;
  stop(): Promise<void>;
}

export interface AdminFixtureOptions {
  readonly yaml: string;
  readonly token?: string;
  readonly startMs?: number;
  /** Let the clock run, beginning at `startMs`. */
  readonly live?: boolean;
  readonly sources?: Partial<AdminSources>;
}

export async function startAdmin(options: AdminFixtureOptions): Promise<AdminFixture> {
  let offsetMs = options.startMs ?? 1_750_000_000_000;
  const began = performance.now();
  const nowMs = (): number =>
    Math.floor(offsetMs + (options.live === true ? performance.now() - began : 0));
  let snapshot: Snapshot | undefined;
  let generation = 0;
  const load = (yaml: string): void => {
    generation++;
    snapshot = loadConfig([{ name: 'shop.yaml', text: yaml }], {
      mergeDomains: false,
      defaultOnStoreError: 'allow',
      generation,
      nowMs: nowMs(),
    }).snapshot;
  };
  load(options.yaml);
  const store = new MemoryStore({
    nowUs: () => nowMs() * 1000,
    observer: { memoryOverflow: () => undefined },
  });
  const limiter = createLimiter({
    snapshot: () => snapshot,
    keys: new CounterKeys(''),
    gate: { submit: (request) => store.decide([request], () => undefined) },
    fallback: store,
    instances: () => 1,
    nowUs: () => nowMs() * 1000,
    shadowMode: false,
    quotaMode: false,
    stopIncrement: undefined,
    defaultOnStoreError: 'allow',
  });
  const decide = (
    domain: string,
    descriptors: readonly Descriptor[],
    mode: Mode | undefined,
  ): Promise<Decision> =>
    new Promise((resolve) => {
      limiter.decide({ domain, descriptors, hits: 1, mode }, Infinity, resolve);
    });
  const logged: { fields: object; message: string }[] = [];
  const log = (fields: object, message: string): void => {
    logged.push({ fields, message });
  };
  const logger: Logger = { debug: log, info: log, warn: log, error: log };
  const recent = new RecentDecisions({ nowMs });
  const sources: AdminSources = {
    version: '1.2.3',
    instanceId: 'weir-1',
    startedAtMs: nowMs(),
    nowMs,
    recent: () => Promise.resolve(recent),
    snapshot: () => snapshot,
    reload: () => ({ problems: [], warnings: [] }),
    stores: () => [{ name: 'memory', kind: 'memory', breakerOpen: false, lastFailure: undefined }],
    instances: () => 1,
    look: (domain, descriptors) => decide(domain, descriptors, 'peek'),
    describe: (identity) =>
      toDecisionRequest(
        {
          domain: '',
          descriptor: {
            endpoint: identity.endpoint ?? '',
            user: identity.user ?? '',
            ip: identity.ip ?? '',
            apiKey: identity.api_key ?? '',
            attributes: new Map(Object.entries(identity.attributes ?? {})),
          },
          hits: undefined,
          mode: 0,
        },
        64,
      ).descriptors,
    reset: (keys) => {
      recent.forget(keys);
      return store.reset(keys);
    },
    settings: () => ({ LOG_LEVEL: 'info' }),
    stats: () => Promise.resolve('weir_up 1\n'),
    logger,
    ...options.sources,
  };
  const server = createAdminServer({ host: '127.0.0.1', port: 0, token: options.token }, sources);
  const { port } = await server.start();
  return {
    url: `http://127.0.0.1:${port}`,
    sources,
    logged,
    pass: (ms) => {
      offsetMs += ms;
    },
    nowMs,
    async ask(domain, descriptor, times = 1) {
      const asked: Descriptor = {
        entries: entriesOf(descriptor),
        override: undefined,
        hits: undefined,
        giveBack: false,
      };
      let last = await decide(domain, [asked], undefined);
      recent.observe(last);
      for (let i = 1; i < times; i++) {
        last = await decide(domain, [asked], undefined);
        recent.observe(last);
      }
      return last;
    },
    load,
    stop: () => server.stop(),
  };
}

/** POSTs JSON as the page does; what came back, parsed. */
export async function post(
  url: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ readonly status: number; readonly body: unknown }> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-weir-admin': '1', ...headers },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}
