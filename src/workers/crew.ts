/**
 * A worker's side of `WORKERS=n`: its line to the primary, and through it to the other workers. Knows
 * what is said, not what it means.
 */
import type { RecentReport, RecentScope } from '../admin/recent-report.js';
import type { Exposition, Family } from '../metrics/exposition.js';
import { isToWorker, type ToPrimary, type ToWorker } from './messages.js';

/** What a worker does when it is told something. */
export interface CrewDuties {
  /** Its own metrics. */
  collect(): Promise<readonly Family[]>;
  /** What it has decided lately. */
  report(scope: RecentScope): RecentReport;
  /** Another worker has deleted counters. */
  forget(keys: readonly string[]): void;
}

/** The channel that Node opens to a process that was started by another. */
export interface Channel {
  send?(message: unknown, done: (error: Error | null) => void): boolean;
  on(event: 'message', listener: (message: unknown) => void): unknown;
}

export class Crew {
  private duties: CrewDuties | undefined;
  private stop: ((signal: NodeJS.Signals) => void) | undefined;
  private readonly scrapes = new Map<number, (exposition: Exposition) => void>();
  private readonly questions = new Map<number, (reports: readonly RecentReport[]) => void>();
  private asked = 0;

  constructor(private readonly channel: Channel) {
    channel.on('message', (message) => {
      if (isToWorker(message)) this.hear(message);
    });
    this.say({ type: 'hello' });
  }

  /** From now on questions are answered. */
  join(duties: CrewDuties): void {
    this.duties = duties;
  }

  /** `stop` is called for every signal that the primary gets; to be set before anything is awaited. */
  onStop(stop: (signal: NodeJS.Signals) => void): void {
    this.stop = stop;
  }

  /** This worker listens. */
  ready(): void {
    this.say({ type: 'ready' });
  }

  /** The metrics of all workers as one. */
  exposition(accept: string | undefined): Promise<Exposition> {
    const id = ++this.asked;
    return new Promise((resolve) => {
      this.scrapes.set(id, resolve);
      this.say({ type: 'scrape', id, accept });
    });
  }

  /** What the other workers have decided lately; one that does not answer in time is left out. */
  others(scope: RecentScope): Promise<readonly RecentReport[]> {
    const id = ++this.asked;
    return new Promise((resolve) => {
      this.questions.set(id, resolve);
      this.say({ type: 'recent', id, scope });
    });
  }

  /** The others have to know that these counters are gone. */
  reset(keys: readonly string[]): void {
    this.say({ type: 'reset', keys });
  }

  private hear(message: ToWorker): void {
    switch (message.type) {
      case 'stop':
        this.stop?.(message.signal);
        return;
      case 'collect':
        void this.tellMetrics(message.id);
        return;
      case 'exposition':
        this.scrapes.get(message.id)?.({
          contentType: message.contentType,
          body: [Buffer.from(message.text)],
        });
        this.scrapes.delete(message.id);
        return;
      case 'report':
        if (this.duties !== undefined) {
          this.say({ type: 'report', id: message.id, report: this.duties.report(message.scope) });
        }
        return;
      case 'reports':
        this.questions.get(message.id)?.(message.reports);
        this.questions.delete(message.id);
        return;
      case 'reset':
        this.duties?.forget(message.keys);
    }
  }

  private async tellMetrics(id: number): Promise<void> {
    const families = (await this.duties?.collect()) ?? [];
    this.say({ type: 'families', id, families });
  }

  private say(message: ToPrimary): void {
    // A primary that is gone is seen by the channel's end.
    this.channel.send?.(message, () => undefined);
  }
}
