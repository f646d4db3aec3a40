/**
 * A Redis behind a proxy, and everything that can be done to them and undone again: what the measurements with
 * faults share.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { FakeRedis } from '../test/support/fake-redis.js';
import { Proxy } from '../test/support/proxy.js';
import { RedisServer } from '../test/support/redis-server.js';

export interface Fault {
  readonly name: string;
  begin(): void | Promise<void>;
  /** From its end on Redis is back. Undefined: it is back at once. */
  readonly end: (() => void | Promise<void>) | undefined;
}

export class FaultyRedis {
  private readonly directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  private repeating: NodeJS.Timeout | undefined;

  private constructor(
    private redis: RedisServer,
    private readonly second: RedisServer,
    private readonly fake: FakeRedis,
    readonly proxy: Proxy,
    /** Goes to Redis itself. */
    private admin: Redis,
  ) {}

  static async start(): Promise<FaultyRedis> {
    const [redis, second, fake] = await Promise.all([
      RedisServer.start(),
      RedisServer.start(),
      FakeRedis.start(() => '?what\r\n'),
    ]);
    const proxy = await Proxy.start({ port: redis.port });
    const faulty = new FaultyRedis(redis, second, fake, proxy, adminOf(redis.port));
    await redis.stop();
    faulty.redis = await faulty.startRedis(redis.port);
    return faulty;
  }

  /** Keys that would stay for ever. */
  async immortalKeys(): Promise<string[]> {
    const immortal: string[] = [];
    for await (const keys of this.admin.scanStream({ count: 1000 }) as AsyncIterable<string[]>) {
      const lives = await Promise.all(keys.map((key) => this.admin.pttl(key)));
      // -2 is a key that has gone meanwhile.
      immortal.push(...keys.filter((_, i) => lives[i] === -1));
    }
    return immortal;
  }

  async stop(): Promise<void> {
    clearInterval(this.repeating);
    this.admin.disconnect();
    await this.proxy.stop();
    await Promise.all([this.redis.stop(), this.second.stop(), this.fake.stop()]);
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** Faults after which all is as before. */
  get passing(): readonly Fault[] {
    const { proxy } = this;
    const pass = (): void => {
      clearInterval(this.repeating);
      proxy.pass();
    };
    return [
      {
        name: 'Redis is killed',
        begin: () => this.redis.stop(),
        end: async () => {
          this.redis = await this.startRedis(this.redis.port);
        },
      },
      {
        name: 'Redis stands still',
        begin: () => this.redis.pause(),
        end: () => this.redis.resume(),
      },
      { name: 'the network swallows everything', begin: () => proxy.blackhole(), end: pass },
      {
        name: 'the network refuses connections',
        begin: () => {
          proxy.refuse();
          proxy.cut();
        },
        end: pass,
      },
      {
        name: 'connections are cut every half second',
        begin: () => this.repeat(500, () => proxy.cut()),
        end: pass,
      },
      {
        name: 'replies are lost',
        begin: () => this.repeat(300, () => void proxy.loseReplyTo('bench')),
        end: pass,
      },
      { name: '5 ms of latency', begin: () => proxy.delayReplies(5), end: pass },
      { name: '30 ms of latency', begin: () => proxy.delayReplies(30), end: pass },
      {
        name: 'the script cache is emptied all the time',
        begin: () => this.repeat(100, () => void this.admin.script('FLUSH')),
        end: pass,
      },
      {
        name: 'Redis is out of memory',
        begin: () => this.configure('maxmemory', '1'),
        end: () => this.configure('maxmemory', '0'),
      },
      {
        name: 'a permission is taken away',
        begin: () => this.permit('-'),
        end: () => this.permit('+'),
      },
      {
        name: 'something else listens there',
        begin: () => {
          proxy.switchTo({ port: this.fake.port });
          proxy.cut();
        },
        end: () => {
          proxy.switchTo({ port: this.redis.port });
          proxy.cut();
        },
      },
    ];
  }

  /** Another server takes the place of the first; can be done once. */
  get demotion(): Fault {
    return {
      name: 'the master is demoted, another takes its place',
      begin: async () => {
        const next = adminOf(this.second.port);
        await next.replicaof('127.0.0.1', String(this.redis.port));
        while (!(await next.info('replication')).includes('master_link_status:up')) await sleep(20);
        await next.replicaof('NO', 'ONE');
        await this.admin.replicaof('127.0.0.1', String(this.second.port));
        this.proxy.switchTo({ port: this.second.port });
        this.admin.disconnect();
        this.admin = next;
      },
      end: undefined,
    };
  }

  /** With data that outlives it. */
  private startRedis(port: number): Promise<RedisServer> {
    const keep = ['--appendonly', 'yes', '--appendfsync', 'always'];
    return RedisServer.start({ port, args: ['--dir', this.directory, ...keep] });
  }

  private repeat(everyMs: number, act: () => void): void {
    act();
    this.repeating = setInterval(act, everyMs);
  }

  private async configure(name: string, value: string): Promise<void> {
    await this.admin.config('SET', name, value);
  }

  private async permit(sign: '+' | '-'): Promise<void> {
    await this.admin.acl('SETUSER', 'default', `${sign}eval`, `${sign}evalsha`);
  }
}

function adminOf(port: number): Redis {
  const client = new Redis(port, '127.0.0.1', { retryStrategy: () => 50 });
  client.on('error', () => undefined); // it is killed under our hands
  return client;
}
