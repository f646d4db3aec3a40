import { deflateSync, gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { RequestError } from '../../../src/limiter.js';
import { FixedLimiter, unmatched } from '../fixtures.js';
import { Bench } from '../grpc-client.js';
import {
  ALLOWED,
  block,
  call,
  CHECK_PATH,
  DATA,
  END_HEADERS,
  END_STREAM,
  ENVOY_PATH,
  frame,
  GOAWAY,
  GOOD,
  head,
  HEADERS,
  message,
  NATIVE_PATH,
  RawClient,
  REFLECTION_PATH,
  RST_STREAM,
  SERVING,
  uint32,
  WATCH_PATH,
  type Answer,
} from './raw-client.js';

const NO_ERROR = 0;
const STREAM_CLOSED = 5;
const REFUSED_STREAM = 7;
const CANCEL = 8;

/** Answers when it is told to. */
class HeldLimiter extends FixedLimiter {
  readonly held: (() => void)[] = [];

  override decide(...[request, , done]: Parameters<FixedLimiter['decide']>): void {
    this.held.push(() => {
      done(unmatched(request));
    });
  }

  release(): void {
    for (const answer of this.held.splice(0)) answer();
  }
}

describe('HTTP/2 calls', () => {
  let bench: Bench;
  let limiter: HeldLimiter;
  let client: RawClient;
  let stream = -1;

  async function start(options: ConstructorParameters<typeof Bench>[1] = {}): Promise<void> {
    limiter = new HeldLimiter();
    stream = -1;
    bench = await new Bench(limiter, { direct: true, ...options }).start();
    client = await RawClient.open(bench.port);
  }

  function begin(path: string, headers: Record<string, string> = {}, flags = 0): number {
    stream += 2;
    client.send(frame(HEADERS, END_HEADERS | flags, stream, head(path, headers)));
    return stream;
  }

  async function check(body: Buffer, headers: Record<string, string> = {}): Promise<Answer> {
    const id = begin(CHECK_PATH, headers);
    client.send(frame(DATA, END_STREAM, id, body));
    return client.answer(id);
  }

  beforeEach(async () => {
    await start();
  });

  afterEach(async () => {
    client.close();
    await bench.stop();
    expect(bench.logger.lines.filter((line) => line !== 'request failed')).to.deep.equal([]);
  });

  describe('answered', () => {
    it('after the end of their stream get headers, a message and trailers, and no reset', async () => {
      client.send(call(1, NATIVE_PATH, GOOD));
      await client.ping();
      limiter.release();
      await client.answer(1);
      await client.ping();
      expect(client.on(1).map(({ type, flags }) => [type, flags])).to.deep.equal([
        [HEADERS, END_HEADERS],
        [DATA, 0],
        [HEADERS, END_HEADERS | END_STREAM],
      ]);
    });

    it('before it get a reset without error behind that, and what still comes is ignored', async () => {
      const id = begin(NATIVE_PATH);
      client.send(frame(DATA, 0, id, GOOD));
      await client.ping();
      limiter.release();
      await client.until(() => client.on(id).some((f) => f.type === RST_STREAM));
      expect(client.on(id).map((f) => f.type)).to.deep.equal([HEADERS, DATA, HEADERS, RST_STREAM]);
      expect(client.answerNow(id).reset).to.equal(NO_ERROR);
      client.send(frame(DATA, 0, id, GOOD), frame(DATA, END_STREAM, id, GOOD));
      await client.ping();
      expect(client.on(id)).to.have.length(4);
      // It has ended its side: now it may not go on.
      client.send(frame(DATA, 0, id, GOOD));
      await client.ping();
      expect(client.on(id).at(-1)?.payload).to.deep.equal(uint32(STREAM_CLOSED));
    });

    it('when their end comes in a frame of its own while they wait get no reset', async () => {
      const id = begin(NATIVE_PATH);
      client.send(frame(DATA, 0, id, GOOD), frame(DATA, END_STREAM, id));
      await client.ping();
      limiter.release();
      await client.answer(id);
      await client.ping();
      expect(client.answerNow(id).reset).to.equal(undefined);
    });

    it('in the order in which the answers come', async () => {
      client.send(call(1, NATIVE_PATH, GOOD), call(3, NATIVE_PATH, GOOD));
      await client.ping();
      limiter.held.reverse();
      limiter.release();
      await client.answer(1);
      expect(client.frames.filter((f) => f.type === DATA).map((f) => f.stream)).to.deep.equal([
        3, 1,
      ]);
    });

    it('never, when they are cancelled first', async () => {
      client.send(call(1, NATIVE_PATH, GOOD), frame(RST_STREAM, 0, 1, uint32(CANCEL)));
      await client.ping();
      limiter.release();
      await client.ping();
      expect(client.on(1)).to.deep.equal([]);
    });

    it('even when the client ends its side of the connection with its last word', async () => {
      client.socket.end(call(1));
      expect((await client.answer(1)).messages[0]?.toString('hex')).to.equal(SERVING);
    });

    it('as one message, whatever follows it', async () => {
      client.send(call(1, NATIVE_PATH, Buffer.concat([GOOD, GOOD])));
      await client.ping();
      expect(limiter.held).to.have.length(1);
      stream = 1;
      const answer = await check(Buffer.concat([message(), message(), Buffer.from('rest')]));
      expect(answer.messages).to.have.length(1);
      expect(answer.trailers).to.deep.equal({ 'grpc-status': '0' });
    });
  });

  describe('of a stream', () => {
    it('take several messages out of one frame, and one out of several', async () => {
      const id = begin(REFLECTION_PATH);
      const ask = message('3a0161');
      const all = Buffer.concat([ask, ask, ask]);
      client.send(
        frame(DATA, 0, id, all.subarray(0, 19)),
        frame(DATA, 0, id, all.subarray(19, 20)),
      );
      client.send(frame(DATA, END_STREAM, id, all.subarray(20)));
      const { messages, trailers } = await client.answer(id);
      expect(messages).to.have.length(3);
      expect(messages[2]).to.deep.equal(messages[0]);
      expect(trailers).to.deep.equal({ 'grpc-status': '0' });
    });

    it('fail when it ends within a message', async () => {
      const id = begin(REFLECTION_PATH);
      client.send(frame(DATA, END_STREAM, id, message('3a0161').subarray(0, 7)));
      expect((await client.answer(id)).trailers).to.include({ 'grpc-status': '13' });
    });

    it('fail after their headers with trailers alone', async () => {
      const id = begin(REFLECTION_PATH);
      client.send(frame(DATA, 0, id, message('3a0161')));
      client.send(frame(DATA, 0, id, Buffer.concat([Buffer.from([1]), uint32(0)])));
      const { headers, messages, trailers } = await client.answer(id);
      expect(headers).to.deep.equal({ ':status': '200', 'content-type': 'application/grpc' });
      expect(messages).to.have.length(1);
      expect(trailers).to.deep.equal({
        'grpc-status': '12',
        'grpc-message': 'messages of this method cannot be compressed',
      });
    });

    it('fail without a message, and heed no second one', async () => {
      const silent = begin(WATCH_PATH);
      client.send(frame(DATA, END_STREAM, silent, ''));
      expect((await client.answer(silent)).trailers).to.include({ 'grpc-status': '13' });
      const id = begin(WATCH_PATH);
      const unknown = message(Buffer.from('0a0178', 'hex'));
      client.send(frame(DATA, 0, id, message()), frame(DATA, 0, id, unknown));
      await client.ping();
      bench.health.set(false, '');
      await client.ping();
      const { messages } = client.answerNow(id);
      expect(messages.map((m) => m.toString('hex'))).to.deep.equal([SERVING, '0802']);
    });

    it('go on when the client has ended its side', async () => {
      const id = begin(WATCH_PATH);
      client.send(frame(DATA, END_STREAM, id, message()));
      await client.ping();
      bench.health.set(false, '');
      await client.ping();
      const { messages, trailers } = client.answerNow(id);
      expect(messages.map((m) => m.toString('hex'))).to.deep.equal([SERVING, '0802']);
      expect(trailers).to.deep.equal({});
    });
  });

  describe('above the bound of a connection', () => {
    it('are refused, for the client to try again, and taken when there is room', async () => {
      client.close();
      await bench.stop();
      await start({ maxConcurrentStreams: 2 });
      client.send(
        call(1, NATIVE_PATH, GOOD),
        call(3, NATIVE_PATH, GOOD),
        call(5, NATIVE_PATH, GOOD),
      );
      expect((await client.answer(5)).reset).to.equal(REFUSED_STREAM);
      client.send(frame(RST_STREAM, 0, 1, uint32(CANCEL)), call(7, NATIVE_PATH, GOOD));
      client.send(call(9, NATIVE_PATH, GOOD));
      expect((await client.answer(9)).reset).to.equal(REFUSED_STREAM);
      limiter.release();
      for (const id of [3, 7]) expect((await client.answer(id)).messages).to.have.length(1);
    });
  });

  describe('with compressed messages', () => {
    for (const [encoding, compress] of [
      ['gzip', gzipSync],
      ['deflate', deflateSync],
    ] as const) {
      it(`are answered in ${encoding}, also when a message says that it is not`, async () => {
        const compressed = compress(GOOD.subarray(5));
        const id = begin(NATIVE_PATH, { 'grpc-encoding': encoding });
        client.send(frame(DATA, END_STREAM, id, message(compressed, 1)));
        await client.until(() => limiter.held.length > 0);
        limiter.release();
        expect((await client.answer(id)).messages[0]?.toString('hex')).to.equal(ALLOWED);
        const plain = await check(message(), { 'grpc-encoding': encoding });
        expect(plain.trailers).to.deep.equal({ 'grpc-status': '0' });
      });

      it(`fail when they are no ${encoding}`, async () => {
        const { trailers } = await check(message('00', 1), { 'grpc-encoding': encoding });
        expect(trailers['grpc-status']).to.equal('13');
        expect(trailers['grpc-message']).to.equal(`a message that is not ${encoding}`);
      });

      it(`fail when ${encoding} makes them larger than the bound`, async () => {
        const just = compress(
          Buffer.concat([Buffer.from('7afcff3f', 'hex'), Buffer.alloc(1_048_572)]),
        );
        const bomb = compress(Buffer.alloc(1_048_577));
        const fits = await check(message(just, 1), { 'grpc-encoding': encoding });
        expect(fits.trailers).to.deep.equal({ 'grpc-status': '0' });
        const { trailers } = await check(message(bomb, 1), { 'grpc-encoding': encoding });
        expect(trailers).to.include({
          'grpc-status': '8',
          'grpc-message': 'a message of more than 1048576 bytes',
        });
      });
    }

    it('fail in an unknown encoding, and hear which ones there are', async () => {
      const { trailers } = await check(message('00', 1), { 'grpc-encoding': 'snappy' });
      expect(trailers).to.include({
        'grpc-status': '12',
        'grpc-message': 'messages can be compressed by gzip or deflate',
        'grpc-accept-encoding': 'identity,deflate,gzip',
      });
    });

    it('fail when nothing says how', async () => {
      const { trailers } = await check(message('00', 1));
      expect(trailers).to.include({ 'grpc-status': '13' });
    });

    it('are forgotten when they are cancelled in the meantime', async () => {
      const bomb = message(gzipSync(Buffer.alloc(1_000_000)), 1);
      for (let i = 0; i < 100; i++) {
        const id = begin(CHECK_PATH, { 'grpc-encoding': 'gzip' });
        client.send(frame(DATA, END_STREAM, id, bomb), frame(RST_STREAM, 0, id, uint32(CANCEL)));
      }
      const { trailers } = await check(message(gzipSync(''), 1), { 'grpc-encoding': 'gzip' });
      expect(trailers).to.deep.equal({ 'grpc-status': '0' });
      expect(client.frames.filter((f) => f.type === RST_STREAM)).to.deep.equal([]);
    });
  });

  describe('that fail', () => {
    it('say why in printable ASCII', async () => {
      limiter.decide = () => {
        throw new RequestError('invalid_argument', 'a%\n ~\u007f"é€😀\ud800{}');
      };
      client.send(call(1, NATIVE_PATH, GOOD));
      expect((await client.answer(1)).trailers).to.deep.include({
        'grpc-status': '3',
        'grpc-message': 'a%25%0A ~%7F"%C3%A9%E2%82%AC%F0%9F%98%80%EF%BF%BD{}',
      });
    });

    it('say no more than a thousand characters of it', async () => {
      limiter.decide = () => {
        throw new RequestError('invalid_argument', '€'.repeat(100_000));
      };
      client.send(call(1, NATIVE_PATH, GOOD));
      expect((await client.answer(1)).trailers['grpc-message']).to.equal('%E2%82%AC'.repeat(1000));
    });

    it('get one frame, which is the end', async () => {
      client.send(call(1, ENVOY_PATH, message('ff')));
      const answer = await client.answer(1);
      expect(client.on(1)).to.have.length(1);
      expect(answer.headers).to.deep.equal({
        ':status': '200',
        'content-type': 'application/grpc',
        'grpc-status': '3',
        'grpc-message': answer.headers['grpc-message'],
        'grpc-accept-encoding': 'identity,deflate,gzip',
      });
    });
  });

  describe('that are not gRPC', () => {
    for (const [why, fields, httpStatus] of [
      ['another type of content', { 'content-type': 'application/json' }, '415'],
      ['no type of content', { 'content-type': '' }, '415'],
      ['a browser', { ':method': 'GET', 'content-type': '' }, '415'],
      ['another method', { ':method': 'PUT' }, '405'],
    ] as const) {
      it(`get a status of HTTP: ${why}`, async () => {
        const request = {
          ':method': 'POST',
          ':scheme': 'http',
          ':path': CHECK_PATH,
          'content-type': 'application/grpc',
          ...fields,
        };
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(request)));
        expect((await client.answer(1)).headers).to.deep.equal({ ':status': httpStatus });
      });
    }

    it('are, with the name of a format', async () => {
      for (const type of ['application/grpc+proto', 'application/grpc;charset=utf-8']) {
        const { trailers } = await check(message(), { 'content-type': type });
        expect(trailers).to.deep.equal({ 'grpc-status': '0' });
      }
    });
  });

  it('that are answered early are known to be over a thousand streams later', async () => {
    const streams = Array.from({ length: 1500 }, (_, i) => 2 * i + 1);
    for (const id of streams) {
      client.send(frame(HEADERS, END_HEADERS, id, head(CHECK_PATH)), frame(DATA, 0, id, message()));
    }
    await client.answer(2999);
    const late = streams.slice(-1000);
    client.send(...late.map((id) => frame(HEADERS, END_HEADERS | END_STREAM, id, block({}))));
    await client.ping();
    expect(client.frames.some((f) => f.type === GOAWAY)).to.equal(false);
  });
});
