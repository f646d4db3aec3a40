import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { Presence } from '../../src/store/presence.js';
import { askGate, startBackend, untilDecides } from '../support/ask-gate.js';
import type { TestBackend } from '../support/ask-gate.js';
import { RedisServer } from '../support/redis-server.js';
import { charge } from '../support/scripted-store.js';

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(20);
}

describe('store/presence', function () {
  this.timeout(20_000);
  let server: RedisServer;
  let tested: TestBackend;
  let present: Presence[];

  const join = (instanceId: string): Presence => {
    const { backend } = tested;
    const presence = new Presence({ commands: backend, keyPrefix: 'p:', instanceId });
    present.push(presence);
    presence.start();
    return presence;
  };

  before(async () => {
    server = await RedisServer.start();
    const { host, port } = server;
    const connection = { host, port, connectTimeoutMs: 1000 };
    tested = startBackend({ type: 'server', connection });
    await untilDecides(tested.backend.gate, charge());
  });

  beforeEach(() => {
    present = [];
  });

  after(async () => {
    await Promise.all(present.map((presence) => presence.stop()));
    await tested.backend.stop();
    await server.stop();
  });

  it('counts every instance once, and those that left no more', async () => {
    const first = join('a');
    expect(first.instances).to.equal(1);
    const second = join('b');
    await until(() => first.instances === 2 && second.instances === 2);
    await second.stop();
    await until(() => first.instances === 1);
    expect(await tested.backend.command('PTTL', 'p:!instances')).to.be.within(1, 10_000);
  });

  it('keeps the last count while Redis is away', async () => {
    const first = join('c');
    const second = join('d');
    // Those of the test before may not have been forgotten yet.
    await until(() => first.instances >= 2 && second.instances >= 2);
    const count = first.instances;
    server.pause();
    await sleep(3000);
    expect(first.instances).to.equal(count);
    server.resume();
    await askGate(tested.backend.gate, [charge()]);
  });
});
