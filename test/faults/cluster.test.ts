import { expect } from 'chai';
import { RedisCluster } from '../support/redis-cluster.js';
import { Service } from '../support/service.js';

const RULES = `
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 100, on_store_error: deny } }
`;

describe('a service whose cluster has lost a node', function () {
  this.timeout(60_000);
  let cluster: RedisCluster;
  let service: Service;

  before(async () => {
    cluster = await RedisCluster.start({ replicas: 0 });
    service = await Service.start(RULES, {
      REDIS_TYPE: 'CLUSTER',
      REDIS_URL: cluster.ports.map((port) => `127.0.0.1:${port}`).join(','),
    });
    await service.untilDecides('user=ready');
  });

  after(async () => {
    await service.stop();
    await cluster.stop();
  });

  it('decides from Redis what the other nodes count, and by policy the rest, without waiting', async () => {
    const users = new Map<number, string[]>(cluster.ports.map((port) => [port, []]));
    for (let i = 0; [...users.values()].some((list) => list.length < 5); i++) {
      users.get(await cluster.masterOf(`f3600|shop|user=${i}`))?.push(`user=${i}`);
    }
    const [victim = 0] = cluster.ports;
    await cluster.kill(victim);
    while ((await service.metric('weir_breaker_open')) === 0) {
      await service.ask(users.get(victim)?.[0] ?? '', 20);
    }
    for (const [port, names] of users) {
      for (const name of names.slice(0, 5)) {
        const { code, statuses, tookMs } = await service.ask(name, 1000);
        const byStore = (statuses[0]?.current_limit ?? null) !== null;
        expect([name, code, byStore]).to.deep.equal(
          port === victim ? [name, 'OVER_LIMIT', false] : [name, 'OK', true],
        );
        // Whoever waited for the node would wait until the deadline, a second.
        if (port === victim) expect(tookMs).to.be.lessThan(500);
      }
    }
    // One request for counters on a dead and a living node: refused, and the living one forgets it.
    const [dead, living] = [
      users.get(victim)?.[1] ?? '',
      users.get(cluster.ports[0] ?? 0)?.[1] ?? '',
    ];
    const before = (await service.ask(`${living}:0`)).statuses[0]?.limit_remaining;
    expect((await service.ask([dead, living])).code).to.equal('OVER_LIMIT');
    expect((await service.ask(`${living}:0`)).statuses[0]?.limit_remaining).to.equal(before);
  });

  it('answers one request with counters on all nodes, one status for each', async () => {
    await cluster.stop();
    cluster = await RedisCluster.start({ replicas: 0 });
    const other = await Service.start(RULES, {
      REDIS_TYPE: 'CLUSTER',
      REDIS_URL: `127.0.0.1:${cluster.ports[0] ?? 0}`,
    });
    try {
      await other.untilDecides('user=ready');
      const { code, statuses } = await other.ask(Array.from({ length: 10 }, (_, i) => `user=${i}`));
      expect(code).to.equal('OK');
      expect(statuses.map(({ limit_remaining }) => limit_remaining)).to.deep.equal(
        new Array<number>(10).fill(99),
      );
    } finally {
      await other.stop();
    }
  });
});
