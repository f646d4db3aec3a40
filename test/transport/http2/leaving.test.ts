import { expect } from 'chai';
import { FixedLimiter } from '../fixtures.js';
import { Bench } from '../grpc-client.js';
import {
  ACK,
  ALLOWED,
  call,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  GOAWAY,
  GOOD,
  head,
  HEADERS,
  HELLO,
  message,
  NATIVE_PATH,
  PING,
  PREFACE,
  RawClient,
  settings,
  WATCH_PATH,
  windowUpdate,
} from './raw-client.js';

const NO_ERROR = 0;
const REFUSED_STREAM = 7;
const LAST_STREAM = 2_147_483_647;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe('HTTP/2 connections that end', () => {
  let bench: Bench;
  let client: RawClient;

  async function start(
    options: ConstructorParameters<typeof Bench>[1] = {},
    hello = HELLO,
  ): Promise<void> {
    bench = await new Bench(new FixedLimiter(), { direct: true, ...options }).start();
    client = await RawClient.open(bench.port, hello);
  }

  afterEach(async () => {
    client.close();
    await bench.stop();
    expect(bench.logger.lines).to.deep.equal([]);
  });

  function goAways(): number[][] {
    return client.frames
      .filter((f) => f.type === GOAWAY)
      .map((f) => [f.payload.readUInt32BE(0), f.payload.readUInt32BE(4)]);
  }

  /** Acknowledges the PING that asks whether the first GOAWAY has come. */
  async function acknowledge(): Promise<void> {
    const { payload } = await client.frame(PING);
    client.send(frame(PING, ACK, 0, payload));
  }

  describe('in a drain', () => {
    it('answer what is on its way between two GOAWAYs, and refuse what comes after', async () => {
      await start();
      client.send(call(1));
      await client.answer(1);
      client.send(frame(HEADERS, END_HEADERS, 3, head(WATCH_PATH)));
      await client.ping();
      client.frames.splice(0);
      const drained = bench.server.drain({ delayMs: 0, timeoutMs: 2000 });
      await client.frame(PING);
      expect(goAways()).to.deep.equal([[LAST_STREAM, NO_ERROR]]);
      client.send(call(5, NATIVE_PATH, GOOD));
      expect((await client.answer(5)).messages[0]?.toString('hex')).to.equal(ALLOWED);
      await acknowledge();
      await client.until(() => goAways().length === 2);
      expect(goAways()[1]).to.deep.equal([5, NO_ERROR]);
      client.send(call(7));
      expect((await client.answer(7)).reset).to.equal(REFUSED_STREAM);
      // What was begun before is carried to its end.
      client.send(frame(DATA, END_STREAM, 3, message()));
      await client.until(() => client.on(3).length === 2);
      client.close();
      await drained;
    });

    it('end once the last call has been answered', async () => {
      await start();
      let answer = (): void => undefined;
      bench.limiter.decide = (request, _deadlineMs, done) => {
        answer = () => {
          done(bench.limiter.answer(request));
        };
      };
      client.send(call(1, NATIVE_PATH, GOOD));
      await client.ping();
      client.frames.splice(0);
      const drained = bench.server.drain({ delayMs: 0, timeoutMs: 5000 });
      await acknowledge();
      await client.until(() => goAways().length === 2);
      await pause(20);
      expect(client.closed).to.equal(false);
      answer();
      expect((await client.answer(1)).trailers).to.deep.equal({ 'grpc-status': '0' });
      expect(await client.ending()).to.equal(NO_ERROR);
      await drained;
    });

    it('are not cut while an answer waits for its window', async () => {
      await start({}, Buffer.concat([PREFACE, settings([4, 0])]));
      client.send(call(1, NATIVE_PATH, GOOD));
      await client.ping();
      const drained = bench.server.drain({ delayMs: 0, timeoutMs: 5000 });
      await acknowledge();
      await pause(800);
      expect(client.closed).to.equal(false);
      client.send(windowUpdate(1, 1000));
      expect((await client.answer(1)).trailers).to.deep.equal({ 'grpc-status': '0' });
      expect(await client.ending()).to.equal(NO_ERROR);
      await drained;
    });

    it('hear of it when they come late', async () => {
      await start({}, Buffer.alloc(0));
      await pause(20);
      const drained = bench.server.drain({ delayMs: 0, timeoutMs: 2000 });
      client.send(HELLO, call(1));
      expect((await client.answer(1)).messages).to.have.length(1);
      await acknowledge();
      expect(await client.ending()).to.equal(NO_ERROR);
      await drained;
    });
  });

  describe('for age', () => {
    it('end though the client does not say that it has heard of it', async () => {
      await start({ maxConnectionAgeMs: 50, keepaliveTimeoutMs: 50 });
      expect(await client.ending()).to.equal(NO_ERROR);
      expect(goAways()).to.deep.equal([
        [LAST_STREAM, NO_ERROR],
        [0, NO_ERROR],
      ]);
    });

    it('are cut when the client does not close its side', async () => {
      await start({ maxConnectionAgeMs: 50, keepaliveTimeoutMs: 100 });
      client.socket.allowHalfOpen = true;
      await acknowledge();
      let talks = 0;
      const talking = setInterval(() => {
        talks++;
        client.send(frame(PING, 0, 0, '12345678'));
      }, 10);
      await client.ending();
      clearInterval(talking);
      expect(talks).to.be.greaterThan(1);
      expect(bench.server.connections).to.equal(0);
    });

    it('carry calls until the grace is over', async () => {
      await start({ maxConnectionAgeMs: 50, maxConnectionAgeGraceMs: 200 });
      client.send(frame(HEADERS, END_HEADERS, 1, head(WATCH_PATH)), frame(DATA, 0, 1, message()));
      await acknowledge();
      await client.until(() => goAways().length === 2);
      const before = performance.now();
      bench.health.set(false, '');
      await client.until(() => client.answerNow(1).messages.length === 2);
      await client.ending();
      expect(performance.now() - before).to.be.greaterThan(100);
    });
  });

  describe('for idleness', () => {
    it('are told to go and end', async () => {
      await start({ maxConnectionIdleMs: 50 });
      client.send(call(1));
      await acknowledge();
      expect(await client.ending()).to.equal(NO_ERROR);
    });

    it('are not those with a health watch, or with a call now and then', async () => {
      await start({ maxConnectionIdleMs: 100 });
      const other = await RawClient.open(bench.port);
      client.send(frame(HEADERS, END_HEADERS, 1, head(WATCH_PATH)), frame(DATA, 0, 1, message()));
      for (let id = 1; id < 20; id += 2) {
        other.send(call(id));
        await pause(40);
      }
      for (const each of [client, other]) {
        await each.ping();
        expect(each.frames.some((f) => f.type === GOAWAY)).to.equal(false);
      }
      other.close();
    });

    it('are those that only ping', async () => {
      await start({ maxConnectionIdleMs: 50 });
      for (let i = 0; i < 20 && goAways().length === 0; i++) {
        await client.ping();
        await pause(10);
      }
      expect(goAways()).to.deep.equal([[LAST_STREAM, NO_ERROR]]);
    });
  });

  describe('for silence', () => {
    it('are pinged, and cut when no answer comes', async () => {
      await start({ keepaliveTimeMs: 50, keepaliveTimeoutMs: 50 });
      client.send(frame(HEADERS, END_HEADERS, 1, head(WATCH_PATH)), frame(DATA, 0, 1, message()));
      await client.frame(PING);
      const before = performance.now();
      expect(await client.ending()).to.equal(undefined);
      expect(performance.now() - before).to.be.within(30, 2000);
    });

    it('are not those that answer, nor those that talk anyway', async () => {
      await start({ keepaliveTimeMs: 50, keepaliveTimeoutMs: 50 });
      for (let pings = 1; pings <= 3; pings++) {
        const { payload } = await client.until(
          () => client.frames.filter((f) => f.type === PING)[pings - 1],
        );
        client.send(frame(PING, ACK, 0, payload));
      }
      client.frames.splice(0);
      for (let i = 0; i < 15; i++) {
        client.send(frame(99, 0, 0));
        await pause(10);
      }
      await client.ping();
      expect(client.frames.filter((f) => f.type === PING)).to.have.length(1);
    });
  });

  describe('before they begin', () => {
    for (const [what, hello] of [
      ['nothing', Buffer.alloc(0)],
      ['half of the preface', PREFACE.subarray(0, 12)],
      ['the preface alone', PREFACE],
      ['half of their SETTINGS', Buffer.concat([PREFACE, settings([4, 1]).subarray(0, 12)])],
    ] as const) {
      it(`are those that say ${what}`, async () => {
        await start({ maxConnectionIdleMs: 50 }, hello);
        await client.ending();
        expect(goAways().length).to.be.lessThan(2);
      });
    }
  });

  it('cancel their calls', async () => {
    await start();
    const cancelled: boolean[] = [];
    bench.limiter.decide = (request, _deadlineMs, done) => {
      setTimeout(() => {
        done(bench.limiter.answer(request));
        cancelled.push(true);
      }, 50);
    };
    client.send(call(1, NATIVE_PATH, GOOD), frame(HEADERS, END_HEADERS, 3, head(WATCH_PATH)));
    client.send(frame(DATA, 0, 3, message()));
    await client.ping();
    client.close();
    while (cancelled.length === 0) await pause(5);
    bench.health.set(false, '');
    expect(bench.server.connections).to.equal(0);
  });
});
