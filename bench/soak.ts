/**
 * Load with random faults, for ten minutes or as long as is said; ends with exit code 1 when a call failed, memory
 * grew, a limit admitted too much, a counter was left without expiry, the sums differ, or Redis was not picked up
 * within two seconds. `npm run build && npx tsx bench/soak.ts [minutes] [per second] [seed]`
 */
import { soak } from './soak-run.js';

const minutes = Number(process.argv[2] ?? 10);
const perSecond = Number(process.argv[3] ?? 500);
const seed = Number(process.argv[4] ?? Date.now() % 1_000_000);

console.log(`seed ${seed}`);
const problems = await soak({
  seed,
  seconds: minutes * 60,
  perSecond,
  program: ['dist/main.js'],
  print: (line) => {
    console.log(line);
  },
});
for (const problem of problems) console.error(`BROKEN ${problem}`);
process.exitCode = problems.length > 0 ? 1 : 0;
