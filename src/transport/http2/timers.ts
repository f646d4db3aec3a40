/** The timers of one connection, which end with it. None keeps the process alive. */
import { MAX_TIMER_MS } from '../calls.js';

export class Timers {
  private readonly running = new Set<NodeJS.Timeout>();
  private ended = false;

  after(ms: number, act: () => void): void {
    if (this.ended) return;
    const timer = setTimeout(
      () => {
        this.running.delete(timer);
        act();
      },
      Math.min(ms, MAX_TIMER_MS),
    ).unref();
    this.running.add(timer);
  }

  every(ms: number, act: () => void): void {
    this.running.add(setInterval(act, Math.min(ms, MAX_TIMER_MS)).unref());
  }

  end(): void {
    this.ended = true;
    for (const timer of this.running) clearTimeout(timer);
    this.running.clear();
  }
}
