import { randomBytes } from 'node:crypto';
import { deflateSync, gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { decisionOf, descriptorDecision, FixedLimiter, limitDecision } from '../fixtures.js';
import { Bench } from '../grpc-client.js';
import {
  ACK,
  block,
  call,
  CHECK_PATH,
  CONTINUATION,
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
  HELLO,
  initialWindow,
  message,
  NATIVE_PATH,
  PING,
  PREFACE,
  PRIORITY,
  RawClient,
  REFLECTION_PATH,
  RST_STREAM,
  SERVING,
  SETTINGS,
  settings,
  uint32,
  WATCH_PATH,
  WINDOW_UPDATE,
  windowUpdate,
} from './raw-client.js';

const ENHANCE_YOUR_CALM = 11;
const CANCEL = 8;
const MIB = 1_048_576;
/** More than is borne at once, and in the time that it takes to send them. */
const FLOOD = 60_000;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe('HTTP/2 under attack', function () {
  this.timeout(30_000);
  let bench: Bench;
  let client: RawClient;
  let other: RawClient;
  let stream = -1;

  beforeEach(async () => {
    bench = await new Bench(new FixedLimiter(), { direct: true }).start();
    client = await RawClient.open(bench.port);
    other = await RawClient.open(bench.port);
    stream = -1;
  });

  afterEach(async () => {
    await expectOthersServed();
    client.close();
    other.close();
    await bench.stop();
    expect(bench.logger.lines).to.deep.equal([]);
    expect(bench.server.connections).to.equal(0);
  });

  async function expectOthersServed(): Promise<void> {
    stream += 2;
    other.send(call(stream));
    const { messages } = await other.answer(stream);
    expect(messages[0]?.toString('hex')).to.equal(SERVING);
  }

  /** Sends until it is cut; false when it is not. */
  async function flood(piece: (at: number) => Buffer): Promise<boolean> {
    const CHUNK = 500;
    for (let at = 0; at < FLOOD && !client.closed; at += CHUNK) {
      client.send(...Array.from({ length: CHUNK }, (_, i) => piece(at + i)));
      if (client.socket.writableLength > 100_000) await pause(1);
    }
    await client.ping().catch(() => undefined);
    return client.closed;
  }

  describe('cuts a connection that floods with', () => {
    const opened = (id: number, path = NATIVE_PATH): Buffer =>
      frame(HEADERS, END_HEADERS, id, head(path));
    for (const [what, piece, setUp] of [
      ['PING', () => frame(PING, 0, 0, '12345678'), undefined],
      ['SETTINGS', () => settings([4, 100]), undefined],
      ['PRIORITY', () => frame(PRIORITY, 0, 1, '\0\0\0\u00035'), undefined],
      ['unknown frames', () => frame(99, 0, 0), undefined],
      ['empty DATA', () => frame(DATA, 0, 1), opened(1)],
      ['empty CONTINUATION', () => frame(CONTINUATION, 0, 1), frame(HEADERS, 0, 1)],
      ['RST_STREAM', () => frame(RST_STREAM, 0, 1, uint32(CANCEL)), call(1)],
      [
        'calls that it cancels at once',
        (at: number) =>
          Buffer.concat([
            call(2 * at + 1, NATIVE_PATH, GOOD),
            frame(RST_STREAM, 0, 2 * at + 1, uint32(CANCEL)),
          ]),
        undefined,
      ],
      [
        'calls that it makes us reset by a window of nothing',
        (at: number) =>
          Buffer.concat([call(2 * at + 1, NATIVE_PATH, GOOD), windowUpdate(2 * at + 1, 0)]),
        undefined,
      ],
      [
        'calls that it makes us reset by a window that overflows',
        (at: number) =>
          Buffer.concat([
            call(2 * at + 1, NATIVE_PATH, GOOD),
            windowUpdate(2 * at + 1, 2_147_483_647),
          ]),
        undefined,
      ],
      [
        'calls that go on after their end',
        (at: number) =>
          Buffer.concat([call(2 * at + 1, NATIVE_PATH, GOOD), frame(DATA, 0, 2 * at + 1, 'x')]),
        undefined,
      ],
      [
        'calls with trailers that are none',
        (at: number) =>
          Buffer.concat([
            opened(2 * at + 1),
            frame(HEADERS, END_HEADERS, 2 * at + 1, block({ a: 'b' })),
          ]),
        undefined,
      ],
      [
        'requests that are malformed',
        (at: number) => frame(HEADERS, END_HEADERS | END_STREAM, 2 * at + 1, block({ a: 'b' })),
        undefined,
      ],
      [
        'calls above the bound',
        (at: number) => opened(2 * at + 2001),
        Buffer.concat(Array.from({ length: 1000 }, (_, i) => opened(2 * i + 1))),
      ],
      ['messages of a health watch', () => frame(DATA, 0, 1, message()), opened(1, WATCH_PATH)],
    ] as const) {
      it(what, async () => {
        bench.limiter.decide = () => undefined;
        if (setUp !== undefined) client.send(setUp);
        expect(await flood(piece)).to.equal(true);
        const code = client.frames.findLast((f) => f.type === GOAWAY)?.payload.readUInt32BE(4);
        // A connection that is cut while it still sends may lose what it was told.
        expect(code ?? ENHANCE_YOUR_CALM).to.equal(ENHANCE_YOUR_CALM);
      });
    }
  });

  describe('bears', () => {
    for (const [what, piece] of [
      ['acknowledgements', () => frame(SETTINGS, ACK, 0)],
      ['windows', () => windowUpdate(0, 1)],
      ['DATA of a stream that it has made us reset', () => frame(DATA, 0, 1, 'x')],
      [
        'a reset with every call that is answered',
        (at: number) =>
          Buffer.concat([
            frame(HEADERS, END_HEADERS, 2 * at + 3, head(CHECK_PATH)),
            frame(DATA, 0, 2 * at + 3, message()),
            frame(RST_STREAM, 0, 2 * at + 3, uint32(CANCEL)),
            windowUpdate(0, 7),
          ]),
      ],
    ] as const) {
      it(what, async () => {
        client.send(frame(HEADERS, END_HEADERS, 1, Buffer.alloc(0)));
        expect(await flood(piece)).to.equal(false);
      });
    }

    it('random bytes', async () => {
      for (let i = 0; i < 300; i++) {
        const socket = await RawClient.open(bench.port, i % 2 === 0 ? HELLO : Buffer.alloc(0));
        socket.send(randomBytes(1 + (i % 3) * 10_000));
        socket.socket.end();
        await socket.ending();
      }
    });

    it('lists of headers that grow to gigabytes', async () => {
      const large = Buffer.concat([
        Buffer.from([0x40, 1]),
        Buffer.from('a'),
        Buffer.from([127, 128, 30]),
      ]);
      const bomb = Buffer.concat([large, Buffer.alloc(3967, 'x'), Buffer.alloc(12_000, 0xbe)]);
      const before = performance.now();
      for (let id = 1; id < 400; id += 2)
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, id, bomb));
      await client.ping();
      expect(performance.now() - before).to.be.lessThan(2000);
      expect((await client.answer(1)).reset).to.equal(ENHANCE_YOUR_CALM);
    });
  });

  describe('holds no more than it must', () => {
    async function memoryOf(work: () => Promise<void>): Promise<number> {
      const used = (): number => {
        const { heapUsed, external, arrayBuffers } = process.memoryUsage();
        return heapUsed + Math.max(external, arrayBuffers);
      };
      const before = used();
      let most = 0;
      const timer = setInterval(() => (most = Math.max(most, used() - before)), 5);
      await work();
      most = Math.max(most, used() - before);
      clearInterval(timer);
      return most / MIB;
    }

    it('for a client with wide windows that never reads what it asks of reflection', async () => {
      client.send(initialWindow(2_147_483_647), windowUpdate(0, 2_147_400_000));
      const ask = message(`222c${Buffer.from(ENVOY_PATH.slice(1, 45)).toString('hex')}`);
      await client.ping();
      client.socket.pause();
      const most = await memoryOf(async () => {
        for (let id = 1; id < 400; id += 2) {
          client.send(frame(HEADERS, END_HEADERS, id, head(REFLECTION_PATH)));
          client.send(frame(DATA, END_STREAM, id, ask));
          await pause(1);
        }
        await pause(50);
      });
      expect(most).to.be.lessThan(100);
    });

    it('for a client that never reads its answers, and answers all when it does', async () => {
      bench.limiter.answer = () =>
        decisionOf(
          Array.from({ length: 500 }, () => descriptorDecision({ limits: [limitDecision()] })),
        );
      client.send(initialWindow(2_147_483_647), windowUpdate(0, 2_147_400_000));
      await client.ping();
      client.socket.pause();
      const calls = 5000;
      const most = await memoryOf(async () => {
        for (let i = 0; i < calls; i++) client.send(call(2 * i + 1, ENVOY_PATH, ENVOY_GOOD));
        await pause(300);
        // 40 MB of answers; what the kernel takes is not ours.
        expect(bench.limiter.asked.length).to.be.lessThan(calls);
      });
      expect(most).to.be.lessThan(60);
      client.socket.resume();
      await client.answer(2 * calls - 1);
      expect(bench.limiter.asked).to.have.length(calls);
      expect((await client.answer(1)).messages).to.have.length(1);
    });

    it('for answers that no window lets go', async () => {
      bench.limiter.answer = () =>
        decisionOf(
          Array.from({ length: 4000 }, () => descriptorDecision({ limits: [limitDecision()] })),
        );
      client.send(initialWindow(0));
      client.send(
        ...Array.from({ length: 400 }, (_, i) => call(2 * i + 1, ENVOY_PATH, ENVOY_GOOD)),
      );
      await client.ping();
      // 16 MiB are 262 answers of 64,007 bytes.
      const reset = client.frames.filter((f) => f.type === RST_STREAM);
      expect(reset).to.have.length(138);
      expect(reset[0]?.payload).to.deep.equal(uint32(ENHANCE_YOUR_CALM));
      expect(reset[0]?.stream).to.equal(2 * 262 + 1);
      // There is room again when some are cancelled.
      client.send(frame(RST_STREAM, 0, 1, uint32(CANCEL)), call(1001, ENVOY_PATH, ENVOY_GOOD));
      await client.ping();
      expect(client.on(1001).map((f) => f.type)).to.deep.equal([HEADERS]);
    });

    it('for messages that are not finished, 16 MiB of a connection', async () => {
      const unfinished = Buffer.concat([Buffer.from([0]), uint32(MIB), Buffer.alloc(16_379)]);
      for (let i = 0; i < 900; i++) {
        client.send(frame(HEADERS, END_HEADERS, 2 * i + 1, head(NATIVE_PATH)));
        client.send(frame(DATA, 0, 2 * i + 1, unfinished));
        await client.until(() => client.socket.writableLength < MIB);
        // Its own window lets no client send more: it has to hear of new ones.
        if (i % 200 === 199) await client.ping();
      }
      await client.ping();
      expect(client.frames.filter((f) => f.type === WINDOW_UPDATE)).to.have.length(2);
      expect(client.frames.filter((f) => f.type === RST_STREAM)).to.have.length(0);
      for (let i = 0; i < 200; i++) client.send(frame(DATA, 0, 2 * i + 1, Buffer.alloc(16_384)));
      await client.ping();
      const reset = client.frames.filter((f) => f.type === RST_STREAM);
      expect(reset).to.have.length(38);
    });

    it('for a thousand messages that decompress to a megabyte each', async () => {
      for (const [encoding, compress] of [
        ['gzip', gzipSync],
        ['deflate', deflateSync],
      ] as const) {
        const bomb = message(compress(Buffer.alloc(50 * MIB), { level: 9 }).subarray(0, 4000), 1);
        const fields = { 'grpc-encoding': encoding };
        const first = encoding === 'gzip' ? 1 : 2001;
        const most = await memoryOf(async () => {
          for (let i = 0; i < 1000; i++) {
            client.send(frame(HEADERS, END_HEADERS, first + 2 * i, head(CHECK_PATH, fields)));
            client.send(frame(DATA, END_STREAM, first + 2 * i, bomb));
          }
          await client.answer(first + 1998);
        });
        expect(most).to.be.lessThan(150);
        const { trailers } = await client.answer(first);
        expect(trailers['grpc-status']).to.equal('8');
      }
    });

    it('when it ends a connection whose client does not read', async () => {
      client.close();
      other.close();
      await bench.stop();
      bench = await new Bench(new FixedLimiter(), {
        direct: true,
        keepaliveTimeoutMs: 100,
      }).start();
      other = await RawClient.open(bench.port);
      stream = -1;
      client = await RawClient.open(
        bench.port,
        Buffer.concat([PREFACE, initialWindow(2_147_483_647), windowUpdate(0, 2_147_400_000)]),
      );
      bench.limiter.answer = () =>
        decisionOf(
          Array.from({ length: 4000 }, () => descriptorDecision({ limits: [limitDecision()] })),
        );
      await client.ping();
      client.socket.pause();
      for (let i = 0; i < 100; i++) client.send(call(2 * i + 1, ENVOY_PATH, ENVOY_GOOD));
      client.send(frame(DATA, 0, 0));
      while (bench.server.connections > 1) await pause(10);
    });
  });
});
