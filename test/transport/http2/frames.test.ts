import { expect } from 'chai';
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
  initialWindow,
  message,
  NATIVE_PATH,
  PADDED,
  PING,
  PREFACE,
  PRIORITY,
  PUSH_PROMISE,
  RawClient,
  RST_STREAM,
  SERVING,
  SETTINGS,
  settings,
  uint32,
  WINDOW_UPDATE,
  windowUpdate,
  WITH_PRIORITY,
} from './raw-client.js';

const PROTOCOL_ERROR = 1;
const FLOW_CONTROL_ERROR = 3;
const STREAM_CLOSED = 5;
const FRAME_SIZE_ERROR = 6;
const UNKNOWN = 99;

const HEAD = head(NATIVE_PATH);

describe('HTTP/2 frames', () => {
  let bench: Bench;
  let client: RawClient;

  beforeEach(async () => {
    bench = await new Bench(undefined, { direct: true }).start();
    client = await RawClient.open(bench.port, Buffer.alloc(0));
  });

  afterEach(async () => {
    client.close();
    await bench.stop();
    expect(bench.logger.lines).to.deep.equal([]);
  });

  async function expectAnswer(stream: number): Promise<void> {
    const { messages, trailers } = await client.answer(stream);
    expect(messages.map((m) => m.toString('hex'))).to.deep.equal([ALLOWED]);
    expect(trailers).to.deep.equal({ 'grpc-status': '0' });
  }

  it('are answered wherever they are cut in two', async function () {
    this.timeout(30_000);
    const all = Buffer.concat([HELLO, call(1, NATIVE_PATH, GOOD), call(3, NATIVE_PATH, GOOD)]);
    for (let cut = 1; cut < all.length; cut++) {
      const other = await RawClient.open(bench.port, all.subarray(0, cut));
      await new Promise((resolve) => setImmediate(resolve));
      other.send(all.subarray(cut));
      for (const stream of [1, 3]) {
        expect((await other.answer(stream)).messages).to.have.length(1);
      }
      other.close();
    }
  });

  it('are answered when they come byte by byte', async () => {
    const all = Buffer.concat([HELLO, call(1, NATIVE_PATH, GOOD)]);
    for (const byte of all) {
      client.send(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expectAnswer(1);
  });

  it('are answered when many come at once', async () => {
    const streams = Array.from({ length: 500 }, (_, i) => 2 * i + 1);
    client.send(HELLO, ...streams.map((stream) => call(stream, NATIVE_PATH, GOOD)));
    for (const stream of streams) await expectAnswer(stream);
  });

  it('are answered whatever the cuts of a large message', async () => {
    client.send(HELLO);
    const body = message(
      Buffer.concat([Buffer.from('12031201787af0ff01', 'hex'), Buffer.alloc(32_752)]),
    );
    let stream = 1;
    for (const size of [1, 2, 3, 5, 7, 100, 4095, 16_384]) {
      client.send(frame(HEADERS, END_HEADERS, stream, HEAD));
      const frames: Buffer[] = [];
      for (let at = 0; at < body.length; at += size) {
        frames.push(frame(DATA, 0, stream, body.subarray(at, at + size)));
      }
      client.send(...frames, frame(DATA, END_STREAM, stream));
      await expectAnswer(stream);
      stream += 2;
    }
  });

  describe('of data', () => {
    beforeEach(() => {
      client.send(HELLO);
    });

    it('may be padded, with nothing, and with all that there is', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, HEAD));
      client.send(frame(DATA, PADDED, 1, Buffer.concat([Buffer.from([0]), GOOD.subarray(0, 3)])));
      client.send(frame(DATA, PADDED, 1, Buffer.concat([Buffer.from([4]), Buffer.alloc(4, 9)])));
      const rest = Buffer.concat([Buffer.from([2]), GOOD.subarray(3), Buffer.from([9, 9])]);
      client.send(frame(DATA, PADDED | END_STREAM, 1, rest));
      await expectAnswer(1);
    });

    it('end the connection when the padding is larger than the frame', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, HEAD));
      client.send(frame(DATA, PADDED, 1, Buffer.from([4, 1, 2, 3])));
      expect(await client.ending()).to.equal(PROTOCOL_ERROR);
    });

    it('end the connection when there is no room for the padding to be told', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, HEAD), frame(DATA, PADDED, 1));
      expect(await client.ending()).to.equal(FRAME_SIZE_ERROR);
    });

    it('may be empty', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, HEAD), frame(DATA, 0, 1), frame(DATA, 0, 1, GOOD));
      client.send(frame(DATA, END_STREAM, 1));
      await expectAnswer(1);
    });

    it('end the connection on stream 0 and on a stream that nobody opened', async () => {
      const other = await RawClient.open(bench.port);
      client.send(frame(DATA, 0, 0, GOOD));
      other.send(frame(DATA, 0, 1, GOOD));
      expect(await client.ending()).to.equal(PROTOCOL_ERROR);
      expect(await other.ending()).to.equal(PROTOCOL_ERROR);
    });

    it('reset a stream that its client has ended', async () => {
      client.send(call(1, NATIVE_PATH, GOOD), frame(DATA, 0, 1, GOOD));
      await client.until(() => client.on(1).some((f) => f.type === RST_STREAM));
      expect(client.answerNow(1).reset).to.equal(STREAM_CLOSED);
      client.send(call(3, NATIVE_PATH, GOOD));
      await expectAnswer(3);
    });
  });

  describe('of headers', () => {
    beforeEach(() => {
      client.send(HELLO);
    });

    it('may be padded and have a priority', async () => {
      const priority = Buffer.concat([uint32(0), Buffer.from([200])]);
      const payload = Buffer.concat([Buffer.from([3]), priority, HEAD, Buffer.alloc(3, 0xff)]);
      client.send(frame(HEADERS, END_HEADERS | PADDED | WITH_PRIORITY, 1, payload));
      client.send(frame(DATA, END_STREAM, 1, GOOD));
      await expectAnswer(1);
    });

    for (const [why, flags, stream, payload, code] of [
      ['padding larger than they are', PADDED, 1, '\u0009abc', PROTOCOL_ERROR],
      ['no room for the padding to be told', PADDED, 1, '', FRAME_SIZE_ERROR],
      ['no room for a priority', WITH_PRIORITY, 1, 'abcd', FRAME_SIZE_ERROR],
      ['a stream that depends on itself', WITH_PRIORITY, 3, '\0\0\0\u0003a', PROTOCOL_ERROR],
      ['stream 0', 0, 0, HEAD.toString('latin1'), PROTOCOL_ERROR],
      ["a number that is the server's to give", 0, 2, HEAD.toString('latin1'), PROTOCOL_ERROR],
    ] as const) {
      it(`end the connection with ${why}`, async () => {
        client.send(frame(HEADERS, END_HEADERS | flags, stream, payload));
        expect(await client.ending()).to.equal(code);
      });
    }

    it('end the connection on a stream with a number below one that was used', async () => {
      client.send(call(5, NATIVE_PATH, GOOD), frame(HEADERS, END_HEADERS, 3, HEAD));
      expect(await client.ending()).to.equal(STREAM_CLOSED);
    });
  });

  for (const [why, bytes, code] of [
    ['SETTINGS on a stream', frame(SETTINGS, 0, 1), PROTOCOL_ERROR],
    ['SETTINGS of five bytes', frame(SETTINGS, 0, 0, 'abcde'), FRAME_SIZE_ERROR],
    [
      'acknowledged SETTINGS that say something',
      frame(SETTINGS, ACK, 0, 'abcdef'),
      FRAME_SIZE_ERROR,
    ],
    ['a push that is neither on nor off', settings([2, 2]), PROTOCOL_ERROR],
    ['a window beyond 31 bits', initialWindow(2_147_483_648), FLOW_CONTROL_ERROR],
    ['frames of less than 16 KiB', settings([5, 16_383]), PROTOCOL_ERROR],
    ['frames of more than 24 bits', settings([5, 16_777_216]), PROTOCOL_ERROR],
    ['PING on a stream', frame(PING, 0, 1, '12345678'), PROTOCOL_ERROR],
    ['PING of seven bytes', frame(PING, 0, 0, '1234567'), FRAME_SIZE_ERROR],
    ['GOAWAY on a stream', frame(GOAWAY, 0, 1, '12345678'), PROTOCOL_ERROR],
    ['GOAWAY of seven bytes', frame(GOAWAY, 0, 0, '1234567'), FRAME_SIZE_ERROR],
    ['RST_STREAM on stream 0', frame(RST_STREAM, 0, 0, '1234'), PROTOCOL_ERROR],
    ['RST_STREAM of a stream that nobody opened', frame(RST_STREAM, 0, 1, '1234'), PROTOCOL_ERROR],
    ['PRIORITY on stream 0', frame(PRIORITY, 0, 0, '12345'), PROTOCOL_ERROR],
    ['PRIORITY of four bytes', frame(PRIORITY, 0, 1, '1234'), FRAME_SIZE_ERROR],
    ['PRIORITY of a stream on itself', frame(PRIORITY, 0, 1, '\0\0\0\u00015'), PROTOCOL_ERROR],
    ['WINDOW_UPDATE of three bytes', frame(WINDOW_UPDATE, 0, 0, '123'), FRAME_SIZE_ERROR],
    ['WINDOW_UPDATE of a stream that nobody opened', windowUpdate(1, 5), PROTOCOL_ERROR],
    ['PUSH_PROMISE', frame(PUSH_PROMISE, 0, 1, '1234'), PROTOCOL_ERROR],
    ['more than 16 KiB', frame(UNKNOWN, 0, 0, Buffer.alloc(16_385)), FRAME_SIZE_ERROR],
  ] as const) {
    it(`end the connection with ${why}`, async () => {
      client.send(HELLO, bytes);
      expect(await client.ending()).to.equal(code);
    });
  }

  it('end the connection when the first is not SETTINGS', async () => {
    client.send(PREFACE, call(1));
    expect(await client.ending()).to.equal(PROTOCOL_ERROR);
  });

  it('end the connection when the preface is another', async () => {
    client.send(Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\n\r'), settings());
    expect(await client.ending()).to.equal(PROTOCOL_ERROR);
  });

  it('of unknown kinds, flags and settings, and of priority, change nothing', async () => {
    client.send(PREFACE, settings([99, 7], [1, 0], [6, 10]), frame(UNKNOWN, 255, 0, 'what?'));
    client.send(
      frame(PRIORITY, 0, 9, '\0\0\0\u00015'),
      frame(HEADERS, END_HEADERS | 0xd2, 1, HEAD),
    );
    client.send(frame(UNKNOWN, 0, 1), frame(PRIORITY, 0, 1, '\0\0\0\u00035'));
    client.send(frame(DATA, END_STREAM | 0xf6, 1, GOOD));
    await expectAnswer(1);
  });

  it('have a bit before the number of the stream that means nothing', async () => {
    const bytes = call(1, NATIVE_PATH, GOOD);
    bytes[5] = 0x80;
    client.send(HELLO, bytes);
    await expectAnswer(1);
  });

  it('of the greatest number are answered', async () => {
    client.send(HELLO, call(2_147_483_647, NATIVE_PATH, GOOD));
    await expectAnswer(2_147_483_647);
  });

  it('of PING come back with what was in them, and those of acknowledgement do not', async () => {
    client.send(HELLO, frame(PING, ACK, 0, 'leaving\0'), frame(PING, 0, 0, 'abcdefgh'));
    const { flags, payload } = await client.frame(PING);
    expect(flags).to.equal(ACK);
    expect(payload.toString()).to.equal('abcdefgh');
    expect(client.frames.some((f) => f.type === GOAWAY)).to.equal(false);
  });

  it('of a client that leaves do not keep it from its answers', async () => {
    const nothing = Buffer.alloc(8);
    client.send(HELLO, frame(HEADERS, END_HEADERS, 1, HEAD), frame(GOAWAY, 0, 0, nothing));
    client.send(frame(DATA, END_STREAM, 1, GOOD));
    await expectAnswer(1);
  });

  it('that are wrong end no other connection', async () => {
    client.send(HELLO, frame(DATA, 0, 0, GOOD));
    await client.ending();
    const other = await RawClient.open(bench.port);
    other.send(call(1));
    expect((await other.answer(1)).messages[0]?.toString('hex')).to.equal(SERVING);
    other.close();
  });
});
