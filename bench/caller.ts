/** Asks a server of Envoy's API over some connections, and loops that do so. */
import { Connection } from './connection.js';

/** `failed`: an error status, a broken stream, or no answer. */
export type Verdict = 'ok' | 'over_limit' | 'failed';

const VERDICTS: readonly Verdict[] = ['failed', 'ok', 'over_limit'];

export class Caller {
  private next = 0;
  private constructor(private readonly connections: readonly Connection[]) {}

  /** With `timeoutMs` the server is told how long we wait, as Envoy tells it; we wait all the same. */
  static async open(port: number, connections: number, timeoutMs?: number): Promise<Caller> {
    const opening = Array.from({ length: connections }, () => Connection.open(port, timeoutMs));
    return new Caller(await Promise.all(opening));
  }

  /** `done` is called once, with what the server said, how long it took, and the message itself. */
  ask(request: Buffer, done: (verdict: Verdict, ms: number, message: Buffer) => void): void {
    const sentMs = performance.now();
    this.connections[this.next++ % this.connections.length]?.send(request, (code, message) => {
      done(VERDICTS[code] ?? 'failed', performance.now() - sentMs, message);
    });
  }

  close(): void {
    for (const connection of this.connections) connection.close();
  }
}

/** Latencies and verdicts of one run. */
export class Tally {
  readonly verdicts: Record<Verdict, number> = { ok: 0, over_limit: 0, failed: 0 };
  private readonly latenciesMs: number[] = [];

  note(verdict: Verdict, ms: number): void {
    this.verdicts[verdict]++;
    this.latenciesMs.push(ms);
  }

  get count(): number {
    return this.latenciesMs.length;
  }

  /** `part` from 0 to 1; ms, NaN when nothing was noted. */
  percentileMs(part: number): number {
    const sorted = this.latenciesMs.sort((a, b) => a - b);
    return sorted[Math.floor((sorted.length - 1) * part)] ?? NaN;
  }
}

/** Sends so many a second, however many answers are outstanding; resolves when all have come. */
export async function openLoop(
  perSecond: number,
  seconds: number,
  send: (done: () => void) => void,
): Promise<void> {
  const startMs = performance.now();
  const total = perSecond * seconds;
  let open = 0;
  const done = (): void => {
    open--;
  };
  for (let sent = 0; sent < total;) {
    const due = Math.min(total, ((performance.now() - startMs) * perSecond) / 1000);
    for (; sent < due; sent++) {
      open++;
      send(done);
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  while (open > 0) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** Keeps so many requests in flight for so long; resolves when the last has come back. */
export async function closedLoop(
  inFlight: number,
  seconds: number,
  send: (done: () => void) => void,
): Promise<void> {
  const endMs = performance.now() + seconds * 1000;
  const chain = (): Promise<void> =>
    new Promise((resolve) => {
      const again = (): void => {
        if (performance.now() >= endMs) resolve();
        else send(again);
      };
      again();
    });
  await Promise.all(Array.from({ length: inFlight }, chain));
}
