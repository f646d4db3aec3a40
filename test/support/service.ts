/** One or more Weir processes and a client for each, asked on Envoy's API in a few words. */
import { callerOf, ENVOY } from '../transport/grpc-client.js';
import type { Caller } from '../transport/grpc-client.js';
import { startWeir } from './weir-process.js';
import type { WeirProcess } from './weir-process.js';

export interface Status {
  readonly code: 'OK' | 'OVER_LIMIT';
  readonly current_limit?: { readonly requests_per_unit: number; readonly unit: string };
  readonly limit_remaining: number;
  readonly duration_until_reset?: { readonly seconds: number };
}

export interface Answered {
  readonly code: 'OK' | 'OVER_LIMIT' | 'ERROR';
  readonly statuses: readonly Status[];
  readonly tookMs: number;
}

export class Service {
  private constructor(
    readonly weir: WeirProcess,
    private readonly caller: Caller,
  ) {}

  /** Resolves when it is ready to decide; `rules` is the text of one file. */
  static async start(rules: string, env: Record<string, string> = {}): Promise<Service> {
    const weir = await startWeir({ files: { 'rules.yaml': rules }, env });
    return new Service(weir, callerOf(ENVOY, `127.0.0.1:${weir.grpcPort}`));
  }

  /** One descriptor a text: `user=a`, `path=/x,user=a`, and with hits of its own `user=a:3`. Never rejects. */
  async ask(descriptors: string | readonly string[], patienceMs = 5000): Promise<Answered> {
    const texts = typeof descriptors === 'string' ? [descriptors] : descriptors;
    const startMs = performance.now();
    try {
      const answer = await this.caller.call(
        'ShouldRateLimit',
        { domain: 'shop', descriptors: texts.map(toDescriptor) },
        { deadline: Date.now() + patienceMs },
      );
      return {
        code: answer['overall_code'] as Answered['code'],
        statuses: answer['statuses'] as Status[],
        tookMs: performance.now() - startMs,
      };
    } catch {
      return { code: 'ERROR', statuses: [], tookMs: performance.now() - startMs };
    }
  }

  /** Overall codes of so many requests, one after another: `OK OK OVER`. */
  async codes(descriptors: string | readonly string[], count: number): Promise<string> {
    const codes: string[] = [];
    for (let i = 0; i < count; i++) {
      const { code } = await this.ask(descriptors);
      codes.push(code === 'OVER_LIMIT' ? 'OVER' : code);
    }
    return codes.join(' ');
  }

  /** The sum of the series of a metric, or of those whose labels match. */
  async metric(name: string, labels = /.*/): Promise<number> {
    const lines = (await this.page('/metrics')).matchAll(
      new RegExp(`^${name}(?:\\{(.*)\\})? (\\S+)$`, 'gm'),
    );
    let sum = 0;
    for (const [, found = '', value] of lines) if (labels.test(found)) sum += Number(value);
    return sum;
  }

  async page(path: string): Promise<string> {
    return (await fetch(`http://127.0.0.1:${this.weir.httpPort}${path}`)).text();
  }

  /** Waits until decisions come from the store; how long that took, in ms. */
  async untilDecides(descriptor: string, patienceMs = 15_000): Promise<number> {
    const startMs = performance.now();
    while (performance.now() - startMs < patienceMs) {
      const { statuses } = await this.ask(`${descriptor}:0`);
      if ((statuses[0]?.current_limit ?? null) !== null) return performance.now() - startMs;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    throw new Error('it does not decide from the store');
  }

  async stop(): Promise<number | null> {
    this.caller.close();
    return this.weir.stop();
  }
}

function toDescriptor(text: string): object {
  const [entries = '', hits] = text.split(':');
  return {
    entries: entries.split(',').map((entry) => {
      const at = entry.indexOf('=');
      return { key: entry.slice(0, at), value: entry.slice(at + 1) };
    }),
    ...(hits === undefined ? {} : { hits_addend: { value: Number(hits) } }),
  };
}
