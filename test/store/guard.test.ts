import { expect } from 'chai';
import { Guard } from '../../src/store/guard.js';
import { StoreError } from '../../src/store/store.js';
import type { Gate, StoreRequest } from '../../src/store/store.js';
import { CountingObserver, FITS, ScriptedStore, ask, charge } from '../support/scripted-store.js';
import type { Logger } from '../../src/model.js';

class Gateway implements Gate {
  readonly submitted: StoreRequest[] = [];
  submit(request: StoreRequest): void {
    this.submitted.push(request);
  }
}

function recordingLogger(): Logger & { lines: string[] } {
  const lines: string[] = [];
  const add =
    (level: string) =>
    (_: object, message: string): void =>
      void lines.push(`${level} ${message}`);
  return {
    lines,
    debug: add('debug'),
    info: add('info'),
    warn: add('warn'),
    error: add('error'),
  };
}

const until = async (condition: () => boolean): Promise<void> => {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
};

// Deadlines and probes are real timers: a real clock is what is tested where `nowMs` is the system's.
describe('Guard', () => {
  let gate: Gateway;
  let store: ScriptedStore;
  let observer: CountingObserver;
  let logger: ReturnType<typeof recordingLogger>;
  let guard: Guard;
  let nowMs: () => number;
  let offsetMs: number;

  beforeEach(() => {
    gate = new Gateway();
    store = new ScriptedStore();
    observer = new CountingObserver();
    logger = recordingLogger();
    offsetMs = 0;
    nowMs = () => performance.now() + offsetMs;
    guard = new Guard({ gate, store, observer, logger, keyPrefix: '', name: 'main', nowMs });
  });
  afterEach(() => {
    guard.stop();
  });

  const fail = (kind: 'timeout' | 'connection' | 'oom'): void => {
    const request = ask([charge()]);
    guard.submit(request);
    offsetMs += 20;
    request.fail(new StoreError(kind, 'as the test says'));
  };
  const openBreaker = (): void => {
    for (let i = 0; i < 4; i++) fail('connection');
  };

  it('settles a request at its deadline when the store stays silent', async () => {
    const request = ask([charge()], performance.now() + 5);
    guard.submit(request);
    await until(() => request.settled);
    expect(request.failure?.kind).to.equal('timeout');
    expect(request.outcomes).to.deep.equal([undefined]);
    expect(observer.failures).to.deep.equal(['timeout']);
  });

  it('settles each of several requests at its own deadline, whatever their order', async () => {
    const late = ask([charge()], performance.now() + 60_000);
    const soon = ask([charge()], performance.now() + 5);
    guard.submit(late);
    guard.submit(soon);
    await until(() => soon.settled);
    expect(late.settled).to.equal(false);
  });

  it('keeps what a part of the store has answered when the deadline ends the wait', async () => {
    const request = ask([charge(), charge()], performance.now() + 5);
    guard.submit(request);
    request.outcomes[0] = FITS;
    await until(() => request.settled);
    expect(request.outcomes[0]).to.equal(FITS);
    expect(request.outcomes[1]).to.equal(undefined);
  });

  it('does not look at an answer that comes after the deadline', async () => {
    let answers = 0;
    const request = ask([charge()], performance.now() + 3);
    guard.submit(request);
    await until(() => request.settled);
    request.watch({ settled: () => answers++ });
    request.settle();
    expect(answers).to.equal(0);
  });

  it('undoes what is counted after the deadline, if the request was refused meanwhile', async () => {
    for (const refused of [false, true]) {
      const request = ask([charge(), charge({ key: 'r', mode: 'record' })], performance.now() + 3);
      guard.submit(request);
      await until(() => request.settled);
      if (refused) request.takeBack?.();
      request.outcomes[0] = request.outcomes[1] = { ...FITS, mark: 28 };
      request.settle();
      request.settle();
      const undone = gate.submitted.splice(0).slice(1);
      expect(undone.map(({ charges }) => charges)).to.deep.equal(
        refused ? [[{ ...charge(), role: 'shadow', mode: 'give_back', mark: 28 }]] : [],
      );
    }
  });

  it('opens the breaker after lasting failures and then asks the store no more', () => {
    openBreaker();
    expect(observer.breaker).to.deep.equal([true]);
    const request = ask([charge()]);
    guard.submit(request);
    expect(request.failure?.kind).to.equal('connection');
    expect(gate.submitted).to.not.include(request);
  });

  it('stays closed through a hiccup, however many requests it costs', () => {
    const requests = Array.from({ length: 100 }, () => ask([charge()]));
    for (const request of requests) guard.submit(request);
    offsetMs += 30;
    for (const request of requests) request.fail(new StoreError('timeout', 'late'));
    expect(observer.breaker).to.deep.equal([]);
  });

  const missTinyDeadlines = (times: number): void => {
    for (let i = 0; i < times; i++) {
      const request = ask([charge()]);
      guard.submit(request);
      offsetMs += 2;
      request.fail(new StoreError('timeout', 'a deadline of 2 ms'));
    }
  };

  it('takes no account of callers that gave the store no time', () => {
    for (let i = 0; i < 3; i++) {
      missTinyDeadlines(100);
      const request = ask([charge()]);
      guard.submit(request);
      request.settle();
    }
    expect(observer.breaker).to.deep.equal([]);
  });

  it('takes account of them when the store is silent for as long as a probe would wait', () => {
    missTinyDeadlines(200);
    expect(observer.breaker).to.deep.equal([true]);
  });

  it('forgets failures at the first success', () => {
    for (let i = 0; i < 10; i++) {
      fail('connection');
      fail('connection');
      const request = ask([charge()]);
      guard.submit(request);
      request.settle();
    }
    expect(observer.breaker).to.deep.equal([]);
  });

  it('stays closed while answers come, however late, as long as a probe would have waited', async () => {
    const missDeadlines = async (lateMs: number): Promise<void> => {
      for (let i = 0; i < 10; i++) {
        const request = ask([charge()], performance.now() + offsetMs + 20);
        guard.submit(request);
        offsetMs += 20;
        await until(() => request.settled);
        offsetMs += lateMs;
        request.settle();
      }
    };
    await missDeadlines(100);
    expect(observer.failures).to.have.lengthOf(10);
    expect(observer.breaker).to.deep.equal([]);
    await missDeadlines(300);
    expect(observer.breaker[0]).to.equal(true);
  });

  it('probes in the background with a hit that is written, and closes when it is answered', async () => {
    openBreaker();
    await until(() => store.batches.length > 0);
    const probe = store.batches[0]?.requests[0]?.charges[0];
    expect(probe).to.include({ key: 'f1!probe', mode: 'record', hits: 1 });
    store.answer();
    expect(observer.breaker).to.deep.equal([true, false]);
    const request = ask([charge()]);
    guard.submit(request);
    expect(gate.submitted).to.include(request);
  });

  it('has the connection made anew when probes stay unanswered for a second', async () => {
    openBreaker();
    offsetMs += 2000;
    await until(() => store.reconnects > 0);
    expect(observer.breaker).to.deep.equal([true]);
  });

  it('logs a change of state once, however often requests fail', () => {
    openBreaker();
    for (let i = 0; i < 50; i++) guard.submit(ask([charge()]));
    expect(logger.lines).to.deep.equal([
      'error decisions are made by policy: Redis cannot be reached: is it running, and are host, port and TLS settings right?',
    ]);
  });

  it('settles what is outstanding when it stops', () => {
    const request = ask([charge()]);
    guard.submit(request);
    guard.stop();
    expect(request.failure?.kind).to.equal('connection');
  });

  it('probes no more once it has stopped, though a probe was out', async () => {
    openBreaker();
    await until(() => store.batches.length === 1);
    guard.stop();
    store.batches[0]?.requests[0]?.fail(new StoreError('connection', 'the store is stopped'));
    // Longer than between the first probes.
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(store.batches).to.have.length(1);
  });
});
