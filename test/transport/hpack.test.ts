import { once } from 'node:events';
import { connect, sensitiveHeaders, type OutgoingHttpHeaders } from 'node:http2';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { expect } from 'chai';
import fc from 'fast-check';
import { HeaderDecoder, HpackError } from '../../src/transport/http2/hpack.js';

const TABLE_BYTES = 4096;
const LIST_BYTES = 16_384;

function hex(bytes: string): Buffer {
  return Buffer.from(bytes.replaceAll(' ', ''), 'hex');
}

/** Decodes a block that stands in the middle of a larger buffer, as on a socket. */
function decode(decoder: HeaderDecoder, block: Buffer | string): string[] | undefined {
  const bytes = typeof block === 'string' ? hex(block) : block;
  const buffer = Buffer.concat([Buffer.alloc(9, 0xbe), bytes, Buffer.alloc(9, 0xbe)]);
  const fields = decoder.decode(buffer, 9, 9 + bytes.length);
  buffer.fill(0);
  return fields?.map(({ name, value }) => `${name}: ${value}`);
}

/** A plain string literal of less than 127 + 16384 bytes. */
function plain(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  const more = bytes.length - 127;
  const head = more < 0 ? [bytes.length] : [127, (more & 127) | 128, more >> 7];
  return Buffer.concat([Buffer.from(head), bytes]);
}

/** A literal field with a name of its own: 40 puts it into the table, 00 does not. */
function literal(first: '40' | '00' | '10', name: string, value: string): Buffer {
  return Buffer.concat([hex(first), plain(name), plain(value)]);
}

function fails(block: Buffer | string, message: string, decoder = newDecoder()): void {
  expect(() => decode(decoder, block)).to.throw(HpackError, message);
}

function newDecoder(tableBytes = TABLE_BYTES, listBytes = LIST_BYTES): HeaderDecoder {
  return new HeaderDecoder(tableBytes, listBytes);
}

/** A call that a client makes, and the table sizes that the server announces before it. */
interface Call {
  readonly tableSizes: readonly number[];
  readonly headers: OutgoingHttpHeaders;
}

/** The header blocks that node:http2, which is nghttp2, sends for these calls on one connection. */
async function blocksOf(calls: readonly Call[]): Promise<Buffer[]> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const [socket] = (await once(server, 'connection')) as [Socket];
  try {
    const blocks = readBlocks(socket, calls.length);
    for (const { tableSizes, headers } of calls) {
      for (const bytes of tableSizes) {
        const settled = once(session, 'remoteSettings');
        const settings = hex('000006 04 00 00000000 0001 00000000');
        settings.writeUInt32BE(bytes, settings.length - 4);
        socket.write(settings);
        await settled;
      }
      session.request(headers).on('error', () => undefined);
    }
    return await blocks;
  } finally {
    session.destroy();
    socket.destroy();
    server.close();
  }
}

/** Takes the blocks out of the frames HEADERS and CONTINUATION, which nothing may come between. */
async function readBlocks(socket: Socket, count: number): Promise<Buffer[]> {
  const blocks: Buffer[] = [];
  let parts: Buffer[] = [];
  let bytes = Buffer.alloc(0);
  let at = 24; // behind the preface
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    bytes = Buffer.concat([bytes, chunk as Buffer]);
    while (bytes.length >= at + 9 && bytes.length >= at + 9 + bytes.readUIntBE(at, 3)) {
      const end = at + 9 + bytes.readUIntBE(at, 3);
      const type = bytes[at + 3];
      const flags = bytes[at + 4] ?? 0;
      const priorityBytes = type === 1 && (flags & 0x20) !== 0 ? 5 : 0;
      if (type === 1 || type === 9) {
        parts.push(bytes.subarray(at + 9 + priorityBytes, end));
        if ((flags & 4) !== 0) {
          blocks.push(Buffer.concat(parts));
          parts = [];
        }
      }
      at = end;
    }
    if (blocks.length >= count) break;
  }
  return blocks;
}

/** What a decoder should make of a call. */
function linesOf({ headers }: Call): string[] {
  return Object.entries(headers).map(([name, value]) => `${name}: ${String(value)}`);
}

