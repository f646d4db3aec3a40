import { expect } from 'chai';
import { keySlot, parseRedirect, parseSlots, tagInSlot } from '../../src/store/cluster-slots.js';

const ASKED = { host: '10.0.0.9', port: 7000 };

describe('store/cluster-slots', () => {
  it('computes the slots that Redis computes', () => {
    // CLUSTER KEYSLOT of Redis 7.0.
    expect(keySlot('123456789')).to.equal(12_739);
    expect(keySlot('foo')).to.equal(12_182);
    expect(keySlot('f60|shop|user=42')).to.equal(6881);
    expect(keySlot('')).to.equal(0);
    expect(keySlot('naïve')).to.equal(2847);
  });

  it('takes the hash tag alone, if it is not empty', () => {
    expect(keySlot('a{foo}b')).to.equal(12_182);
    expect(keySlot('{foo}{bar}')).to.equal(12_182);
    expect(keySlot('{}foo')).to.equal(9500);
    expect(keySlot('foo{bar')).to.equal(15_278);
  });

  it('reads CLUSTER SLOTS, with the host that was asked where a node does not know its own', () => {
    const reply = [
      [0, 100, ['10.0.0.1', 7001, 'id', []], ['10.0.0.2', 7002, 'id']],
      [101, 16_383, [null, 7003, 'id']],
      [200, 200, ['', 7004]],
    ];
    expect(parseSlots(reply, ASKED)).to.deep.equal([
      { first: 0, last: 100, host: '10.0.0.1', port: 7001 },
      { first: 101, last: 16_383, host: '10.0.0.9', port: 7003 },
      { first: 200, last: 200, host: '10.0.0.9', port: 7004 },
    ]);
  });

  it('reads nothing from a reply that makes no sense', () => {
    for (const reply of [null, 'OK', [1], [[0, 20_000, ['h', 1]]], [[0, 1, 'h']]]) {
      expect(parseSlots(reply, ASKED)).to.equal(undefined);
    }
  });

  it('reads redirections, IPv6 and unknown hosts included', () => {
    expect(parseRedirect('MOVED 3999 10.0.0.1:6381', ASKED)).to.deep.equal({
      kind: 'moved',
      slot: 3999,
      to: { host: '10.0.0.1', port: 6381 },
    });
    expect(parseRedirect('ASK 1 fe80::1:6381', ASKED)).to.deep.equal({
      kind: 'ask',
      slot: 1,
      to: { host: 'fe80::1', port: 6381 },
    });
    expect(parseRedirect('MOVED 1 :6381', ASKED)).to.deep.equal({
      kind: 'moved',
      slot: 1,
      to: { host: '10.0.0.9', port: 6381 },
    });
    expect(parseRedirect('TRYAGAIN Multiple keys request', ASKED)).to.deep.equal({
      kind: 'try_again',
    });
    expect(parseRedirect('ERR unknown command', ASKED)).to.equal(undefined);
  });

  it('finds a tag for a slot', () => {
    const tag = tagInSlot((slot) => slot === 9999) ?? '';
    expect(keySlot(`probe{${tag}}`)).to.equal(9999);
  });
});
