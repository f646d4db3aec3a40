/** Every algorithm by its name. A new one is a pair of files and a line here and in `store/script.ts`. */
import type { AlgorithmName } from '../model.js';
import type { Algorithm, Counter } from './algorithm.js';
import { fixedWindow } from './fixed-window.js';
import { slidingWindow } from './sliding-window.js';
import { slidingWindowCounter } from './sliding-window-counter.js';
import { tokenBucket } from './token-bucket.js';

/** A state is only ever passed back to the algorithm that created it. */
export const ALGORITHMS: Readonly<Record<AlgorithmName, Algorithm<Counter>>> = {
  fixed_window: fixedWindow,
  sliding_window: slidingWindow,
  sliding_window_counter: slidingWindowCounter,
  token_bucket: tokenBucket,
};
