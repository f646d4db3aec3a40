/**
 * Asks a server of Envoy's API as fast as one Node process can: HTTP/2 streams with bodies that were encoded
 * beforehand, answers read no further than their overall code.
 */
import { once } from 'node:events';
import { connect, constants } from 'node:http2';
import type { ClientHttp2Session } from 'node:http2';
import { loadSync } from '@grpc/proto-loader';
import type { ServiceDefinition } from '@grpc/proto-loader';

/** `failed`: an error status, a broken stream, or no answer. */
export type Verdict = 'ok' | 'over_limit' | 'failed';

const SERVICE = 'envoy.service.ratelimit.v3.RateLimitService';
const HEADERS = {
  [constants.HTTP2_HEADER_METHOD]: 'POST',
  [constants.HTTP2_HEADER_PATH]: `/${SERVICE}/ShouldRateLimit`,
  'content-type': 'application/grpc',
  te: 'trailers',
};

const definition = loadSync('envoy/service/ratelimit/v3/rls.proto', { includeDirs: ['proto'] });

/** A request with one descriptor (endpoint, user), framed for gRPC; `hits` of its own, if given. */
export function encodeRequest(endpoint: string, user: string, hits?: number): Buffer {
  const service = definition[SERVICE] as ServiceDefinition; // by its name in rls.proto
  const entries = [
    { key: 'endpoint', value: endpoint },
    { key: 'user', value: user },
  ];
  const body = service['ShouldRateLimit']?.requestSerialize({
    domain: 'bench',
    descriptors: [{ entries, ...(hits !== undefined && { hitsAddend: { value: hits } }) }],
  });
  if (body === undefined) throw new Error('rls.proto has no ShouldRateLimit');
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

/** What a message says of its one descriptor: who decided, and what is left. */
export function decodeStatus(message: Buffer): { byStore: boolean; remaining: number } {
  const service = definition[SERVICE] as ServiceDefinition; // by its name in rls.proto
  const answer = service['ShouldRateLimit']?.responseDeserialize(message) as {
    statuses?: { currentLimit: object | null; limitRemaining: number }[];
  };
  const [status] = answer.statuses ?? [];
  // Only a decision of the store tells its limit.
  return {
    byStore: (status?.currentLimit ?? null) !== null,
    remaining: status?.limitRemaining ?? 0,
  };
}

export class Caller {
  private constructor(
    private readonly sessions: readonly ClientHttp2Session[],
    private readonly headers: Readonly<Record<string, string>>,
  ) {}
  private next = 0;

  /** With `timeoutMs` the server is told how long we wait, as Envoy tells it; we wait all the same. */
  static async open(port: number, connections: number, timeoutMs?: number): Promise<Caller> {
    const sessions = Array.from({ length: connections }, () => connect(`http://127.0.0.1:${port}`));
    await Promise.all(sessions.map((session) => once(session, 'connect')));
    // What breaks is seen by each stream of the session.
    for (const session of sessions) session.on('error', () => undefined);
    const timeout = timeoutMs === undefined ? {} : { 'grpc-timeout': `${timeoutMs}m` };
    return new Caller(sessions, { ...HEADERS, ...timeout });
  }

  /** `done` is called once, with what the server said, how long it took, and the message itself. */
  ask(request: Buffer, done: (verdict: Verdict, ms: number, message: Buffer) => void): void {
    const session = this.sessions[this.next++ % this.sessions.length];
    const sentMs = performance.now();
    let verdict: Verdict = 'failed';
    let message: Buffer = Buffer.alloc(0);
    if (session === undefined || session.destroyed) {
      done(verdict, 0, message);
      return;
    }
    const stream = session.request(this.headers);
    stream.on('data', (chunk: Buffer) => {
      message = chunk.subarray(5);
      // The message is a handful of bytes, and its first field is the code: 08 01 or 08 02.
      if (chunk[5] === 8) verdict = chunk[6] === 1 ? 'ok' : 'over_limit';
    });
    stream.on('error', () => {
      verdict = 'failed';
    });
    stream.on('close', () => {
      done(verdict, performance.now() - sentMs, message);
    });
    stream.end(request);
  }

  close(): void {
    for (const session of this.sessions) session.destroy();
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
