/**
 * Every fault in turn against a real service and a real Redis, while it is asked 2,000 times a second by a caller
 * who waits 20 ms. Prints what that did to the answers and writes it into docs/operations.md; ends with exit code
 * 1 when a promise was not kept. `npm run build && npx tsx bench/faults.ts [per second] [part of a fault's name]`
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { startWeir } from '../test/support/weir-process.js';
import { Caller, openLoop } from './caller.js';
import { FaultyRedis } from './faulty-redis.js';
import type { Fault } from './faulty-redis.js';
import { decodeStatus, encodeOne } from './wire.js';

const perSecond = Number(process.argv[2] ?? 2000);
const only = process.argv[3] ?? '';

const DEADLINE_MS = 20;
const LIMIT = 50;
const USERS = 40;
const BEFORE_MS = 1000;
const FAULT_MS = 4000;
const AFTER_S = 3;
const WARM_UP_S = 5;
/** So many decisions of the store in a row, and it is back. */
const IN_A_ROW = 100;
const MOST_RECOVERY_MS = 2000;

const POLICIES = ['allow', 'deny', 'local'] as const;
type Policy = (typeof POLICIES)[number];
/** What a policy may admit of a limit in all: `local` counts a share of its own for each instance. */
const FACTORS: Readonly<Record<Policy, number>> = { allow: Infinity, deny: 1, local: 2 };

const RULES = `
domain: bench
descriptors:
${POLICIES.map(
  (policy) => `  - key: endpoint
    value: /${policy}
    descriptors:
      - key: user
        rate_limit: { unit: day, requests_per_unit: ${LIMIT}, on_store_error: ${policy} }
`,
).join('')}`;

const redis = await FaultyRedis.start();
const faults: readonly Fault[] = [
  { name: 'none', begin: () => undefined, end: undefined },
  ...redis.passing,
  redis.demotion,
];
const weir = await startWeir({
  files: { 'bench.yaml': RULES },
  env: { REDIS_URL: `127.0.0.1:${redis.proxy.port}` },
  program: ['dist/main.js'],
});
const caller = await Caller.open(weir.grpcPort, 4, DEADLINE_MS);

/** How long this process itself has stood still since it began: time that no caller of a real service waits. */
let stalledMs = 0;
let tickMs = performance.now();
const ticking = setInterval(() => {
  const nowMs = performance.now();
  stalledMs += Math.max(0, nowMs - tickMs - 1.5);
  tickMs = nowMs;
}, 1);

interface Row {
  readonly fault: string;
  calls: number;
  errors: number;
  late: number;
  longestMs: number;
  byPolicy: number;
  /** Of one user's limit. */
  readonly mostAdmitted: Record<Policy, number>;
  /** Hits that Redis counts and whose requests were not admitted. */
  countedOnly: number;
  recoveryMs: number;
}

async function measure(fault: Fault, number: number): Promise<Row> {
  const row: Row = {
    fault: fault.name,
    calls: 0,
    errors: 0,
    late: 0,
    longestMs: 0,
    byPolicy: 0,
    mostAdmitted: { allow: 0, deny: 0, local: 0 },
    countedOnly: 0,
    recoveryMs: Infinity,
  };
  const admitted = new Map<string, number>();
  const admittedByStore = new Map<string, number>();
  let inARow = 0;
  let rowBeganMs = 0;
  let backMs = Infinity;
  let sent = 0;
  const send = (done: () => void): void => {
    const policy = POLICIES[sent % POLICIES.length] ?? 'allow';
    const user = `f${number}u${Math.floor(sent++ / POLICIES.length) % USERS}`;
    const id = `${policy} ${user}`;
    const stalledBefore = stalledMs;
    caller.ask(encodeOne(`/${policy}`, user), (verdict, tookMs, message) => {
      const nowMs = performance.now();
      const waitedMs = Math.max(0, tookMs - (stalledMs - stalledBefore));
      row.calls++;
      if (verdict === 'failed') row.errors++;
      if (waitedMs > DEADLINE_MS) row.late++;
      row.longestMs = Math.max(row.longestMs, waitedMs);
      const byStore = verdict !== 'failed' && decodeStatus(message).byStore;
      if (!byStore) row.byPolicy++;
      if (verdict === 'ok') {
        admitted.set(id, (admitted.get(id) ?? 0) + 1);
        if (byStore) admittedByStore.set(id, (admittedByStore.get(id) ?? 0) + 1);
      }
      if (nowMs > backMs && row.recoveryMs === Infinity) {
        if (!byStore) inARow = 0;
        else if (inARow++ === 0) rowBeganMs = nowMs;
        if (inARow === IN_A_ROW) row.recoveryMs = rowBeganMs - backMs;
      }
      done();
    });
  };
  const load = openLoop(perSecond, BEFORE_MS / 1000 + FAULT_MS / 1000 + AFTER_S, send);
  await sleep(BEFORE_MS);
  await fault.begin();
  if (fault.end === undefined) backMs = performance.now();
  await sleep(FAULT_MS);
  await fault.end?.();
  if (fault.end !== undefined) backMs = performance.now();
  await load;

  for (const policy of POLICIES) {
    for (let i = 0; i < USERS; i++) {
      const user = `f${number}u${i}`;
      const id = `${policy} ${user}`;
      const ofLimit = policy === 'allow' ? admittedByStore : admitted;
      row.mostAdmitted[policy] = Math.max(row.mostAdmitted[policy], ofLimit.get(id) ?? 0);
      const counted = LIMIT - (await remaining(policy, user));
      row.countedOnly += Math.max(0, counted - (admitted.get(id) ?? 0));
    }
  }
  return row;
}

