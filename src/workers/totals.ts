/**
 * The metrics of all workers as one. What a worker had counted when it died goes on counting: a total
 * that fell would look to Prometheus like a restart of everything. Pure; knows no processes.
 */
import { mergeFamilies, type Family } from '../metrics/exposition.js';

export class WorkerTotals {
  private readonly latest = new Map<number, readonly Family[]>();
  private departed: readonly Family[] = [];

  /** What a worker has counted so far. */
  update(worker: number, families: readonly Family[]): void {
    this.latest.set(worker, families);
  }

  /** A worker has ended: its totals stay, what it was is gone. */
  remove(worker: number): void {
    const last = this.latest.get(worker);
    this.latest.delete(worker);
    if (last === undefined) return;
    const totals = last.filter(({ type, merge }) => type !== 'gauge' && merge === 'sum');
    this.departed = mergeFamilies([this.departed, totals]);
  }

  /** Everything, in the order in which the workers tell it. */
  all(): readonly Family[] {
    return mergeFamilies([...this.latest.values(), this.departed]);
  }
}
