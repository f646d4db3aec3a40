/**
 * The primary process of `WORKERS=n`: starts the workers, starts another where one ends, passes signals
 * on, and answers scrapes for all of them. Connections are handed out by Node's cluster module, in turn.
 */
import cluster, { type Worker } from 'node:cluster';
import { setTimeout as pause } from 'node:timers/promises';
import type { RecentReport, RecentScope } from '../admin/recent-report.js';
import { textOf, writeExposition } from '../metrics/exposition.js';
import type { Log } from '../log/log.js';
import { isToPrimary, type ToPrimary, type ToWorker } from './messages.js';
import { WorkerTotals } from './totals.js';

/**
 * A worker that has not told its metrics by then is scraped with what it told before; what it decided lately
 * is left out.
 */
const COLLECT_MS = 500;
/** A worker that ends sooner after its start is started again only after a pause. */
const SHORT_LIFE_MS = 5000;
const RESTART_PAUSE_MS = 1000;

/** The workers and what they have in common. Made once a process. */
export class Primary {
  /** Node's own list drops a worker at its exit or at its channel's end, whichever is later. */
  private readonly alive = new Set<Worker>();
  /** Of those, who hears what it is told: until it has loaded its program, a worker does not. */
  private readonly hearing = new Set<Worker>();
  private readonly totals = new WorkerTotals();
  private readonly collecting = new Map<number, { waiting: Set<number>; done: () => void }>();
  private readonly reports = new Map<number, RecentReport[]>();
  private collections = 0;
  private ready = 0;
  private stopping = false;
  private exitCode = 0;

  constructor(
    private readonly count: number,
    private readonly log: Log,
  ) {}

  /**
   * Starts the workers; resolves with the exit code when all have ended: after `stop`, or because one
   * could not start. One that ends later is replaced.
   */
  run(): Promise<number> {
    return new Promise((resolve) => {
      for (let i = 0; i < this.count; i++) this.start(resolve);
    });
  }

  /** Everybody drains; a second call shortens the drain. */
  stop(signal: NodeJS.Signals): void {
    this.stopping = true;
    this.tell({ type: 'stop', signal });
  }

  private start(ended: (code: number) => void): void {
    const startedMs = performance.now();
    const worker = cluster.fork();
    this.alive.add(worker);
    let isReady = false;
    worker.on('message', (message: unknown) => {
      if (!isToPrimary(message)) return;
      if (message.type === 'hello') {
        this.hearing.add(worker);
        // Nobody balances load over one that has only now begun: it ends at once.
        if (this.stopping) send(worker, { type: 'stop', signal: 'SIGINT' });
      } else if (message.type === 'ready') {
        isReady = true;
        this.ready++;
      } else this.answer(worker, message);
    });
    worker.on('exit', (code: number | null, signal: string | null) => {
      this.alive.delete(worker);
      this.hearing.delete(worker);
      this.forget(worker);
      if (this.stopping || (!isReady && this.ready < this.count)) {
        // Nobody mends a port that is taken: the first to fail ends the start.
        if (!this.stopping) this.stop('SIGINT');
        this.exitCode ||= code ?? 1;
        if (this.alive.size === 0) ended(this.exitCode);
        return;
      }
      this.log.error({ pid: worker.process.pid, code, signal }, 'a worker ended; another starts');
      void this.restart(performance.now() - startedMs, ended);
    });
  }

  private async restart(livedMs: number, ended: (code: number) => void): Promise<void> {
    if (livedMs < SHORT_LIFE_MS) await pause(RESTART_PAUSE_MS);
    if (!this.stopping) this.start(ended);
    else if (this.alive.size === 0) ended(this.exitCode);
  }

  private forget(worker: Worker): void {
    this.totals.remove(worker.id);
    for (const id of this.collecting.keys()) this.collected(worker, id);
  }

  private answer(worker: Worker, message: ToPrimary): void {
    if (message.type === 'families') {
      this.totals.update(worker.id, message.families);
      this.collected(worker, message.id);
    } else if (message.type === 'scrape') void this.scrape(worker, message.id, message.accept);
    else if (message.type === 'recent') void this.gather(worker, message.id, message.scope);
    else if (message.type === 'report') {
      this.reports.get(message.id)?.push(message.report);
      this.collected(worker, message.id);
    } else if (message.type === 'reset') this.tell(message, worker);
  }

  private async scrape(asker: Worker, id: number, accept: string | undefined): Promise<void> {
    await this.collect((collection) => ({ type: 'collect', id: collection }));
    const exposition = await writeExposition(this.totals.all(), accept);
    const { contentType } = exposition;
    // The channel knows no bytes.
    send(asker, { type: 'exposition', id, contentType, text: textOf(exposition) });
  }

  /** What all workers but the asker have decided lately. */
  private async gather(asker: Worker, id: number, scope: RecentScope): Promise<void> {
    const reports: RecentReport[] = [];
    let collection = 0;
    await this.collect((number) => {
      collection = number;
      this.reports.set(number, reports);
      return { type: 'report', id: number, scope };
    }, asker);
    this.reports.delete(collection);
    send(asker, { type: 'reports', id, reports });
  }

  /** Asks the workers; resolves when everyone has answered, or had the time to. */
  private collect(question: (id: number) => ToWorker, except?: Worker): Promise<void> {
    const id = ++this.collections;
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.collecting.delete(id);
        resolve();
      };
      const timer = setTimeout(done, COLLECT_MS);
      this.collecting.set(id, {
        waiting: new Set(
          [...this.hearing].filter((worker) => worker !== except).map((worker) => worker.id),
        ),
        done,
      });
      this.tell(question(id), except);
      // Alone, the asker has nobody to wait for.
      if (this.collecting.get(id)?.waiting.size === 0) done();
    });
  }

  private collected(worker: Worker, id: number): void {
    const collection = this.collecting.get(id);
    if (collection === undefined) return;
    collection.waiting.delete(worker.id);
    if (collection.waiting.size === 0) collection.done();
  }

  private tell(message: ToWorker, except?: Worker): void {
    for (const worker of this.hearing) if (worker !== except) send(worker, message);
  }
}

function send(worker: Worker, message: ToWorker): void {
  // Where the channel is closed the worker ends, which its own event tells.
  if (worker.isConnected()) worker.send(message, () => undefined);
}
