/** Processes whose clock is wrong, by libfaketime. Where it is missing `findFakeClock` says so. */
import { existsSync } from 'node:fs';

const PLACES = ['x86_64-linux-gnu', 'aarch64-linux-gnu'].map(
  (machine) => `/usr/lib/${machine}/faketime/libfaketime.so.1`,
);

/** The path of the library, undefined where it is not installed (Debian's package `faketime`). */
export function findFakeClock(): string | undefined {
  return PLACES.find((path) => existsSync(path));
}

/** Environment of a process whose clock is off by so many seconds; only the time of day is. */
export function clockOff(library: string, seconds: number): Record<string, string> {
  return {
    LD_PRELOAD: library,
    FAKETIME: `${seconds < 0 ? '-' : '+'}${Math.abs(seconds)}s`,
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  };
}
