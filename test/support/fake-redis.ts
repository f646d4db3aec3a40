/** A server that reads RESP commands and answers whatever the test wants: bytes, silence, a closed socket. */
import { createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

/** Bytes to write back; undefined: silence. */
export type Answer = (command: readonly string[], socket: Socket) => string | undefined;

export class FakeRedis {
  private readonly sockets = new Set<Socket>();
  /** Connections that were made, and commands that came, in order. */
  connections = 0;
  readonly commands: (readonly string[])[] = [];

  private constructor(private readonly server: Server) {}

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  static async start(answer: Answer): Promise<FakeRedis> {
    const server = createServer();
    const fake = new FakeRedis(server);
    server.on('connection', (socket) => {
      fake.connections++;
      fake.sockets.add(socket);
      let rest = '';
      socket.setEncoding('latin1');
      socket.on('data', (data: string) => {
        rest += data;
        for (let parsed = parseCommand(rest); parsed !== undefined; parsed = parseCommand(rest)) {
          rest = rest.slice(parsed.length);
          fake.commands.push(parsed.command);
          const reply = answer(parsed.command, socket);
          if (reply !== undefined) socket.write(reply, 'latin1');
        }
      });
      socket.on('error', () => undefined);
      socket.on('close', () => fake.sockets.delete(socket));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return fake;
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((resolve) => {
      this.server.close(() => {
        resolve();
      });
    });
  }
}

/** The first whole command of what was read: `*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n`. */
function parseCommand(text: string): { command: string[]; length: number } | undefined {
  const head = /^\*(\d+)\r\n/.exec(text);
  if (head === null) return undefined;
  let at = head[0].length;
  const command: string[] = [];
  for (let i = 0; i < Number(head[1]); i++) {
    const size = /^\$(\d+)\r\n/.exec(text.slice(at, at + 20));
    if (size === null) return undefined;
    at += size[0].length;
    const end = at + Number(size[1]);
    if (text.length < end + 2) return undefined;
    command.push(text.slice(at, end));
    at = end + 2;
  }
  return { command, length: at };
}