const START = {
  ':method': 'POST',
  ':scheme': 'http',
  ':path': '/some.Service/Method',
  ':authority': 'localhost',
};
const fieldName = fc.oneof(
  fc.constantFrom(
    'grpc-timeout',
    'accept-encoding',
    'user-agent',
    'accept',
    'x-a',
    'x-b',
    'x-c',
    'etag',
  ),
  fc.stringMatching(/^x-[a-z0-9_]{1,12}$/),
);
const fieldValue = fc.oneof(
  fc.constantFrom('100m', '99m', 'trailers', ''),
  fc.stringMatching(/^[!-~\xa1-\xff]{0,40}$/),
  fc.integer({ min: 1, max: 5000 }).map((length) => 'large'.repeat(length / 5 + 1)),
);
const call: fc.Arbitrary<Call> = fc
  .record({
    tableSizes: fc.oneof(
      { weight: 4, arbitrary: fc.constant([]) },
      fc.array(fc.constantFrom(0, 40, 150, 1000, 4096), { maxLength: 3 }),
    ),
    path: fc.constantFrom('/', '/some.Service/Method', '/an.other/Method'),
    // Few, so that calls often have the same.
    fields: fc.dictionary(fieldName, fieldValue, { maxKeys: 6, noNullPrototype: true }),
    sensitive: fc.subarray(['x-a', 'grpc-timeout', 'user-agent']),
  })
  .map(({ tableSizes, path, fields, sensitive }) => ({
    tableSizes,
    headers: { ...START, ':path': path, ...fields, [sensitiveHeaders]: sensitive },
  }));
/** Calls of which about every second is one of those before once more. */
const calls = fc
  .array(fc.tuple(call, fc.option(fc.nat(100))), { minLength: 1, maxLength: 30 })
  .map((drawn) => {
    const made: Call[] = [];
    for (const [fresh, again] of drawn) {
      const before = again === null ? undefined : made[again % Math.max(1, made.length)];
      made.push(before === undefined ? fresh : { ...before, tableSizes: [] });
    }
    return made;
  });

