/**
 * An HTTP service that asks Weir before it works. With `make run` in another terminal:
 *
 *   npx tsx examples/clients/server.ts
 *   for i in 1 2 3 4 5 6; do curl -si -H 'x-user: ann' localhost:3000/v1/login; done
 *
 * By the rules of examples/config/default.yaml the sixth within a quarter of an hour is a 429.
 */
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { connectToWeir, toSeconds, type Answer } from './weir.js';

const protos = fileURLToPath(new URL('../../proto', import.meta.url));
const weir = connectToWeir(process.env['WEIR'] ?? '127.0.0.1:8081', protos, 100);
const port = Number(process.env['SERVER_PORT'] ?? 3000);

createServer((request, response) => {
  const endpoint = new URL(request.url ?? '/', 'http://localhost').pathname;
  const user = request.headers['x-user'];
  const descriptor = {
    endpoint,
    // In your service: from the session or the token, never a header that anybody can send.
    ...(typeof user === 'string' && { user }),
    ip: request.socket.remoteAddress ?? '',
  };
  void weir
    .shouldRateLimit({ descriptor })
    .catch((error: unknown) => {
      // Weir itself is away. Letting everybody pass is our choice here; refusing is the other one.
      console.error('not limited:', error instanceof Error ? error.message : error);
      return undefined;
    })
    .then((answer: Answer | undefined) => {
      if (answer?.remaining !== undefined) {
        response.setHeader('ratelimit-remaining', answer.remaining);
      }
      if (answer?.allowed === false) {
        if (answer.retry_after !== null) {
          response.setHeader('retry-after', toSeconds(answer.retry_after));
        }
        response.writeHead(429).end(`too many requests: ${answer.limit_name}\n`);
      } else response.end(`${endpoint} for ${String(user ?? 'anybody')}\n`);
    });
}).listen(port, () => {
  console.log(`listening on http://localhost:${String(port)}`);
});
