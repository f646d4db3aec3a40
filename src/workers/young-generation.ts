/**
 * Bounds the part of the heap that new objects go to. Left alone, Node 24 lets it grow to 64 MB a half, and
 * then a collection of it under load takes longer than Envoy waits. Knows nothing of the service.
 */
import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';

/**
 * A half of it grows to this and no further: pauses grow with the size, and from here on larger ones
 * save no work (docs/performance.md). A start grows it so far in any case.
 */
const MOST_BYTES = 16 * 1024 * 1024;

/**
 * Takes effect from now on, for the life of the process. `--max-semi-space-size` is read before any code
 * runs; what can be changed later is by how much each growth multiplies.
 */
export function boundYoungGeneration(): void {
  let growing = true;
  const observer = new PerformanceObserver(() => {
    const isBelow = halfBytes() < MOST_BYTES;
    if (isBelow === growing) return;
    growing = isBelow;
    // It also shrinks while there is little to do, and must be able to come back.
    setFlagsFromString(`--semi-space-growth-factor=${growing ? '2' : '1'}`);
  });
  observer.observe({ entryTypes: ['gc'] });
}

/** Of the two halves between which survivors are copied, one. */
export function halfBytes(): number {
  const space = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
  return (space?.space_size ?? 0) / 2;
}