/** As the store knows it. */
async function remaining(policy: Policy, user: string): Promise<number> {
  for (;;) {
    const status = await new Promise<{ byStore: boolean; remaining: number }>((resolve) => {
      caller.ask(encodeOne(`/${policy}`, user, 0), (_verdict, _ms, message) => {
        resolve(decodeStatus(message));
      });
    });
    if (status.byStore) return status.remaining;
    await sleep(5);
  }
}

/** What was promised and not kept. */
function broken(row: Row): string[] {
  const problems: string[] = [];
  if (row.errors > 0) problems.push(`${row.errors} calls failed`);
  if (row.late > 0) problems.push(`${row.late} answers came after the deadline`);
  if (row.recoveryMs > MOST_RECOVERY_MS)
    problems.push(`back after ${row.recoveryMs.toFixed(0)} ms`);
  for (const policy of POLICIES) {
    const most = policy === 'allow' ? LIMIT : LIMIT * FACTORS[policy];
    if (row.mostAdmitted[policy] > most) {
      problems.push(`${row.mostAdmitted[policy]} of ${most} admitted by ${policy}`);
    }
  }
  return problems.map((problem) => `${row.fault}: ${problem}`);
}

const HEAD = [
  ['fault', 'calls', 'errors', 'late', 'longest wait', 'by policy'],
  ['most admitted: allow¹ / deny / local', 'counted only²', 'back after'],
].flat();

function toTable(rows: readonly Row[]): string {
  const lines = rows.map((row) => [
    ...[row.fault, String(row.calls), String(row.errors), String(row.late)],
    ...[`${row.longestMs.toFixed(1)} ms`, `${((100 * row.byPolicy) / row.calls).toFixed(1)} %`],
    POLICIES.map((policy) => row.mostAdmitted[policy]).join(' / '),
    ...[String(row.countedOnly), `${row.recoveryMs.toFixed(0)} ms`],
  ]);
  const all = [HEAD, HEAD.map((_, i) => (i === 0 ? '---' : '---:')), ...lines];
  return all.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** Code gets warm: a service that has just started is slower, which is no matter of faults. */
async function warmUp(): Promise<void> {
  let sent = 0;
  await openLoop(perSecond, WARM_UP_S, (done) => {
    const request = encodeOne(`/${POLICIES[sent % POLICIES.length]}`, `w${sent++ % USERS}`);
    caller.ask(request, () => {
      done();
    });
  });
}

const rows: Row[] = [];
try {
  await warmUp();
  for (const [i, fault] of faults.entries()) {
    if (!fault.name.includes(only)) continue;
    const row = await measure(fault, i);
    rows.push(row);
    console.log(toTable([row]).split('\n')[2]);
    await sleep(500);
  }
} finally {
  clearInterval(ticking);
  caller.close();
  await weir.stop();
  await redis.stop();
}
if (only === '') {
  const page = 'docs/operations.md';
  const text = readFileSync(page, 'utf8');
  const between = /(<!-- faults: begin -->\n)[\s\S]*(<!-- faults: end -->)/;
  if (!between.test(text)) throw new Error(`${page} has no place for the table`);
  writeFileSync(page, text.replace(between, `$1\n${toTable(rows)}\n\n$2`));
}
const problems = rows.flatMap(broken);
for (const problem of problems) console.error(`BROKEN ${problem}`);
process.exitCode = problems.length > 0 ? 1 : 0;
