import { spawnSync } from 'node:child_process';
import { connect as connectHttp2, type ClientHttp2Session } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { mkdtempSync, rmSync, writeFileSync, existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { status } from '@grpc/grpc-js';
import { expect } from 'chai';
import type { GrpcOptions } from '../../src/transport/grpc.js';
import type { FixedLimiter } from './fixtures.js';
import {
  Bench,
  type Caller,
  callerOf,
  ENVOY,
  failureOf,
  HEALTH,
  NATIVE,
  SERVERS,
} from './grpc-client.js';

const PATH = `/${ENVOY}/ShouldRateLimit`;
/** Leaves its socket file behind, as a killed process does. */
const LISTEN_AND_DIE =
  "require('net').createServer().listen(process.argv[1], () => process.kill(process.pid, 'SIGKILL'))";
const REQUEST = { descriptor: { user: 'x' } };

/** For `shop`, with one entry. */
const GOOD = framed(Buffer.from('0a0473686f7012080a060a0141120142', 'hex'));

interface RawAnswer {
  readonly httpStatus: number;
  readonly grpcStatus: string;
}

/** A call with exactly these bytes as its body. */
function rawCall(
  session: ClientHttp2Session,
  body: Buffer,
  headers: Record<string, string> = {},
): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const stream = session.request({
      ':method': 'POST',
      ':path': PATH,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
    });
    let httpStatus = 0;
    let grpcStatus = '';
    stream.on('response', (head) => {
      httpStatus = Number(head[':status']);
      grpcStatus = String(head['grpc-status'] ?? '');
    });
    stream.on(
      'trailers',
      (trailers: Record<string, unknown>) => (grpcStatus = String(trailers['grpc-status'])),
    );
    stream.on('error', reject);
    stream.on('close', () => {
      resolve({ httpStatus, grpcStatus });
    });
    stream.resume();
    stream.end(body);
  });
}

function framed(message: Buffer, length = message.length): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, message]);
}

const [DATA, HEADERS, RST_STREAM, SETTINGS, PING] = [0, 1, 3, 4, 6] as const;
const END_HEADERS = 4;

/** A frame as RFC 9113 has it, for what a client library would not send. */
function http2Frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A text after its length, as header blocks have them. */
function pascal(text: string): string {
  return String.fromCharCode(text.length) + text;
}

function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.on('error', () => undefined);
    socket.once('close', () => {
      resolve();
    });
    socket.resume();
  });
}