describe('the decoder of header blocks', () => {
  describe('on the examples of RFC 7541, appendix C', () => {
    const FIRST = [':method: GET', ':scheme: http', ':path: /', ':authority: www.example.com'];
    const THIRD = [
      ':method: GET',
      ':scheme: https',
      ':path: /index.html',
      ':authority: www.example.com',
      'custom-key: custom-value',
    ];
    const PRIVATE = [
      'cache-control: private',
      'date: Mon, 21 Oct 2013 20:13:21 GMT',
      'location: https://www.example.com',
    ];
    const GZIP = [
      ':status: 200',
      'cache-control: private',
      'date: Mon, 21 Oct 2013 20:13:22 GMT',
      'location: https://www.example.com',
      'content-encoding: gzip',
      'set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1',
    ];

    it('reads every representation (C.2)', () => {
      const indexing = '400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572';
      expect(decode(newDecoder(), indexing)).to.eql(['custom-key: custom-header']);
      const notIndexing = '040c 2f73 616d 706c 652f 7061 7468';
      expect(decode(newDecoder(), notIndexing)).to.eql([':path: /sample/path']);
      const neverIndexing = '1008 7061 7373 776f 7264 0673 6563 7265 74';
      expect(decode(newDecoder(), neverIndexing)).to.eql(['password: secret']);
      expect(decode(newDecoder(), '82')).to.eql([':method: GET']);
    });

    it('reads requests without Huffman code (C.3)', () => {
      const decoder = newDecoder();
      const first = '8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d';
      expect(decode(decoder, first)).to.eql(FIRST);
      const second = '8286 84be 5808 6e6f 2d63 6163 6865';
      expect(decode(decoder, second)).to.eql([...FIRST, 'cache-control: no-cache']);
      const third = '8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65';
      expect(decode(decoder, third)).to.eql(THIRD);
    });

    it('reads requests in Huffman code (C.4)', () => {
      const decoder = newDecoder();
      expect(decode(decoder, '8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff')).to.eql(FIRST);
      const second = '8286 84be 5886 a8eb 1064 9cbf';
      expect(decode(decoder, second)).to.eql([...FIRST, 'cache-control: no-cache']);
      const third = '8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf';
      expect(decode(decoder, third)).to.eql(THIRD);
    });

    it('reads responses with eviction from a table of 256 bytes (C.5)', () => {
      const decoder = newDecoder(256);
      const first =
        '4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 ' +
        '2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 ' +
        '6c65 2e63 6f6d';
      expect(decode(decoder, first)).to.eql([':status: 302', ...PRIVATE]);
      expect(decode(decoder, '4803 3330 37c1 c0bf')).to.eql([':status: 307', ...PRIVATE]);
      const third =
        '88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d ' +
        '54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 ' +
        '5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31';
      expect(decode(decoder, third)).to.eql(GZIP);
    });

    it('reads the same responses in Huffman code (C.6)', () => {
      const decoder = newDecoder(256);
      const first =
        '4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 ' +
        '2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3';
      expect(decode(decoder, first)).to.eql([':status: 302', ...PRIVATE]);
      expect(decode(decoder, '4883 640e ffc1 c0bf')).to.eql([':status: 307', ...PRIVATE]);
      const third =
        '88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab ' +
        '77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f ' +
        '9587 3160 65c0 03ed 4ee5 b106 3d50 07';
      expect(decode(decoder, third)).to.eql(GZIP);
    });
  });

  describe('refuses as not HPACK', () => {
    it('an index that no table has', () => {
      fails('80', 'no field has index 0');
      fails('be', 'no field has index 62');
      fails('7f00 0161', 'no field has index 63');
      fails('0f2f 0161', 'no field has index 62');
      fails('ff80 8001', 'no field has index 16511');
    });

    it('an integer of more than four bytes after its first', () => {
      fails('ffff ffff ff7f', 'an integer that is too long');
      fails('ff80 8080 8000', 'an integer that is too long');
      fails('007f ffff ffff ffff ffff ffff 01', 'an integer that is too long');
    });

    it('a block that ends too early', () => {
      for (const block of [
        'ff',
        'ff80',
        '40',
        '44',
        '4401',
        '0002 61',
        '007f',
        '3f',
        '0085 a8eb',
      ]) {
        fails(block, 'it ends in the middle');
      }
      fails('447f ffff ff7f 61', 'it ends in the middle of a string');
    });

    it('padding that is not up to seven ones', () => {
      expect(decode(newDecoder(), '0481 1f')).to.eql([':path: a']); // 00011 111
      fails('0481 18', 'not in the Huffman code'); // 00011 000
      fails('0481 1e', 'not in the Huffman code'); // 00011 110
      fails('0482 1fff', 'not in the Huffman code'); // 00011 and eleven ones
      fails('0481 ff', 'not in the Huffman code');
      expect(decode(newDecoder(), '0483 1a8a 7f')).to.eql([':path: a  ']); // and seven ones
    });

    it('the end of string inside of a string', () => {
      fails('0484 ffff ffff', 'not in the Huffman code');
      fails('0485 ffff fffc 1f', 'not in the Huffman code');
    });

    it('a table size update that is too large, too late or one too many', () => {
      expect(decode(newDecoder(), '3fe1 1f82')).to.eql([':method: GET']); // 4096
      fails('3fe2 1f82', 'a table larger than was announced');
      fails('8220', 'a table size update after a field');
      expect(decode(newDecoder(), '203f e11f 82')).to.eql([':method: GET']);
      fails('2020 2082', 'too many table size updates');
    });
  });

  describe('on the dynamic table', () => {
    it('lets the oldest entries go for a new one', () => {
      const decoder = newDecoder(110); // three entries of 36
      for (const name of ['a', 'b', 'c']) decode(decoder, literal('40', `x-${name}`, '1'));
      expect(decode(decoder, 'bebfc0')).to.eql(['x-c: 1', 'x-b: 1', 'x-a: 1']);
      decode(decoder, literal('40', 'x-d', '2'));
      expect(decode(decoder, 'bebfc0')).to.eql(['x-d: 2', 'x-c: 1', 'x-b: 1']);
      fails('c1', 'no field has index 65', decoder);
    });

    it('counts 32 bytes besides name and value', () => {
      const decoder = newDecoder(72);
      decode(decoder, literal('40', 'x-a', '1'));
      decode(decoder, literal('40', 'x-b', '2'));
      expect(decode(decoder, 'bebf')).to.eql(['x-b: 2', 'x-a: 1']);
      decode(decoder, literal('40', 'x-c', '34'));
      expect(decode(decoder, 'be')).to.eql(['x-c: 34']);
      fails('bf', 'no field has index 63', decoder);
    });

    it('is emptied by an entry larger than itself', () => {
      const decoder = newDecoder(110);
      decode(decoder, literal('40', 'x-a', '1'));
      expect(decode(decoder, literal('40', 'x-b', '2'.repeat(76)))).to.have.length(1);
      fails('be', 'no field has index 62', decoder);
    });

    it('takes a name from an entry that goes for the new one', () => {
      const decoder = newDecoder(40);
      decode(decoder, literal('40', 'x-name', '1'));
      const block = Buffer.concat([hex('7e'), plain('2')]);
      expect(decode(decoder, block)).to.eql(['x-name: 2']);
      expect(decode(decoder, 'be')).to.eql(['x-name: 2']);
    });

    it('shrinks and grows with the updates of its size', () => {
      const decoder = newDecoder();
      for (const name of ['a', 'b', 'c']) decode(decoder, literal('40', `x-${name}`, '1'));
      expect(decode(decoder, '3f29 be bf')).to.eql(['x-c: 1', 'x-b: 1']); // 72
      fails('c0', 'no field has index 64', decoder);
      expect(decode(decoder, '20 3fe1 1f')).to.eql([]);
      fails('be', 'no field has index 62', decoder);
      decode(decoder, literal('40', 'x-d', '1'));
      expect(decode(decoder, 'be')).to.eql(['x-d: 1']);
    });

    it('goes round many times', () => {
      const decoder = newDecoder();
      for (let round = 0; round < 1000; round++) {
        decode(decoder, literal('40', '', String(round % 10)));
      }
      const all = Buffer.from(Array.from({ length: 65 }, (_, at) => 0x80 + 62 + at));
      expect(decode(decoder, all)?.[64]).to.equal(': 5');
      // 33 bytes each: 124 of them, up to index 185.
      expect(decode(decoder, 'ff3a')).to.eql([': 6']);
      fails('ff3b', 'no field has index 186', decoder);
    });
  });

  describe('on a block that it has read before', () => {
    function fieldsOf(decoder: HeaderDecoder, block: Buffer): readonly unknown[] | undefined {
      return decoder.decode(block, 0, block.length);
    }

    it('returns the same list', () => {
      const decoder = newDecoder();
      decode(decoder, literal('40', 'x-a', '1'));
      const block = Buffer.concat([hex('82be'), literal('00', 'grpc-timeout', '100m')]);
      const other = Buffer.concat([hex('82be'), literal('00', 'grpc-timeout', '99m')]);
      const list = fieldsOf(decoder, block);
      expect(list).to.be.frozen;
      const otherList = fieldsOf(decoder, other);
      expect(fieldsOf(decoder, Buffer.from(block))).to.equal(list);
      expect(fieldsOf(decoder, Buffer.from(other))).to.equal(otherList);
      expect(otherList).to.not.eql(list);
    });

    it('tells blocks apart that differ in any one byte', () => {
      const decoder = newDecoder();
      const block = literal('00', 'x-name', 'a long enough value');
      decode(decoder, block);
      for (let at = 2; at < block.length; at++) {
        if (at === 8) continue; // the length of the value
        const other = Buffer.from(block);
        other[at] = 0x7e;
        const text = other.toString('latin1');
        expect(decode(decoder, other)).to.eql([`${text.slice(2, 8)}: ${text.slice(9)}`]);
      }
      expect(decode(decoder, block)).to.eql(['x-name: a long enough value']);
    });

    it('reads it anew when the table has changed since', () => {
      const decoder = newDecoder();
      decode(decoder, literal('40', 'x-a', '1'));
      expect(decode(decoder, '82be')).to.eql([':method: GET', 'x-a: 1']);
      decode(decoder, literal('40', 'x-b', '2'));
      expect(decode(decoder, '82be')).to.eql([':method: GET', 'x-b: 2']);
      expect(decode(decoder, '82be')).to.eql([':method: GET', 'x-b: 2']);
      decode(decoder, '20');
      fails('82be', 'no field has index 62', decoder);
    });

    it('forgets all of them when the table has changed', () => {
      const decoder = newDecoder();
      decode(decoder, literal('40', 'x-a', '1'));
      decode(decoder, '82be');
      decode(decoder, '83be');
      decode(decoder, literal('40', 'x-b', '2'));
      expect(decode(decoder, '82be')).to.eql([':method: GET', 'x-b: 2']);
      expect(decode(decoder, '83be')).to.eql([':method: POST', 'x-b: 2']);
    });

    it('goes on when there have been many others', () => {
      const decoder = newDecoder();
      for (let round = 0; round < 50; round++) {
        const value = String(round % 20);
        const list = decode(decoder, literal('00', 'x', value));
        expect(list).to.eql([`x: ${value}`]);
      }
    });

    it('puts its fields into the table again', () => {
      const decoder = newDecoder();
      const block = literal('40', 'x-a', '1');
      decode(decoder, block);
      fails('bf', 'no field has index 63', decoder);
      decode(decoder, block);
      expect(decode(decoder, 'bebf')).to.eql(['x-a: 1', 'x-a: 1']);
    });
  });

  describe('on a list that is too large', () => {
    it('returns nothing, and goes on with a table that is right', () => {
      const decoder = newDecoder(TABLE_BYTES, 100);
      expect(decode(decoder, literal('00', 'x', 'y'.repeat(67)))).to.have.length(1);
      expect(decode(decoder, literal('00', 'x', 'y'.repeat(68)))).to.equal(undefined);
      const block = Buffer.concat([
        literal('40', 'x-first', '1'),
        literal('00', 'x-large', 'y'.repeat(1000)),
        literal('10', 'x-unseen', '2'),
        hex('0481 18'), // not to be stored, so its code is not looked at
        literal('40', 'x-last', '3'),
      ]);
      expect(decode(decoder, block)).to.equal(undefined);
      expect(decode(decoder, 'bebf')).to.eql(['x-last: 3', 'x-first: 1']);
      expect(decode(decoder, block)).to.equal(undefined);
      expect(decode(decoder, 'c0')).to.eql(['x-last: 3']);
    });

    it('still refuses what is not HPACK', () => {
      const large = literal('00', 'x', 'y'.repeat(1000));
      const decoder = newDecoder(TABLE_BYTES, 100);
      fails(Buffer.concat([large, hex('be')]), 'no field has index 62', decoder);
      fails(Buffer.concat([large, hex('0f2f 00')]), 'no field has index 62', decoder);
      fails(Buffer.concat([large, hex('0002 61')]), 'in the middle of a string', decoder);
    });

    it('does not let a small block become much', () => {
      const decoder = newDecoder();
      decode(decoder, literal('40', 'x', 'y'.repeat(4000)));
      const started = process.memoryUsage().heapUsed;
      for (let round = 0; round < 20; round++) {
        expect(decode(decoder, Buffer.alloc(100_000, 0xbe))).to.equal(undefined);
      }
      expect(process.memoryUsage().heapUsed - started).to.be.below(20_000_000);
    });
  });

  describe('on what another implementation encodes', () => {
    it('reads every name of the static table', async () => {
      // prettier-ignore
      const names = [
        'accept-charset', 'accept-encoding', 'accept-language', 'accept-ranges', 'accept',
        'access-control-allow-origin', 'age', 'allow', 'authorization', 'cache-control',
        'content-disposition', 'content-encoding', 'content-language', 'content-length',
        'content-location', 'content-range', 'content-type', 'cookie', 'date', 'etag', 'expect',
        'expires', 'from', 'if-match', 'if-modified-since', 'if-none-match', 'if-range',
        'if-unmodified-since', 'last-modified', 'link', 'location', 'max-forwards',
        'proxy-authenticate', 'proxy-authorization', 'range', 'referer', 'refresh', 'retry-after',
        'server', 'set-cookie', 'strict-transport-security', 'user-agent', 'vary', 'via',
        'www-authenticate',
      ];
      const headers = { ...START, ...Object.fromEntries(names.map((name) => [name, '1'])) };
      const [block = Buffer.alloc(0)] = await blocksOf([{ tableSizes: [], headers }]);
      expect(block.length).to.be.below(names.join('').length);
      expect(decode(newDecoder(), block)).to.eql(linesOf({ tableSizes: [], headers }));
      // What no client of today may send, and the fields that have a value.
      expect(decode(newDecoder(), '81 828384 8586 8788 898a 8b8c 8d8e 90 a6 b9')).to.eql([
        ':authority: ',
        ':method: GET',
        ':method: POST',
        ':path: /',
        ':path: /index.html',
        ':scheme: http',
        ':scheme: https',
        ':status: 200',
        ':status: 204',
        ':status: 206',
        ':status: 304',
        ':status: 400',
        ':status: 404',
        ':status: 500',
        'accept-encoding: gzip, deflate',
        'host: ',
        'transfer-encoding: ',
      ]);
    });

    it('reads every byte in Huffman code', async () => {
      // Between short codes, so that coding pays.
      const values = Array.from({ length: 255 }, (_, at) => {
        return `${'a'.repeat(20)}${String.fromCharCode(at + 1)}${'e'.repeat(20)}`;
      });
      const headers = { ...START, ...Object.fromEntries(values.map((v, at) => [`x-${at}`, v])) };
      const [block = Buffer.alloc(0)] = await blocksOf([{ tableSizes: [], headers }]);
      expect(block.length).to.be.below(values.join('').length);
      const fields = newDecoder(TABLE_BYTES, 1e6).decode(block, 0, block.length);
      expect(fields?.slice(4).map(({ value }) => value)).to.eql(values);
    });

    it('reads the lists of a connection, whatever they are and however large the table', async () => {
      await fc.assert(
        fc.asyncProperty(calls, async (made) => {
          const decoder = newDecoder(TABLE_BYTES, 1e6);
          const lists = (await blocksOf(made)).map((block) => decode(decoder, block));
          expect(lists).to.eql(made.map(linesOf));
        }),
        { numRuns: 60 },
      );
    }).timeout(30_000);

    it('reads them with a bound as without, except for those that are too large', async () => {
      await fc.assert(
        fc.asyncProperty(calls, async (made) => {
          const decoder = newDecoder(TABLE_BYTES, 400);
          const lists = (await blocksOf(made)).map((block) => decode(decoder, block));
          const expected = made.map(linesOf).map((lines) => {
            const bytes = lines.reduce((sum, line) => sum + line.length - 2 + 32, 0);
            return bytes > 400 ? undefined : lines;
          });
          expect(lists).to.eql(expected);
        }),
        { numRuns: 30 },
      );
    }).timeout(30_000);

    it('reads or refuses what has been damaged', async () => {
      const blocks = await blocksOf(fc.sample(calls, { numRuns: 5, seed: 1 }).flat().slice(0, 90));
      const damage = fc.record({
        at: fc.nat(),
        byte: fc.oneof(fc.nat(255), fc.constantFrom(0, 0x20, 0x3f, 0x40, 0x7f, 0x80, 0xbe, 0xff)),
        cut: fc.boolean(),
      });
      const outcomes = { read: 0, refused: 0 };
      fc.assert(
        fc.property(fc.array(fc.option(damage), { maxLength: blocks.length }), (damages) => {
          const decoder = newDecoder();
          for (const [index, drawn] of damages.entries()) {
            const bytes = Buffer.from(blocks[index] ?? []);
            const at = (drawn?.at ?? 0) % bytes.length;
            if (drawn !== null) bytes[at] = drawn.byte;
            try {
              decode(decoder, drawn?.cut === true ? bytes.subarray(0, at + 1) : bytes);
              if (drawn !== null) outcomes.read++;
            } catch (error) {
              if (!(error instanceof HpackError)) throw error;
              outcomes.refused++;
              return;
            }
          }
        }),
        { numRuns: 2000 },
      );
      expect(outcomes.read).to.be.above(100);
      expect(outcomes.refused).to.be.above(100);
    });

    it('reads or refuses any bytes', () => {
      fc.assert(
        fc.property(fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 5 }), (blocks) => {
          const decoder = newDecoder(300, 500);
          try {
            for (const block of blocks) decode(decoder, Buffer.from(block));
          } catch (error) {
            if (!(error instanceof HpackError)) throw error;
          }
        }),
        { numRuns: 5000 },
      );
    });
  });
});
