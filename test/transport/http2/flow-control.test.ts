import { expect } from 'chai';
import { decisionOf, descriptorDecision, limitDecision } from '../fixtures.js';
import { Bench } from '../grpc-client.js';
import {
  ALLOWED,
  call,
  DATA,
  END_HEADERS,
  END_STREAM,
  ENVOY_GOOD,
  ENVOY_PATH,
  frame,
  GOAWAY,
  GOOD,
  head,
  HEADERS,
  initialWindow,
  message,
  NATIVE_PATH,
  PADDED,
  PREFACE,
  RawClient,
  REFLECTION_PATH,
  RST_STREAM,
  SERVING,
  settings,
  uint32,
  WATCH_PATH,
  WINDOW_UPDATE,
  windowUpdate,
} from './raw-client.js';

const FLOW_CONTROL_ERROR = 3;
const MIB = 1_048_576;

describe('HTTP/2 flow control', () => {
  let bench: Bench;
  let client: RawClient;

  async function open(window?: number): Promise<void> {
    client = await RawClient.open(
      bench.port,
      Buffer.concat([PREFACE, window === undefined ? settings() : initialWindow(window)]),
    );
  }

  /** Envoy's answers have this many statuses, of 16 bytes each. */
  function answerWith(statuses: number): void {
    bench.limiter.answer = () =>
      decisionOf(
        Array.from({ length: statuses }, () => descriptorDecision({ limits: [limitDecision()] })),
      );
  }

  beforeEach(async () => {
    bench = await new Bench(undefined, { direct: true }).start();
  });

  afterEach(async () => {
    client.close();
    await bench.stop();
    expect(bench.logger.lines).to.deep.equal([]);
  });

  describe('of what it sends', () => {
    it('sends headers and no data in a window of nothing, and the rest once it opens', async () => {
      await open(0);
      client.send(call(1, NATIVE_PATH, GOOD));
      await client.ping();
      expect(client.on(1).map((f) => f.type)).to.deep.equal([HEADERS]);
      client.send(windowUpdate(1, 100));
      expect(await client.answer(1)).to.deep.equal({
        headers: { ':status': '200', 'content-type': 'application/grpc' },
        messages: [Buffer.from(ALLOWED, 'hex')],
        trailers: { 'grpc-status': '0' },
        reset: undefined,
      });
    });

    it('sends byte by byte in a window of one', async () => {
      await open(1);
      client.send(call(1, NATIVE_PATH, GOOD));
      for (let sent = 1; sent <= 7; sent++) {
        await client.ping();
        expect(client.dataOn(1).length).to.equal(sent);
        client.send(windowUpdate(1, 1));
      }
      expect((await client.answer(1)).trailers).to.deep.equal({ 'grpc-status': '0' });
      const sizes = client.on(1).filter((f) => f.type === DATA);
      expect(sizes.map((f) => f.payload.length)).to.deep.equal([1, 1, 1, 1, 1, 1, 1]);
    });

    it('ends an answer that just fits without asking for more', async () => {
      await open(7);
      client.send(call(1, NATIVE_PATH, GOOD));
      expect((await client.answer(1)).messages).to.have.length(1);
    });

    it('sends the end of a call whatever the window', async () => {
      await open(0);
      client.send(call(1, '/no/Method', GOOD));
      expect((await client.answer(1)).trailers).to.include({ 'grpc-status': '12' });
    });

    it('takes a window that SETTINGS change in mid-answer, also below nothing', async () => {
      await open(5);
      client.send(call(1, NATIVE_PATH, GOOD));
      await client.ping();
      expect(client.dataOn(1).length).to.equal(5);
      // Five are used of two: three are owed.
      client.send(initialWindow(2), windowUpdate(1, 3));
      await client.ping();
      expect(client.dataOn(1).length).to.equal(5);
      client.send(initialWindow(3));
      await client.ping();
      expect(client.dataOn(1).length).to.equal(6);
      client.send(initialWindow(65_535));
      expect((await client.answer(1)).messages).to.deep.equal([Buffer.from(ALLOWED, 'hex')]);
    });

    it('applies the last of several windows in one frame, to every stream', async () => {
      await open(0);
      client.send(call(1, NATIVE_PATH, GOOD), call(3, NATIVE_PATH, GOOD));
      client.send(settings([4, 100], [4, 0], [4, 1]));
      await client.ping();
      expect(client.dataOn(1).length).to.equal(1);
      expect(client.dataOn(3).length).to.equal(1);
    });

    it('sends a large answer in frames of 16 KiB', async () => {
      answerWith(4000);
      await open(MIB);
      client.send(call(1, ENVOY_PATH, ENVOY_GOOD));
      const answer = await client.answer(1);
      const sizes = client.on(1).flatMap((f) => (f.type === DATA ? [f.payload.length] : []));
      expect(sizes.slice(0, -1)).to.deep.equal([16_384, 16_384, 16_384]);
      expect(answer.messages.map((m) => m.length)).to.deep.equal([64_002]);
      expect(answer.trailers).to.deep.equal({ 'grpc-status': '0' });
    });

    it('stops at the window of the connection, and serves its streams in their order', async () => {
      answerWith(1750);
      await open(MIB);
      client.send(...[1, 3, 5, 7].map((stream) => call(stream, ENVOY_PATH, ENVOY_GOOD)));
      await client.ping();
      const sent = () => [1, 3, 5, 7].map((stream) => client.dataOn(stream).length);
      expect(sent()).to.deep.equal([28_007, 28_007, 65_535 - 2 * 28_007, 0]);
      client.send(windowUpdate(0, 28_007));
      await client.ping();
      expect(sent()).to.deep.equal([28_007, 28_007, 28_007, 65_535 - 2 * 28_007]);
      client.send(windowUpdate(0, 28_007));
      expect((await client.answer(7)).messages).to.have.length(1);
    });

    it('lets other streams go on when one has no window', async () => {
      await open(0);
      client.send(call(1, NATIVE_PATH, GOOD), call(3, NATIVE_PATH, GOOD), windowUpdate(3, 7));
      await client.answer(3);
      expect(client.dataOn(1).length).to.equal(0);
    });

    it('forgets a stream that is cancelled while it waits', async () => {
      await open(0);
      client.send(call(1, NATIVE_PATH, GOOD));
      await client.ping();
      client.send(frame(RST_STREAM, 0, 1, uint32(8)), windowUpdate(1, 100), initialWindow(100));
      client.send(call(3, NATIVE_PATH, GOOD));
      await client.answer(3);
      expect(client.on(1).map((f) => f.type)).to.deep.equal([HEADERS]);
    });

    it('ends a connection whose window becomes too large', async () => {
      await open();
      client.send(windowUpdate(0, 2_147_483_647));
      expect(await client.ending()).to.equal(FLOW_CONTROL_ERROR);
    });

    it('ends a connection whose SETTINGS make the window of a stream too large', async () => {
      bench.limiter.decide = () => undefined;
      await open(0);
      client.send(call(1, NATIVE_PATH, GOOD), windowUpdate(1, 2_147_483_647), initialWindow(1));
      expect(await client.ending()).to.equal(FLOW_CONTROL_ERROR);
    });

    it('resets a stream whose window becomes too large, and no other', async () => {
      bench.limiter.decide = () => undefined;
      await open(1);
      client.send(call(1, NATIVE_PATH, GOOD), windowUpdate(1, 2_147_483_647));
      expect((await client.answer(1)).reset).to.equal(FLOW_CONTROL_ERROR);
      client.send(call(3), windowUpdate(3, 100));
      expect((await client.answer(3)).messages).to.have.length(1);
    });

    it('takes an update of nothing for an error', async () => {
      await open(0);
      client.send(call(1, NATIVE_PATH, GOOD), windowUpdate(1, 0));
      expect((await client.answer(1)).reset).to.equal(1);
      client.send(windowUpdate(0, 0));
      expect(await client.ending()).to.equal(1);
    });

    it('takes no notice of windows of streams that are over', async () => {
      await open();
      client.send(call(1, NATIVE_PATH, GOOD));
      await client.answer(1);
      client.send(windowUpdate(1, 5), windowUpdate(1, 0));
      await client.ping();
      expect(client.frames.some((f) => f.type === GOAWAY)).to.equal(false);
    });

    it('streams as far as the window goes, and ends after the last byte', async () => {
      await open(3);
      client.send(frame(HEADERS, END_HEADERS, 1, head(WATCH_PATH)), frame(DATA, 0, 1, message()));
      await client.ping();
      bench.health.set(false, '');
      bench.health.set(true, '');
      expect(client.dataOn(1).length).to.equal(3);
      const drained = bench.server.drain({ delayMs: 0, timeoutMs: 5000 });
      for (let sent = 4; sent <= 28; sent++) {
        client.send(windowUpdate(1, 1));
        await client.ping();
        expect(client.dataOn(1).length).to.equal(sent);
      }
      const answer = await client.answer(1);
      expect(answer.messages.map((m) => m.toString('hex'))).to.deep.equal([
        SERVING,
        '0802',
        SERVING,
        '0802',
      ]);
      expect(answer.trailers).to.deep.equal({ 'grpc-status': '0' });
      client.close();
      await drained;
    });

    it('answers reflection in tiny windows', async () => {
      await open(10);
      // list_services
      const ask = message('3a0161');
      client.send(frame(HEADERS, END_HEADERS, 1, head(REFLECTION_PATH)));
      client.send(frame(DATA, END_STREAM, 1, ask));
      for (
        let stuck = 0;
        stuck < 1000 && client.answerNow(1).trailers['grpc-status'] === undefined;
      ) {
        client.send(windowUpdate(1, 50));
        await client.ping();
        stuck++;
      }
      const { messages, trailers } = client.answerNow(1);
      expect(trailers).to.deep.equal({ 'grpc-status': '0' });
      expect(messages).to.have.length(1);
      expect(messages[0]?.toString('latin1')).to.include('weir.v1.RateLimiter');
    });
  });

  describe('of what it takes', () => {
    const BIG = Buffer.concat([Buffer.from('1203120178', 'hex'), field(15, MIB - 5)]);

    /** A field that nobody knows, so that a message is of this many bytes more. */
    function field(number: number, bytes: number): Buffer {
      const length = bytes - 4;
      const head = [
        (number << 3) | 2,
        (length & 127) | 128,
        ((length >> 7) & 127) | 128,
        length >> 14,
      ];
      return Buffer.concat([Buffer.from(head), Buffer.alloc(length)]);
    }

    function dataFrames(stream: number, body: Buffer, end = END_STREAM): Buffer[] {
      const frames: Buffer[] = [];
      const size = 16_384;
      for (let at = 0; at < body.length; at += size) {
        const isLast = at + size >= body.length;
        frames.push(frame(DATA, isLast ? end : 0, stream, body.subarray(at, at + size)));
      }
      return frames;
    }

    it('announces windows in which the largest message fits, and 16 MiB of them', async () => {
      await open();
      const hello = await client.frame(4, 0);
      expect(hello.payload.toString('hex')).to.equal(
        ['0003000003e8', '000400100005', '000600004000'].join(''),
      );
      const update = await client.frame(WINDOW_UPDATE, 0);
      expect(update.payload.readUInt32BE(0) + 65_535).to.equal(16 * MIB);
    });

    it('answers a message of the bound, and refuses one byte more', async () => {
      await open();
      client.send(frame(HEADERS, END_HEADERS, 1, head(NATIVE_PATH)));
      client.send(...dataFrames(1, message(BIG)));
      expect((await client.answer(1)).trailers).to.deep.equal({ 'grpc-status': '0' });
      client.send(frame(HEADERS, END_HEADERS, 3, head(NATIVE_PATH)));
      client.send(frame(DATA, 0, 3, Buffer.concat([Buffer.from([0]), uint32(MIB + 1)])));
      expect((await client.answer(3)).trailers).to.deep.include({
        'grpc-status': '8',
        'grpc-message': 'a message of more than 1048576 bytes',
      });
    });

    it('never lets a client wait that sends a hundred megabytes on a connection', async function () {
      this.timeout(20_000);
      await open();
      let window = 65_535;
      let seen = 0;
      const learn = (): void => {
        for (; seen < client.frames.length; seen++) {
          const f = client.frames[seen];
          if (f?.type === WINDOW_UPDATE && f.stream === 0) window += f.payload.readUInt32BE(0);
        }
      };
      const body = message(BIG);
      for (let stream = 1; stream < 200; stream += 2) {
        client.send(frame(HEADERS, END_HEADERS, stream, head(NATIVE_PATH)));
        await client.until(() => {
          learn();
          return window >= body.length;
        }, 'a window');
        window -= body.length;
        client.send(...dataFrames(stream, body));
      }
      expect((await client.answer(199)).trailers).to.deep.equal({ 'grpc-status': '0' });
      expect(bench.limiter.asked).to.have.length(100);
    });

    it('gives padding its window back', async () => {
      await open();
      client.send(frame(HEADERS, END_HEADERS, 1, head(NATIVE_PATH)));
      const body = message(BIG);
      const size = 4096;
      let window = MIB + 5;
      for (let at = 0; at < body.length; at += size) {
        const piece = body.subarray(at, at + size);
        const padded = Buffer.concat([Buffer.from([255]), piece, Buffer.alloc(255)]);
        await client.until(() => {
          const updates = client.on(1).filter((f) => f.type === WINDOW_UPDATE);
          const given = updates.reduce((sum, f) => sum + f.payload.readUInt32BE(0), 0);
          return window + given >= padded.length;
        }, 'a window');
        window -= padded.length;
        client.send(frame(DATA, PADDED | (at + size >= body.length ? END_STREAM : 0), 1, padded));
      }
      expect((await client.answer(1)).trailers).to.deep.equal({ 'grpc-status': '0' });
    });

    it('gives the window of a stream of messages anew', async () => {
      await open();
      client.send(frame(HEADERS, END_HEADERS, 1, head(REFLECTION_PATH)));
      const ask = message(Buffer.concat([Buffer.from('3a0161', 'hex'), field(15, 60_000)]));
      for (let sent = 0; sent < 3 * MIB; sent += ask.length) {
        client.send(...dataFrames(1, ask, 0));
        await client.ping();
      }
      const updates = client.on(1).filter((f) => f.type === WINDOW_UPDATE);
      expect(updates.length).to.be.within(4, 6);
      client.send(windowUpdate(0, MIB), windowUpdate(1, MIB), frame(DATA, END_STREAM, 1));
      expect((await client.answer(1)).trailers).to.deep.equal({ 'grpc-status': '0' });
    });
  });
});
