/**
 * A process of its own that fires takes at one counter: `charge-process.ts PORT CALLERS JSON`, where the
 * JSON names the limit, the keys and the hits. Prints how many were taken. Started by tests.
 */
import type { Limit } from '../../src/model.js';
import { chargeOf, decideOne } from './limits.js';
import { stopStores, until, watchRedisStore } from './redis-store.js';

interface Task {
  readonly limits: readonly Limit[];
  readonly keys: readonly string[];
  readonly hits: number;
}

const [, , port = '', callers = '', json = ''] = process.argv;
const { limits, keys, hits } = JSON.parse(json) as Task;
const { store } = watchRedisStore(Number(port));
store.start();
await until(() => store.connected);
const charges = limits.map((limit, i) => chargeOf(limit, keys[i] ?? '', hits));
const outcomes = await Promise.all(
  Array.from({ length: Number(callers) }, () => decideOne(store, charges)),
);
console.log(outcomes.filter(([outcome]) => outcome?.taken === true).length);
await stopStores();
