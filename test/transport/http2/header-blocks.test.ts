import { expect } from 'chai';
import { Bench } from '../grpc-client.js';
import {
  ALLOWED,
  block,
  CHECK_PATH,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  GOOD,
  head,
  HEADERS,
  message,
  NATIVE_PATH,
  PADDED,
  PING,
  RawClient,
  RST_STREAM,
  uint32,
  WATCH_PATH,
  WITH_PRIORITY,
} from './raw-client.js';

const PROTOCOL_ERROR = 1;
const STREAM_CLOSED = 5;
const COMPRESSION_ERROR = 9;
const ENHANCE_YOUR_CALM = 11;

const HEAD = head(NATIVE_PATH);

describe('HTTP/2 header blocks', () => {
  let bench: Bench;
  let client: RawClient;

  beforeEach(async () => {
    bench = await new Bench(undefined, { direct: true }).start();
    client = await RawClient.open(bench.port);
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

  describe('in several frames', () => {
    it('are answered wherever they are split', async () => {
      for (let at = 0; at <= HEAD.length; at++) {
        const stream = 2 * at + 1;
        client.send(
          frame(HEADERS, 0, stream, HEAD.subarray(0, at)),
          frame(CONTINUATION, END_HEADERS, stream, HEAD.subarray(at)),
          frame(DATA, END_STREAM, stream, GOOD),
        );
        await expectAnswer(stream);
      }
    });

    it('are answered in pieces of one byte, some of them empty', async () => {
      const priority = Buffer.concat([Buffer.from([2]), uint32(0), Buffer.from([1, 0, 0])]);
      client.send(frame(HEADERS, PADDED | WITH_PRIORITY, 1, priority));
      for (const byte of HEAD) {
        client.send(frame(CONTINUATION, 0, 1, Buffer.from([byte])), frame(CONTINUATION, 0, 1));
      }
      client.send(frame(CONTINUATION, END_HEADERS, 1), frame(DATA, END_STREAM, 1, GOOD));
      await expectAnswer(1);
    });

    it('may end the stream', async () => {
      client.send(
        frame(HEADERS, END_STREAM, 1, HEAD.subarray(0, 9)),
        frame(CONTINUATION, END_HEADERS, 1, HEAD.subarray(9)),
      );
      expect((await client.answer(1)).trailers).to.include({
        'grpc-status': '13',
        'grpc-message': 'the request ended before its message did',
      });
    });

    for (const [why, bytes] of [
      ['another frame comes between them', frame(PING, 0, 0, '12345678')],
      ['an unknown frame comes between them', frame(99, 0, 0)],
      ['they go on for another stream', frame(CONTINUATION, END_HEADERS, 3, HEAD)],
      ['they begin anew', frame(HEADERS, END_HEADERS, 1, HEAD)],
    ] as const) {
      it(`end the connection when ${why}`, async () => {
        client.send(frame(HEADERS, 0, 1, HEAD.subarray(0, 9)), bytes);
        expect(await client.ending()).to.equal(PROTOCOL_ERROR);
      });
    }

    it('end the connection when they go on and have not begun', async () => {
      client.send(frame(CONTINUATION, END_HEADERS, 1, HEAD));
      expect(await client.ending()).to.equal(PROTOCOL_ERROR);
    });

    it('end the connection when they go on after their end', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, HEAD), frame(CONTINUATION, 0, 1, HEAD));
      expect(await client.ending()).to.equal(PROTOCOL_ERROR);
    });

    it('end the connection beyond 64 KiB', async () => {
      client.send(frame(HEADERS, 0, 1, Buffer.alloc(16_384)));
      for (let i = 0; i < 3; i++) client.send(frame(CONTINUATION, 0, 1, Buffer.alloc(16_384)));
      client.send(frame(CONTINUATION, 0, 1, Buffer.alloc(1)));
      expect(await client.ending()).to.equal(ENHANCE_YOUR_CALM);
    });

    it('end the connection when they never end', async () => {
      client.send(frame(HEADERS, 0, 1, HEAD));
      const empty = Buffer.concat(Array.from({ length: 1000 }, () => frame(CONTINUATION, 0, 1)));
      for (let i = 0; i < 100; i++) client.send(empty);
      expect(await client.ending()).to.equal(ENHANCE_YOUR_CALM);
    });
  });

  it('that are not HPACK end the connection', async () => {
    client.send(frame(HEADERS, END_HEADERS, 1, Buffer.from([0x80])));
    expect(await client.ending()).to.equal(COMPRESSION_ERROR);
  });

  it('are read for the table of later ones even where the stream is refused', async () => {
    // Into the table: content-type, then the path; then a request that has a connection header.
    const typed = Buffer.concat([
      Buffer.from([0x40]),
      ...pascal('content-type', 'application/grpc'),
    ]);
    const path = Buffer.concat([Buffer.from([0x40]), ...pascal(':path', NATIVE_PATH)]);
    const method = Buffer.from([0x83, 0x86]);
    client.send(
      frame(
        HEADERS,
        END_HEADERS,
        1,
        Buffer.concat([method, path, typed, block({ connection: 'x' })]),
      ),
      frame(HEADERS, END_HEADERS, 3, Buffer.concat([method, Buffer.from([0xbf, 0xbe])])),
      frame(DATA, END_STREAM, 3, GOOD),
    );
    await expectAnswer(3);
    expect((await client.answer(1)).reset).to.equal(PROTOCOL_ERROR);
  });

  describe('of requests that are malformed reset the stream, with', () => {
    const pseudo = { ':method': 'POST', ':scheme': 'http', ':path': NATIVE_PATH };
    const type = { 'content-type': 'application/grpc' };
    for (const [why, bytes] of [
      ['no method', block({ ':scheme': 'http', ':path': NATIVE_PATH, ...type })],
      ['no scheme', block({ ':method': 'POST', ':path': NATIVE_PATH, ...type })],
      ['no path', block({ ':method': 'POST', ':scheme': 'http', ...type })],
      ['an empty path', block({ ...pseudo, ':path': '', ...type })],
      ['two paths', Buffer.concat([block({ ':path': '/' }), block({ ...pseudo, ...type })])],
      ['a status', block({ ...pseudo, ':status': '200', ...type })],
      ['a field with a colon that nobody knows', block({ ...pseudo, ':what': '', ...type })],
      ['a field with a colon after others', block({ ...type, ...pseudo })],
      ['a name in capitals', block({ ...pseudo, ...type, 'X-Me': '1' })],
      ['connection', block({ ...pseudo, ...type, connection: 'close' })],
      ['transfer-encoding', block({ ...pseudo, ...type, 'transfer-encoding': 'chunked' })],
      ['te that is not trailers', block({ ...pseudo, ...type, te: 'gzip' })],
      ['nothing at all', Buffer.alloc(0)],
    ] as const) {
      it(why, async () => {
        client.send(frame(HEADERS, END_HEADERS, 1, bytes));
        const { headers, reset } = await client.answer(1);
        expect({ headers, reset }).to.deep.equal({ headers: {}, reset: PROTOCOL_ERROR });
      });
    }
  });

  describe('after the message', () => {
    it('end the stream', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, HEAD), frame(DATA, 0, 1, GOOD.subarray(0, 4)));
      client.send(frame(DATA, 0, 1, GOOD.subarray(4, 9)));
      client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block({ 'x-done': '1' })));
      expect((await client.answer(1)).trailers).to.include({ 'grpc-status': '13' });
      client.send(frame(HEADERS, END_HEADERS, 3, head(WATCH_PATH)), frame(DATA, 0, 3, message()));
      client.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, block({ 'x-done': '1' })));
      await client.ping();
      expect(client.answerNow(3).messages).to.have.length(1);
    });

    it('are taken when the call has been answered before them', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, HEAD), frame(DATA, 0, 1, GOOD));
      client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block({ 'x-done': '1' })));
      await expectAnswer(1);
      await client.ping();
    });

    it('reset the stream when they do not end it, or are a request', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, HEAD), frame(HEADERS, END_HEADERS, 1, block({})));
      client.send(frame(HEADERS, END_HEADERS, 3, HEAD));
      client.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, HEAD));
      expect((await client.answer(1)).reset).to.equal(PROTOCOL_ERROR);
      expect((await client.answer(3)).reset).to.equal(PROTOCOL_ERROR);
    });

    it('end the connection when the stream was over', async () => {
      client.send(frame(HEADERS, END_HEADERS, 1, head(CHECK_PATH)));
      client.send(frame(DATA, END_STREAM, 1, message()));
      await client.answer(1);
      client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block({})));
      expect(await client.ending()).to.equal(STREAM_CLOSED);
    });
  });

  it('above 16 KiB reset the stream, and only when they are counted as HTTP/2 does', async () => {
    const filling = (bytes: number): Buffer =>
      Buffer.concat([HEAD, block({ a: 'x'.repeat(bytes - 33) })]);
    const fixed = [
      [':method', 'POST'],
      [':scheme', 'http'],
      [':path', NATIVE_PATH],
      [':authority', 'weir'],
      ['content-type', 'application/grpc'],
      ['te', 'trailers'],
    ].reduce((sum, [name = '', value = '']) => sum + name.length + value.length + 32, 0);
    for (const [stream, bytes] of [
      [1, 16_384 - fixed],
      [3, 16_385 - fixed],
    ] as const) {
      const whole = filling(bytes);
      client.send(frame(HEADERS, 0, stream, whole.subarray(0, 16_000)));
      client.send(frame(CONTINUATION, END_HEADERS, stream, whole.subarray(16_000)));
      client.send(frame(DATA, END_STREAM, stream, GOOD));
    }
    await expectAnswer(1);
    expect((await client.answer(3)).reset).to.equal(ENHANCE_YOUR_CALM);
    expect(client.on(3).map((f) => f.type)).to.deep.equal([RST_STREAM]);
  });
});

function pascal(...texts: readonly string[]): Buffer[] {
  return texts.map((text) => Buffer.from(String.fromCharCode(text.length) + text, 'latin1'));
}
