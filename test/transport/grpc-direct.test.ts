import { EventEmitter } from 'node:events';
import type { Http2Server } from 'node:http2';
import { expect } from 'chai';
import { answerDirectly } from '../../src/transport/grpc-direct.js';

describe('a call on an HTTP/2 stream', () => {
  it('takes a message in pieces of one byte without copying it for each', () => {
    const server = new EventEmitter();
    const received: number[] = [];
    answerDirectly(server as unknown as Http2Server, {
      methods: new Map([['/a', ({ message }) => received.push(message.length, message[7] ?? -1)]]),
      maxMessageBytes: 1_048_576,
      opened: () => undefined,
    });
    const stream = new EventEmitter();
    server.emit('stream', stream, {
      ':method': 'POST',
      ':path': '/a',
      'content-type': 'application/grpc',
    });
    const bytes = Buffer.alloc(5 + 500_000, 3);
    bytes.writeUInt8(0, 0);
    bytes.writeUInt32BE(500_000, 1);
    const began = performance.now();
    for (let i = 0; i < bytes.length; i++) stream.emit('data', bytes.subarray(i, i + 1));
    expect(received).to.deep.equal([500_000, 3]);
    expect(performance.now() - began).to.be.below(2000);
  });
});
