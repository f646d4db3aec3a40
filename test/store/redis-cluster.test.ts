import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { Charge } from '../../src/model.js';
import { ALGORITHM_NAMES } from '../../src/model.js';
import type { RedisPlace } from '../../src/store/connect.js';
import { keySlot } from '../../src/store/cluster-slots.js';
import { CounterKeys } from '../../src/store/keys.js';
import { askGate, startBackend, untilDecides } from '../support/ask-gate.js';
import type { TestBackend } from '../support/ask-gate.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { freePort } from '../support/redis-server.js';
import { charge, limit } from '../support/scripted-store.js';

const HOUR_US = 3_600_000_000;
let keys = 0;

/** A counter that no other test uses, with a window that does not end meanwhile. */
function hit(change: Partial<Charge> = {}, requests = 1000): Charge {
  return charge({
    key: `f3600|test|k=${++keys}`,
    limit: limit({ requests, burst: requests, windowUs: HOUR_US }),
    ...change,
  });
}

describe('store/redis-cluster', function () {
  this.timeout(60_000);
  let cluster: RedisCluster;
  let tested: TestBackend;

  const place = (): RedisPlace => ({
    type: 'cluster',
    seeds: cluster.ports.slice(0, 2).map((port) => ({ host: '127.0.0.1', port })),
    connection: { host: '', port: 0, connectTimeoutMs: 1000 },
  });

  before(async () => {
    cluster = await RedisCluster.start();
    tested = startBackend(place());
    await untilDecides(tested.backend.gate, hit({ hits: 0, mode: 'peek' }));
  });

  after(async () => {
    await tested.backend.stop();
    await cluster.stop();
  });

  const remaining = async (counter: Charge): Promise<number> => {
    const look = { ...counter, hits: 0, mode: 'peek' as const };
    const { request } = await askGate(tested.backend.gate, [look]);
    return request.outcomes[0]?.remaining ?? -1;
  };

  it('decides a hundred requests at once, for a hundred counters, by every algorithm', async () => {
    for (const algorithm of ALGORITHM_NAMES) {
      const asked = await Promise.all(
        Array.from({ length: 100 }, (_, i) => {
          const rule = limit({ algorithm, requests: 5, burst: 5, precisionUs: 1_000_000 });
          const counter = hit({ key: `${algorithm}|${i}`, limit: rule });
          return askGate(tested.backend.gate, [counter]);
        }),
      );
      for (const { request } of asked) {
        expect(request.failure).to.equal(undefined);
        expect(request.outcomes[0]).to.include({ fits: true, taken: true, remaining: 4 });
      }
    }
  });

  it('decides one request whose counters are on all nodes', async () => {
    const charges = Array.from({ length: 10 }, () => hit());
    const { request } = await askGate(tested.backend.gate, charges);
    expect(request.outcomes.map((outcome) => outcome?.remaining)).to.deep.equal(
      new Array<number>(10).fill(999),
    );
    const masters = new Set(await Promise.all(charges.map(({ key }) => cluster.masterOf(key))));
    expect(masters.size).to.equal(3);
  });

  it('admits exactly what fits when two instances ask for two counters in different slots', async () => {
    const other = startBackend(place());
    try {
      const user = hit({}, 50);
      const site = hit({}, 1000);
      await untilDecides(other.backend.gate, { ...user, hits: 0, mode: 'peek' });
      const asked = await Promise.all(
        Array.from({ length: 400 }, (_, i) =>
          askGate((i % 2 === 0 ? tested : other).backend.gate, [user, site], 5000),
        ),
      );
      const admitted = asked.filter(({ request }) =>
        request.outcomes.every((outcome) => outcome?.fits),
      ).length;
      expect(admitted).to.equal(50);
      // What was taken in vain is given back after the answer.
      await cluster.until(async () => (await remaining(site)) === 950);
      expect(await remaining(user)).to.equal(0);
    } finally {
      await other.backend.stop();
    }
  });

  it('takes back what one node took when another refuses', async () => {
    for (const algorithm of ALGORITHM_NAMES) {
      const rule = limit({ algorithm, requests: 7, burst: 7, windowUs: HOUR_US, precisionUs: 6e7 });
      const free = hit({ limit: rule, hits: 3 });
      const full = hit({}, 0);
      await askGate(tested.backend.gate, [{ ...free, hits: 2 }]);
      const { request } = await askGate(tested.backend.gate, [free, full]);
      expect(request.outcomes[0]).to.include({ fits: true, taken: false, remaining: 5 });
      // It is given back after the answer.
      await cluster.until(async () => (await remaining(free)) === 5);
    }
    expect(tested.observer.undoFailures).to.equal(0);
  });

  it('spreads over all nodes what a client names with braces', async () => {
    const built = new CounterKeys('');
    const slots = new Set<number>();
    for (let i = 0; i < 1000; i++) {
      const entries = [{ key: 'user', value: `{hot}${i}` }];
      slots.add(keySlot(built.build(limit(), 'shop', entries, undefined, false)));
    }
    expect(slots.size).to.be.greaterThan(900);
    for (const value of ['{x}a', 'a{shop}b', '{', '{}y']) {
      const key = built.build(limit(), 'shop', [{ key: 'user', value }], undefined, false);
      const { request } = await askGate(tested.backend.gate, [hit({ key })]);
      expect(request.outcomes[0]?.taken).to.equal(true);
    }
  });

  it('needs no more permissions than the manual says', async () => {
    const manual = readFileSync('docs/operations.md', 'utf8');
    const acl = /^ACL SETUSER weir on >PASSWORD (.*)$/m.exec(manual)?.[1] ?? '';
    const rules = [...acl.replace('~weir:*', '~*').split(' '), '+cluster|slots', '+asking'];
    for (const port of cluster.ports) {
      await cluster.call(port, 'acl', 'setuser', 'weir', 'reset', 'on', '>sesame', ...rules);
    }
    const connection = { host: '', port: 0, username: 'weir', password: 'sesame' };
    const permitted = startBackend({
      type: 'cluster',
      connection: { ...connection, connectTimeoutMs: 1000 },
      seeds: cluster.ports.map((port) => ({ host: '127.0.0.1', port })),
    });
    try {
      const charges = Array.from({ length: 10 }, () => hit());
      await untilDecides(permitted.backend.gate, charges[0] ?? hit());
      const { request } = await askGate(permitted.backend.gate, charges);
      expect(request.failure).to.equal(undefined);
    } finally {
      await permitted.backend.stop();
    }
  });

  it('follows a slot half of whose keys have moved', async () => {
    const counter = (name: string): Charge => hit({ key: `f3600|{half}${name}` });
    const slot = String(keySlot('{half}'));
    const from = await cluster.masterOf('{half}');
    const to = (await cluster.portsOf('master')).find((port) => port !== from) ?? 0;
    const [fromId, toId] = [
      String(await cluster.call(from, 'cluster', 'myid')),
      String(await cluster.call(to, 'cluster', 'myid')),
    ];
    const stays = counter('stays');
    await askGate(tested.backend.gate, [stays]);
    await cluster.call(to, 'cluster', 'setslot', slot, 'importing', fromId);
    await cluster.call(from, 'cluster', 'setslot', slot, 'migrating', toId);

    // New counters are made where the slot goes to; one batch meets both kinds.
    const asked = await Promise.all(
      [stays, counter('new'), stays, counter('other')].map((one) =>
        askGate(tested.backend.gate, [one]),
      ),
    );
    expect(asked.map(({ request }) => request.outcomes[0]?.remaining)).to.deep.equal([
      ...[998, 999, 997, 999],
    ]);

    // One request for both kinds has to wait until the move has ended.
    const both = askGate(tested.backend.gate, [stays, counter('new')], 5000);
    await sleep(30);
    const address = ['127.0.0.1', String(to)] as const;
    await cluster.call(from, 'migrate', ...address, stays.key, '0', '1000');
    for (const port of [to, from]) {
      await cluster.call(port, 'cluster', 'setslot', slot, 'node', toId);
    }
    const { request } = await both;
    expect(request.outcomes.map((outcome) => outcome?.remaining)).to.deep.equal([996, 998]);
    expect(await cluster.masterOf('{half}')).to.equal(to);
  });

  it('loses and doubles nothing while slots move and a replica takes over', async () => {
    const counters = Array.from({ length: 200 }, () => hit());
    const admitted = new Map<string, number>();
    let asked = 0;
    let answers = 0;
    const failures: string[] = [];
    const moving = { ended: false };
    const load = (async () => {
      for (let i = 0; !moving.ended; i++) {
        const counter = counters[i % counters.length] ?? hit();
        asked++;
        void askGate(tested.backend.gate, [counter]).then(({ request }) => {
          answers++;
          if (request.failure !== undefined) failures.push(request.failure.kind);
          else admitted.set(counter.key, (admitted.get(counter.key) ?? 0) + 1);
        });
        await sleep(1);
      }
    })();
    const [from, to] = await cluster.portsOf('master');
    await cluster.reshard(from ?? 0, to ?? 0, 2000);
    const master = await cluster.masterOf(counters[0]?.key ?? '');
    const failuresOfMoving = [...failures];
    const failOverMs = performance.now();
    await cluster.failOver(await cluster.replicaOf(master));
    const heldMs = performance.now() - failOverMs;
    await sleep(300);
    moving.ended = true;
    await load;
    await cluster.until(() => Promise.resolve(answers === asked));
    expect(answers).to.be.greaterThan(200);
    // Redis holds its clients back while it hands over. When the vote has to be repeated that takes
    // seconds: longer than a call waits, and no fault of ours.
    const held = heldMs > 900;
    const ours = held ? failuresOfMoving : failures;
    expect(ours.length / answers, [...new Set(ours)].join()).to.be.lessThan(0.01);
    let unclear = 0;
    for (const counter of counters) {
      const counted = 1000 - (await remaining(counter));
      unclear += Math.abs(counted - (admitted.get(counter.key) ?? 0));
    }
    // A call that failed may have counted; none that was answered is lost or counted twice.
    expect(unclear).to.be.at.most(failures.length);
    // Whoever took part is known without a word of ours.
    if (!held) expect(tested.observer.breaker).to.deep.equal([]);
  });

  it('goes on deciding on other nodes while one is dead, and on its replica in its place', async () => {
    const victim = (await cluster.portsOf('master'))[0] ?? 0;
    const counters: Charge[] = [];
    const doomed: Charge[] = [];
    while (counters.length < 20 || doomed.length < 20) {
      const counter = hit();
      const list = (await cluster.masterOf(counter.key)) === victim ? doomed : counters;
      if (list.length < 20) list.push(counter);
    }
    const survivor = await cluster.replicaOf(victim);
    await cluster.kill(victim);
    const killedMs = performance.now();
    let elsewhere = 0;
    let missed = 0;
    let waited = 0;
    let recoveredMs = Infinity;
    let promotedMs = Infinity;
    const promotion = cluster
      .until(async () => String(await cluster.call(survivor, 'role')).startsWith('master'))
      .then(() => (promotedMs = performance.now() - killedMs));
    while (recoveredMs === Infinity && performance.now() - killedMs < 20_000) {
      const round = Math.floor((performance.now() - killedMs) / 20);
      const live = counters[round % 20] ?? hit();
      const dead = doomed[round % 20] ?? hit();
      const [one, other] = await Promise.all([
        askGate(tested.backend.gate, [live], 500),
        askGate(tested.backend.gate, [dead], 15),
      ]);
      if (one.request.failure === undefined) elsewhere++;
      else missed++;
      waited = Math.max(waited, one.tookMs, other.tookMs);
      if (other.request.failure === undefined) recoveredMs = performance.now() - killedMs;
      await sleep(20);
    }
    await promotion;
    expect(elsewhere).to.be.greaterThan(5);
    expect(missed).to.equal(0);
    // Whoever waited for a connection to the dead node would wait a second.
    expect(waited).to.be.lessThan(500);
    expect(recoveredMs - promotedMs).to.be.lessThan(2000);
  });
});

