/**
 * What a gRPC server needs of the services, and they of it: calls as bytes in and bytes out. Knows no
 * service, no message and no wire.
 */
import type { Socket } from 'node:net';
import type { status } from '@grpc/grpc-js';

/** A call of one message either way. One of `answer` and `fail` is called, once. */
export interface UnaryCall {
  /** What the caller had left when the call came, in ms; Infinity when it named no deadline. */
  readonly patienceMs: number;
  /** One of the call's headers, by its lower-case name. */
  header(name: string): string | undefined;
  /** The caller has gone: nobody waits for an answer. */
  readonly cancelled: boolean;
  answer(message: Buffer): void;
  /** `code` is not OK. */
  fail(code: status, details: string): void;
}

/** The bytes of `message` are good for the length of this call only. */
export type UnaryMethod = (call: UnaryCall, message: Buffer) => void;

/** A call of any number of messages either way. After `end`, `fail` or its close nothing is sent. */
export interface StreamingCall {
  write(message: Buffer): void;
  end(): void;
  /** `code` is not OK. */
  fail(code: status, details: string): void;
}

/** Told what the caller does. */
export interface CallListener {
  /** The bytes are good for the length of this call only. */
  message(bytes: Buffer): void;
  /** The caller has sent all that it has to say. */
  ended(): void;
  /** The call is over, however; comes once, last. */
  closed(): void;
}

export type StreamingMethod = (call: StreamingCall) => CallListener;

/** All that can be called, by path: `/package.Service/Method`. */
export interface Methods {
  readonly unary: ReadonlyMap<string, UnaryMethod>;
  readonly streaming: ReadonlyMap<string, StreamingMethod>;
}

/** Bounds of a connection and its calls. */
export interface CallLimits {
  readonly maxMessageBytes: number;
  readonly maxConcurrentStreams: number;
  /** After this age, give or take a tenth, a connection is asked to go: clients spread over new replicas. */
  readonly maxConnectionAgeMs: number;
  /** After this much more it is ended. */
  readonly maxConnectionAgeGraceMs: number;
  /** A connection without calls for so long is closed. */
  readonly maxConnectionIdleMs: number;
  /** A connection is pinged so often. */
  readonly keepaliveTimeMs: number;
  /** Without an answer to a ping for so long it is dead. */
  readonly keepaliveTimeoutMs: number;
}

/** Carries calls over the connections that it is handed. */
export interface CallServer {
  accept(connection: Socket): void;
  /** Some call's message has come, and its answer has not gone yet, as far as is known here. */
  readonly isAnswering: boolean;
  /** Every connection gets a GOAWAY; `done` is called when all have ended, which may be never. */
  shutdown(done: () => void): void;
  /** Cuts what is still open. */
  destroy(): void;
}

/** Of all headers of a call, as HTTP/2 counts them. Larger: the stream is reset. */
export const MAX_HEADER_LIST_BYTES = 16_384;

/**
 * So many cancelled calls at once, and so many more a second, before a connection is taken for an attack
 * and cut with all its calls. Envoy cancels whenever its client goes, so this is far from what it does.
 */
export const RESET_BURST = 10_000;
export const RESETS_PER_SECOND = 5000;

/** What the calls of one connection may have sent of messages that are not whole yet, in bytes. */
export const MAX_UNFINISHED_BYTES = 16_777_216;

/** The longest that a timer can run, in ms. */
export const MAX_TIMER_MS = 2_147_483_647;

/**
 * The age at which a connection is asked to go. In steps: Node keeps a list for each duration of a timer
 * that it has seen until it would have ended, 160 bytes a connection for a day.
 */
export function jitteredAgeMs(maxAgeMs: number): number {
  const step = Math.floor(Math.random() * (2 * JITTER_STEPS + 1)) - JITTER_STEPS;
  return Math.min(maxAgeMs + Math.round((maxAgeMs / 10) * (step / JITTER_STEPS)), MAX_TIMER_MS);
}

const JITTER_STEPS = 16;
