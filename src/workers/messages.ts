/**
 * What the processes of one service say to each other, over Node's own channel. The primary decides
 * nothing and serves nothing: it keeps the workers alive and puts together what each of them knows.
 */
import type { RecentReport, RecentScope } from '../admin/recent-report.js';
import type { Family } from '../metrics/exposition.js';

/** From a worker to the primary. */
export type ToPrimary =
  /** This worker hears what it is told from now on; what was said to it before is lost. */
  | { readonly type: 'hello' }
  | { readonly type: 'ready' }
  /** A scrape has come: what does everybody say? */
  | { readonly type: 'scrape'; readonly id: number; readonly accept: string | undefined }
  /** The answer to `collect`. */
  | { readonly type: 'families'; readonly id: number; readonly families: readonly Family[] }
  /** The admin page is looked at: what have the others decided lately? */
  | { readonly type: 'recent'; readonly id: number; readonly scope: RecentScope }
  /** The answer to `report`. */
  | { readonly type: 'report'; readonly id: number; readonly report: RecentReport }
  /** Tell everybody else. */
  | { readonly type: 'reset'; readonly keys: readonly string[] };

/** From the primary to a worker. */
export type ToWorker =
  /** Drain and end; a second one shortens the drain. */
  | { readonly type: 'stop'; readonly signal: NodeJS.Signals }
  | { readonly type: 'collect'; readonly id: number }
  /** The answer to `scrape`. */
  | {
      readonly type: 'exposition';
      readonly id: number;
      readonly contentType: string;
      readonly text: string;
    }
  | { readonly type: 'report'; readonly id: number; readonly scope: RecentScope }
  /** The answer to `recent`. */
  | { readonly type: 'reports'; readonly id: number; readonly reports: readonly RecentReport[] }
  /** Counters have been deleted: what is remembered of them is wrong. */
  | { readonly type: 'reset'; readonly keys: readonly string[] };

/** Whether this came from a worker, and not from Node, which uses the same channel. */
export function isToPrimary(message: unknown): message is ToPrimary {
  return hasType(message);
}

/** Whether this came from the primary. */
export function isToWorker(message: unknown): message is ToWorker {
  return hasType(message);
}

function hasType(message: unknown): boolean {
  return (
    typeof message === 'object' &&
    message !== null &&
    'type' in message &&
    typeof message.type === 'string'
  );
}
