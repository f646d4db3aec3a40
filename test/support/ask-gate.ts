/** Asks a gate as the limiter does, with a deadline, and waits for what becomes of it. */
import type { Charge, Logger } from '../../src/model.js';
import { createBackend } from '../../src/store/connect.js';
import type { RedisPlace } from '../../src/store/connect.js';
import type { Backend } from '../../src/store/backend.js';
import { StoreRequest } from '../../src/store/store.js';
import type { Gate } from '../../src/store/store.js';
import { CountingObserver } from './scripted-store.js';

export interface Asked {
  readonly request: StoreRequest;
  readonly tookMs: number;
}

/** Resolves when the request is settled; `deadlineMs` is how long it may take. */
export function askGate(gate: Gate, charges: readonly Charge[], deadlineMs = 1000): Promise<Asked> {
  const startMs = performance.now();
  return new Promise((resolve) => {
    gate.submit(
      new StoreRequest(charges, startMs + deadlineMs, (request) => {
        resolve({ request, tookMs: performance.now() - startMs });
      }),
    );
  });
}

/** Waits until the gate decides; by default it may need ten seconds. */
export async function untilDecides(gate: Gate, look: Charge, patienceMs = 10_000): Promise<number> {
  const startMs = performance.now();
  for (;;) {
    const { request } = await askGate(gate, [look]);
    const tookMs = performance.now() - startMs;
    if (request.failure === undefined) return tookMs;
    if (tookMs > patienceMs)
      throw new Error('the store does not decide', { cause: request.failure });
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Log lines, as text of one line each. */
export class LineLogger implements Logger {
  readonly lines: string[] = [];

  debug(fields: object, message: string): void {
    this.note('debug', fields, message);
  }
  info(fields: object, message: string): void {
    this.note('info', fields, message);
  }
  warn(fields: object, message: string): void {
    this.note('warn', fields, message);
  }
  error(fields: object, message: string): void {
    this.note('error', fields, message);
  }

  private note(level: string, fields: object, message: string): void {
    this.lines.push(`${level} ${message} ${JSON.stringify(fields)}`);
  }
}

export interface TestBackend {
  readonly backend: Backend;
  readonly observer: CountingObserver;
  readonly logger: LineLogger;
}

/** One that has been started; stop it. */
export function startBackend(place: RedisPlace, keyPrefix = ''): TestBackend {
  const observer = new CountingObserver();
  const logger = new LineLogger();
  const backend = createBackend({
    place,
    name: 'main',
    keyPrefix,
    expirationJitterMs: 0,
    observer,
    undone: (charges) => {
      observer.undone(charges);
    },
    logger,
    nowMs: () => performance.now(),
    nowUs: () => Date.now() * 1000,
  });
  backend.start();
  return { backend, observer, logger };
}
