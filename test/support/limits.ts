/** Limits and charges in one line, for tests of algorithms and stores. */
import type { AlgorithmName, Limit, Mode, Role, Unit } from '../../src/model.js';
import { UNIT_SECONDS } from '../../src/model.js';
import { ALGORITHMS } from '../../src/algorithms/registry.js';
import type { StoreCharge, StoreOutcome } from '../../src/store/store.js';
import { StoreRequest } from '../../src/store/store.js';
import type { Store } from '../../src/store/store.js';

export interface LimitOptions {
  readonly unit?: Unit;
  readonly unitMultiplier?: number;
  readonly burst?: number;
  readonly precisionUs?: number;
}

/** `requests` per unit (default minute); burst and precision as configuration would choose them. */
export function limitOf(
  algorithm: AlgorithmName,
  requests: number,
  options: LimitOptions = {},
): Limit {
  const unit = options.unit ?? 'minute';
  const unitMultiplier = options.unitMultiplier ?? 1;
  const seconds = UNIT_SECONDS[unit] * unitMultiplier;
  const counter = algorithm === 'sliding_window_counter';
  return {
    name: '',
    algorithm,
    requests,
    unit,
    unitMultiplier,
    windowUs: seconds * 1_000_000,
    burst: algorithm === 'token_bucket' ? (options.burst ?? requests) : requests,
    precisionUs: counter ? (options.precisionUs ?? Math.floor((seconds * 1_000_000) / 60)) : 0,
    onStoreError: 'allow',
    countRejected: undefined,
    disclose: 'full',
    keyHead: `${ALGORITHMS[algorithm].letter}${String(seconds)}`,
  };
}

export interface ChargeOptions {
  readonly mode?: Mode;
  readonly role?: Role;
  readonly mark?: number;
}

/** Enforced and a take unless said otherwise. */
export function chargeOf(
  limit: Limit,
  key: string,
  hits: number,
  options: ChargeOptions = {},
): StoreCharge {
  const { mode = 'take', role = 'enforced', mark } = options;
  return { limit, key, hits, role, mode, ...(mark === undefined ? {} : { mark }) };
}

/** Decides a batch and resolves to the settled requests, in order. */
export function decideAll(
  store: Store,
  requests: readonly (readonly StoreCharge[])[],
): Promise<StoreRequest[]> {
  return new Promise((resolve) => {
    const batch = requests.map((charges) => new StoreRequest(charges, Infinity, () => undefined));
    store.decide(batch, () => {
      resolve(batch);
    });
  });
}

/** Decides one request; rejects with its failure. */
export async function decideOne(
  store: Store,
  charges: readonly StoreCharge[],
): Promise<StoreOutcome[]> {
  const [request] = await decideAll(store, [charges]);
  if (request === undefined) throw new Error('the batch came back empty');
  if (request.failure !== undefined) throw request.failure;
  return request.outcomes.map((outcome) => {
    if (outcome === undefined) throw new Error('a charge has no outcome');
    return outcome;
  });
}
