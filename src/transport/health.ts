/**
 * The health service of gRPC: the state of each service, and who watches it. Knows its own three small
 * messages, and nothing of the server.
 */
import type { HealthSource } from './front-door.js';
import { BYTES, END_GROUP, malformed, Reader, Writer } from './protobuf.js';

/** What may be asked for: the server, its usual name, and the two services. */
export const HEALTH_SERVICES = [
  '',
  'ratelimit',
  'envoy.service.ratelimit.v3.RateLimitService',
  'weir.v1.RateLimiter',
] as const;

export const SERVING = 1;
export const NOT_SERVING = 2;
export const SERVICE_UNKNOWN = 3;
type ServingStatus = typeof SERVING | typeof NOT_SERVING | typeof SERVICE_UNKNOWN;

/** What Watch needs of a stream. */
export interface WatchStream {
  write(message: Buffer): void;
  end(): void;
}

/** One state for all services: they share everything that could be ill. */
export class Health {
  private readonly watchers = new Map<WatchStream, ServingStatus>();
  private draining = false;

  constructor(private readonly source: HealthSource) {
    source.onChange(() => {
      this.notify();
    });
  }

  serving(): boolean {
    return !this.draining && this.source.serving();
  }

  /** The state of a service; SERVICE_UNKNOWN for one that there is not. */
  status(service: string): ServingStatus {
    if (!HEALTH_SERVICES.some((known) => known === service)) return SERVICE_UNKNOWN;
    return this.serving() ? SERVING : NOT_SERVING;
  }

  /** Tells the stream the state now and whenever it changes. */
  watch(service: string, stream: WatchStream): void {
    const status = this.status(service);
    // Before it is written to, which may end it.
    this.watchers.set(stream, status);
    stream.write(encodeHealth(status));
  }

  unwatch(stream: WatchStream): void {
    this.watchers.delete(stream);
  }

  /** From now on nothing is serving. */
  drain(): void {
    this.draining = true;
    this.notify();
  }

  /** Ends all watches, or they would hold up a shutdown for ever. */
  endWatches(): void {
    for (const stream of this.watchers.keys()) stream.end();
    this.watchers.clear();
  }

  private notify(): void {
    const status = this.serving() ? SERVING : NOT_SERVING;
    for (const [stream, last] of this.watchers) {
      if (last === SERVICE_UNKNOWN || last === status) continue;
      this.watchers.set(stream, status);
      stream.write(encodeHealth(status));
    }
  }
}

const MAX_NAME_BYTES = 1024;

/** The service that a HealthCheckRequest asks for. Throws RequestError for what is none. */
export function decodeHealthRequest(bytes: Buffer): string {
  const reader = new Reader(bytes);
  let service = '';
  while (reader.more()) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) service = reader.string(MAX_NAME_BYTES, 'service');
    else if ((tag & 7) === END_GROUP) throw malformed('a group ends that did not begin');
    else reader.skip(tag);
  }
  return service;
}

const writer = new Writer();

/** A HealthCheckResponse. */
export function encodeHealth(status: ServingStatus): Buffer {
  writer.uint(1, status);
  return writer.finish();
}

/** A HealthListResponse with the state of every service. */
export function encodeHealthList(health: Health): Buffer {
  for (const service of [...HEALTH_SERVICES].reverse()) {
    const mark = writer.mark();
    const value = writer.mark();
    writer.uint(1, health.status(service));
    writer.message(2, value);
    writer.string(1, service);
    writer.message(1, mark);
  }
  return writer.finish();
}
