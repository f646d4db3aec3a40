/**
 * What any gRPC server on Node can reach: the library with an empty handler that answers OK, messages as
 * bytes. The baseline where no peer is at hand. `GRPC_PORT=8081 node --import tsx bench/echo.ts`
 */
import { Server, ServerCredentials } from '@grpc/grpc-js';

const bytes = (message: Buffer): Buffer => message;
/** A RateLimitResponse with nothing but its overall code, OK. */
const OK = Buffer.from([8, 1]);

const server = new Server({ 'grpc.enable_channelz': 0 });
server.addService(
  {
    ShouldRateLimit: {
      path: '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit',
      requestStream: false,
      responseStream: false,
      requestSerialize: bytes,
      requestDeserialize: bytes,
      responseSerialize: bytes,
      responseDeserialize: bytes,
    },
  },
  {
    ShouldRateLimit: (_call: unknown, callback: (error: null, answer: Buffer) => void) => {
      callback(null, OK);
    },
  },
);
const address = `127.0.0.1:${process.env['GRPC_PORT'] ?? '8081'}`;
server.bindAsync(address, ServerCredentials.createInsecure(), (error) => {
  if (error !== null) throw error;
});