describe('store/redis-cluster with nodes that announce names', function () {
  this.timeout(60_000);
  let cluster: RedisCluster;
  let tested: TestBackend;

  before(async () => {
    const announce = ['--cluster-announce-hostname', 'localhost'];
    const prefer = ['--cluster-preferred-endpoint-type', 'hostname'];
    cluster = await RedisCluster.start({ replicas: 0, args: [...announce, ...prefer] });
    const [port = 0] = cluster.ports;
    tested = startBackend({
      type: 'cluster',
      seeds: [{ host: '127.0.0.1', port }],
      connection: { host: '', port: 0, connectTimeoutMs: 1000 },
    });
    await untilDecides(tested.backend.gate, hit({ hits: 0, mode: 'peek' }));
  });

  after(async () => {
    await tested.backend.stop();
    await cluster.stop();
  });

  it('goes to them by name, and finds each again that was restarted', async () => {
    expect(tested.backend.states().map(({ name }) => name.split(':')[0])).to.deep.equal([
      ...['localhost', 'localhost', 'localhost'],
    ]);
    for (const port of cluster.ports) {
      let one = hit();
      while ((await cluster.masterOf(one.key)) !== port) one = hit();
      await cluster.kill(port);
      for (let i = 0; i < 30; i++) {
        const { tookMs } = await askGate(tested.backend.gate, [one], 15);
        // A connection is waited for a second.
        expect(tookMs).to.be.lessThan(500);
        await sleep(10);
      }
      await cluster.restart(port);
      const startedMs = performance.now();
      await cluster.settled();
      await untilDecides(tested.backend.gate, one);
      expect(performance.now() - startedMs).to.be.lessThan(5000);
    }
  });
});

describe('store/redis-cluster of which no node can be reached', () => {
  it('fails each decision at once, and counts the failures', async () => {
    const { backend, observer } = startBackend({
      type: 'cluster',
      seeds: [{ host: '127.0.0.1', port: await freePort() }],
      connection: { host: '', port: 0, connectTimeoutMs: 1000 },
    });
    for (let i = 0; i < 3; i++) {
      const { request, tookMs } = await askGate(backend.gate, [hit(), hit()]);
      expect(request.failure?.kind).to.equal('connection');
      expect(tookMs).to.be.lessThan(500);
    }
    await backend.stop();
    expect(observer.failures).to.deep.equal(Array.from({ length: 6 }, () => 'connection'));
  });
});
