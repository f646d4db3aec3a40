import { Redis } from 'ioredis';
import { expect } from 'chai';
import { HyperLogLog, placeOf } from '../../src/metrics/hyperloglog.js';
import { RedisServer } from '../support/redis-server.js';

/** Every length modulo 8, beyond ASCII, empty, long: what the hash treats apart. */
const ODD = [
  '',
  'a',
  'ab',
  'abc',
  'abcd',
  'abcde',
  'abcdef',
  'abcdefg',
  'abcdefgh',
  'f60|shop|user=42',
  'é',
  'f60|shop|user=😀|ip=::1',
  '\u0000\u007f\u0080',
  'x'.repeat(1023),
  'y'.repeat(1024),
  'z'.repeat(5000),
];

describe('HyperLogLog', () => {
  for (const count of [0, 1, 10, 500, 5000, 100_000]) {
    it(`counts ${count} distinct texts within 3 %`, () => {
      const seen = new HyperLogLog();
      for (let round = 0; round < 2; round++) {
        for (let i = 0; i < count; i++) seen.add(`f60|shop|user=${i}`);
      }
      expect(Math.abs(seen.count() - count)).to.be.at.most(count * 0.03);
    });
  }

  it('says that a text changes it once', () => {
    const seen = new HyperLogLog();
    expect([seen.add('a'), seen.add('a'), seen.add('b')]).to.deep.equal([true, false, true]);
  });

  it('counts on in a copy without touching the original', () => {
    const seen = new HyperLogLog();
    for (let i = 0; i < 2000; i++) seen.add(String(i));
    const before = seen.count();
    const copy = seen.copy();
    for (let i = 2000; i < 4000; i++) copy.add(String(i));
    expect(seen.count()).to.equal(before);
    expect(copy.count()).to.be.within(3880, 4120);
  });

  describe('against Redis', () => {
    let server: RedisServer;
    let redis: Redis;

    before(async () => {
      server = await RedisServer.start();
      redis = new Redis(server.port, server.host);
    });

    after(async () => {
      redis.disconnect();
      await server.stop();
    });

    it('changes for exactly the texts that change Redis, with the same estimate', async () => {
      const seen = new HyperLogLog();
      const texts = [
        ...ODD,
        ...Array.from({ length: 20_000 }, (_, i) => `t60|a|ip=10.${i % 7000}`),
      ];
      const pipeline = redis.pipeline();
      for (const text of texts) pipeline.pfadd('seen', text);
      const replies = (await pipeline.exec()) ?? [];
      const there = replies.map(([, changed]) => changed === 1);
      const here = texts.map((text) => seen.add(text));
      // The first PFADD of a key says 1 whatever it adds.
      expect(here).to.deep.equal(there);
      expect(seen.count()).to.equal(await redis.pfcount('seen'));
    });

    it('has the very registers of Redis', async () => {
      await redis.pfadd('registers', ...ODD);
      const registers = (await redis.call('PFDEBUG', 'GETREG', 'registers')) as number[];
      const ours = new Array<number>(16_384).fill(0);
      for (const { index, rank } of ODD.map(placeOf)) {
        ours[index] = Math.max(ours[index] ?? 0, rank);
      }
      expect(registers).to.deep.equal(ours);
    });
  });
});