async function untilNone(bench: Bench): Promise<void> {
  const limit = Date.now() + 3000;
  while (bench.server.connections > 0 && Date.now() < limit) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

for (const { server, direct } of SERVERS) {
  describe(`gRPC connections, by ${server}`, () => {
    let bench: Bench;

    async function start(
      limiter?: FixedLimiter,
      options: Partial<GrpcOptions> = {},
    ): Promise<void> {
      bench = await new Bench(limiter, { direct, ...options }).start();
    }

    afterEach(async () => {
      await bench.stop();
    });

    describe('with malformed calls', () => {
      let session: ClientHttp2Session;

      beforeEach(async () => {
        await start();
        session = connectHttp2(`http://127.0.0.1:${String(bench.port)}`);
        session.on('error', () => undefined);
      });

      afterEach(() => {
        session.destroy();
      });

      it('answers INVALID_ARGUMENT to bytes that are no message, and goes on', async () => {
        const bad = await rawCall(session, framed(Buffer.from([0xff, 0xff, 0xff])));
        expect(bad).to.deep.equal({ httpStatus: 200, grpcStatus: String(status.INVALID_ARGUMENT) });
        expect(bench.observer.invalid).to.equal(1);
        expect((await rawCall(session, GOOD)).grpcStatus).to.equal('0');
      });

      it('refuses a length prefix above the bound before the bytes come', async () => {
        const answer = await rawCall(session, framed(Buffer.from('abc'), 64 * 1024 * 1024));
        expect(answer.grpcStatus).to.equal(String(status.RESOURCE_EXHAUSTED));
        expect((await rawCall(session, GOOD)).grpcStatus).to.equal('0');
      });

      it('fails a call whose length prefix is larger than its data, and no other', async () => {
        const answer = await rawCall(session, framed(Buffer.from('abc'), 100));
        expect(answer.grpcStatus).to.not.equal('0');
        expect(answer.httpStatus).to.equal(200);
        expect((await rawCall(session, GOOD)).grpcStatus).to.equal('0');
      });

      it('resets unfinished calls that would hold more than 16 MiB, and serves all others', async () => {
        const unfinished = framed(Buffer.alloc(1_000_000), 1_048_576);
        let open = 0;
        const ended: string[] = [];
        for (let i = 0; i < 20; i++) {
          const stream = session.request({
            ':method': 'POST',
            ':path': PATH,
            'content-type': 'application/grpc',
          });
          open++;
          stream.on('error', ({ message }: Error) => ended.push(message));
          stream.on('close', () => open--);
          stream.write(unfinished);
        }
        while (ended.length < 4) await new Promise((resolve) => setTimeout(resolve, 10));
        expect(open).to.be.within(14, 16);
        expect(ended[0]).to.include('NGHTTP2_ENHANCE_YOUR_CALM');
        const other = connectHttp2(`http://127.0.0.1:${String(bench.port)}`);
        expect((await rawCall(other, GOOD)).grpcStatus).to.equal('0');
        other.destroy();
        expect((await rawCall(session, GOOD)).grpcStatus).to.equal('0');
      });

      it('goes on when calls are reset without an error, at whatever point of them', async () => {
        const head = Buffer.concat(
          [
            [':method', 'POST'],
            [':scheme', 'http'],
            [':path', PATH],
            [':authority', 'x'],
            ['content-type', 'application/grpc'],
          ].map(([name = '', value = '']) => Buffer.from(`\0${pascal(name)}${pascal(value)}`)),
        );
        for (const body of [GOOD.subarray(0, 0), GOOD.subarray(0, 3), GOOD.subarray(0, 9), GOOD]) {
          const socket = connect(bench.port, '127.0.0.1');
          socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
          socket.write(http2Frame(SETTINGS, 0, 0, Buffer.alloc(0)));
          socket.write(http2Frame(HEADERS, END_HEADERS, 1, head));
          if (body.length > 0) socket.write(http2Frame(DATA, 0, 1, body));
          socket.write(http2Frame(RST_STREAM, 0, 1, Buffer.alloc(4)));
          // The answer to a ping comes after all that.
          socket.write(http2Frame(PING, 0, 0, Buffer.from('are you?')));
          await new Promise<void>((resolve) => {
            socket.on('data', (bytes) => {
              if (bytes.includes('are you?')) resolve();
            });
          });
          socket.destroy();
        }
        expect((await rawCall(session, GOOD)).grpcStatus).to.equal('0');
      });

      it('fails a call without a message', async () => {
        const answer = await rawCall(session, Buffer.alloc(0));
        expect(answer.grpcStatus).to.not.equal('0');
      });

      it('answers UNIMPLEMENTED to an unknown method and to the v2 API', async () => {
        for (const unknown of [
          '/weir.v1.RateLimiter/Nothing',
          '/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit',
        ]) {
          const answer = await rawCall(session, GOOD, { ':path': unknown });
          expect(answer.grpcStatus).to.equal(String(status.UNIMPLEMENTED));
        }
      });

      it('takes a time-out of a month for none, and not for one that has passed', async () => {
        for (const timeout of ['2592000S', '43200M', '720H', '99999999H']) {
          const answer = await rawCall(session, GOOD, { 'grpc-timeout': timeout });
          expect(answer.grpcStatus).to.equal('0');
          const deadlineMs = bench.limiter.asked.at(-1)?.deadlineMs ?? 0;
          expect(deadlineMs).to.be.greaterThan(performance.now() + 10);
        }
      });

      it('fails a call whose time-out is no time', async () => {
        const answer = await rawCall(session, GOOD, { 'grpc-timeout': 'soon' });
        expect(answer.grpcStatus).to.equal(String(status.INTERNAL));
      });

      it('resets a call with more than 16 KiB of headers, and no other', async () => {
        const small = await rawCall(session, GOOD, { 'x-fill': 'x'.repeat(8000) });
        expect(small.grpcStatus).to.equal('0');
        let code = '';
        try {
          await rawCall(session, GOOD, { 'x-fill': 'x'.repeat(20_000) });
        } catch (error) {
          ({ code } = error as { code: string });
        }
        expect(code).to.equal('ERR_HTTP2_STREAM_ERROR');
        expect((await rawCall(session, GOOD)).grpcStatus).to.equal('0');
      });

      it('refuses what is not gRPC', async () => {
        const answer = await rawCall(session, GOOD, { 'content-type': 'text/plain' });
        expect(answer.httpStatus).to.equal(415);
      });

      it('lives on after ten thousand cancelled calls', async function () {
        this.timeout(20_000);
        const { limiter } = bench;
        const decide = limiter.decide.bind(limiter);
        limiter.decide = () => undefined;
        const caller = bench.caller(NATIVE);
        for (let round = 0; round < 100; round++) {
          const calls = Array.from({ length: 100 }, () =>
            failureOf(caller.call('ShouldRateLimit', REQUEST, { deadline: Date.now() + 2 })),
          );
          await Promise.all(calls);
        }
        limiter.decide = decide;
        // Another connection: Node 20 cuts one that has cancelled so much.
        const other = bench.caller(NATIVE);
        expect(await other.call('ShouldRateLimit', REQUEST)).to.include({ allowed: true });
        expect(bench.logger.lines).to.deep.equal([]);
      });
    });

    it('drops a client that speaks HTTP/1.1 or nothing sensible', async () => {
      await start();
      for (const text of ['GET / HTTP/1.1\r\nhost: x\r\n\r\n', '\u0000'.repeat(100)]) {
        const socket = connect(bench.port, '127.0.0.1');
        socket.write(text);
        await closed(socket);
      }
      await untilNone(bench);
      expect(bench.server.connections).to.equal(0);
    });

    it('lets go of clients that vanish in mid-call', async () => {
      await start();
      for (let i = 0; i < 20; i++) {
        const session = connectHttp2(`http://127.0.0.1:${String(bench.port)}`);
        session.on('error', () => undefined);
        rawCall(session, GOOD).catch(() => undefined);
        await new Promise((resolve) => setTimeout(resolve, 2));
        session.destroy();
      }
      await untilNone(bench);
      expect(bench.server.connections).to.equal(0);
    });

    it('closes connections that have been idle for too long', async () => {
      await start(undefined, { maxConnectionIdleMs: 100 });
      await bench.caller(NATIVE).call('ShouldRateLimit', REQUEST);
      const silent = connect(bench.port, '127.0.0.1');
      await closed(silent);
      await untilNone(bench);
      expect(bench.server.connections).to.equal(0);
    });

    it('asks connections to go at their age, without failing a call', async function () {
      this.timeout(10_000);
      await start(undefined, { maxConnectionAgeMs: 200, maxConnectionAgeGraceMs: 1000 });
      const until = Date.now() + 1500;
      let calls = 0;
      const ask = async (caller: Caller): Promise<void> => {
        while (Date.now() < until) {
          await caller.call('ShouldRateLimit', REQUEST);
          calls++;
        }
      };
      const callers = Array.from({ length: 4 }, () => bench.caller(NATIVE));
      await Promise.all([...callers, ...callers].map(ask));
      expect(calls).to.be.greaterThan(100);
    });

    it('sends GOAWAY at the age, give or take a tenth, and cuts what is left after the grace', async () => {
      await start(undefined, { maxConnectionAgeMs: 200, maxConnectionAgeGraceMs: 100 });
      bench.limiter.decide = () => undefined;
      const before = performance.now();
      const session = connectHttp2(`http://127.0.0.1:${String(bench.port)}`);
      session.on('error', () => undefined);
      await new Promise((resolve) => session.once('connect', resolve));
      const elapsed = new Map<string, number>();
      const held = rawCall(session, GOOD).catch(() => undefined);
      session.once('goaway', () => elapsed.set('goaway', performance.now() - before));
      await held;
      elapsed.set('cut', performance.now() - before);
      expect([...elapsed.keys()]).to.deep.equal(['goaway', 'cut']);
      // Timers may be late on a busy machine, but never early.
      expect(elapsed.get('goaway')).to.be.within(175, 2000);
      expect(elapsed.get('cut')).to.be.within(270, 4000);
      session.destroy();
    });

    describe('on a unix socket', () => {
      let directory: string;
      let socketPath: string;

      beforeEach(() => {
        directory = mkdtempSync(path.join(tmpdir(), 'weir-uds-'));
        socketPath = path.join(directory, 'weir.sock');
      });

      afterEach(() => {
        rmSync(directory, { recursive: true, force: true });
      });

      it('answers, takes over a stale socket file, and removes its own', async () => {
        spawnSync(process.execPath, ['-e', LISTEN_AND_DIE, socketPath]);
        expect(existsSync(socketPath)).to.equal(true);
        await start(undefined, { address: { path: socketPath } });
        const caller = callerOf(HEALTH, `unix:${socketPath}`);
        expect(await caller.call('Check', {})).to.deep.equal({ status: 'SERVING' });
        caller.close();
        await bench.stop();
        expect(existsSync(socketPath)).to.equal(false);
      });

      it('does not take the socket of a server that lives', async () => {
        await start(undefined, { address: { path: socketPath } });
        const second = new Bench(undefined, { address: { path: socketPath } });
        let message = '';
        try {
          await second.start();
        } catch (error) {
          message = String(error);
        }
        expect(message).to.include('EADDRINUSE');
        const caller = callerOf(HEALTH, `unix:${socketPath}`);
        expect(await caller.call('Check', {})).to.deep.equal({ status: 'SERVING' });
        caller.close();
      });

      it('does not remove a file that is no socket', async () => {
        await start();
        writeFileSync(socketPath, 'precious');
        const second = new Bench(undefined, { address: { path: socketPath } });
        let message = '';
        try {
          await second.start();
        } catch (error) {
          message = String(error);
        }
        expect(message).to.include('EADDRINUSE');
        expect(existsSync(socketPath)).to.equal(true);
      });
    });

    it('says when its port is taken', async () => {
      await start();
      const second = new Bench(undefined, { address: { host: '127.0.0.1', port: bench.port } });
      let message = '';
      try {
        await second.start();
      } catch (error) {
        message = String(error);
      }
      expect(message).to.include('EADDRINUSE');
    });
  });
}
