/**
 * One Redis, whatever its topology, as everything above sees it: a gate for decisions with deadlines and
 * breakers in it, and a few commands off the decision path.
 */
import type { GuardState } from './guard.js';
import type { Gate } from './store.js';

/** What a breaker says of itself, and which node it is about. */
export type NamedGuardState = GuardState & { readonly name: string };

/** Commands on one key each, for what is not a decision. */
export interface KeyCommands {
  /**
   * Sends one command whose first argument is a key. Rejects with StoreError, within about a second.
   * It is never sent again by itself.
   */
  command(name: string, key: string, ...args: readonly string[]): Promise<unknown>;
  /** Runs a Lua script on one key. Rejects as `command` does. */
  evaluate(script: string, key: string, ...args: readonly string[]): Promise<unknown>;
}

export interface Backend extends KeyCommands {
  readonly gate: Gate;
  /** A connection is open to everything that decisions need. */
  readonly connected: boolean;
  states(): readonly NamedGuardState[];
  /** Deletes these counters; resolves to how many there were. Rejects with StoreError. */
  reset(keys: readonly string[]): Promise<number>;
  /** Sends one command to every server that decides; one outcome each. Never rejects. */
  broadcast(name: string, ...args: readonly string[]): Promise<PromiseSettledResult<unknown>[]>;
  start(): void;
  stop(): Promise<void>;
}
