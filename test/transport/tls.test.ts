import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { credentials, status, type ChannelCredentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import { hasDnsName } from '../../src/transport/tls.js';
import { Bench, failureOf, NATIVE, SERVERS } from './grpc-client.js';

const REQUEST = { descriptor: { user: 'x' } };

for (const { server, direct } of SERVERS) {
  describe(`TLS on the gRPC port, by ${server}`, function () {
    this.timeout(20_000);
    let directory: string;
    let bench: Bench | undefined;

    const file = (name: string): string => path.join(directory, name);

    function openssl(...args: string[]): void {
      execFileSync('openssl', args, { cwd: directory, stdio: 'ignore' });
    }

    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

    function authority(name: string): void {
      openssl(
        'req',
        '-x509',
        ...key,
        '-keyout',
        `${name}.key`,
        '-out',
        `${name}.crt`,
        '-days',
        '2',
        '-subj',
        `/CN=${name}`,
      );
    }

    function certificate(name: string, ca: string, names: string): void {
      writeFileSync(file(`${name}.ext`), `subjectAltName=${names}\n`);
      openssl(
        'req',
        ...key,
        '-keyout',
        `${name}.key`,
        '-out',
        `${name}.csr`,
        '-subj',
        `/CN=${name}`,
      );
      openssl(
        'x509',
        '-req',
        '-in',
        `${name}.csr`,
        '-CA',
        `${ca}.crt`,
        '-CAkey',
        `${ca}.key`,
        '-CAcreateserial',
        '-days',
        '2',
        '-extfile',
        `${name}.ext`,
        '-out',
        `${name}.crt`,
      );
    }

    before(() => {
      directory = mkdtempSync(path.join(tmpdir(), 'weir-tls-'));
      authority('ca');
      authority('other-ca');
      certificate('server', 'ca', 'DNS:localhost');
      certificate('second', 'ca', 'DNS:localhost');
      certificate('envoy', 'ca', 'DNS:decoy.example,DNS:Envoy.example');
      certificate('stranger', 'ca', 'DNS:notenvoy.example');
      certificate('forged', 'other-ca', 'DNS:envoy.example');
    });

    after(() => {
      rmSync(directory, { recursive: true, force: true });
    });

    afterEach(async () => {
      await bench?.stop();
      bench = undefined;
    });

    function channel(client?: string): ChannelCredentials {
      const ca = readFileSync(file('ca.crt'));
      if (client === undefined) return credentials.createSsl(ca);
      return credentials.createSsl(
        ca,
        readFileSync(file(`${client}.key`)),
        readFileSync(file(`${client}.crt`)),
      );
    }

    async function start(tls: { clientCa?: string; clientSan?: string } = {}): Promise<Bench> {
      bench = await new Bench(undefined, {
        direct,
        tls: {
          certificate: file('server.crt'),
          key: file('server.key'),
          clientCa: tls.clientCa,
          clientSan: tls.clientSan,
        },
        certificateIntervalMs: 50,
      }).start();
      return bench;
    }

    async function answered(server: Bench, client?: string): Promise<boolean> {
      const caller = server.caller(NATIVE, channel(client), 'localhost');
      const options = { deadline: Date.now() + 1500 };
      try {
        return (await caller.call('ShouldRateLimit', REQUEST, options))['allowed'] === true;
      } catch {
        return false;
      }
    }

    it('answers a client that trusts the certificate, and not one that speaks plain', async () => {
      const server = await start();
      expect(await answered(server)).to.equal(true);
      const plain = server
        .caller(NATIVE)
        .call('ShouldRateLimit', REQUEST, { deadline: Date.now() + 500 });
      expect((await failureOf(plain)).code).to.be.oneOf([
        status.UNAVAILABLE,
        status.DEADLINE_EXCEEDED,
      ]);
    });

    it('wants a client certificate of its CA', async () => {
      const server = await start({ clientCa: file('ca.crt') });
      expect(await answered(server, 'stranger')).to.equal(true);
      expect(await answered(server)).to.equal(false);
      expect(await answered(server, 'forged')).to.equal(false);
    });

    it('wants a DNS name in it, in any case, and not a part of it', async () => {
      const server = await start({ clientCa: file('ca.crt'), clientSan: 'envoy.example' });
      expect(await answered(server, 'envoy')).to.equal(true);
      expect(await answered(server, 'stranger')).to.equal(false);
      expect(server.logger.lines).to.include('client certificate lacks the wanted DNS name');
    });

    it('takes no quoted text for a name', () => {
      const claim = { subjectaltname: 'DNS:"a, DNS:envoy.example, b"' } as unknown as Parameters<
        typeof hasDnsName
      >[0];
      expect(hasDnsName(claim, 'envoy.example')).to.equal(false);
    });

    function serial(server: Bench): Promise<string> {
      return new Promise((resolve, reject) => {
        const socket = connectTls({
          port: server.port,
          host: '127.0.0.1',
          servername: 'localhost',
          ca: readFileSync(file('ca.crt')),
          ALPNProtocols: ['h2'],
        });
        socket.on('error', reject);
        socket.on('secureConnect', () => {
          resolve(socket.getPeerCertificate().serialNumber);
          socket.destroy();
        });
      });
    }

    it('shows new certificates when their files change, and keeps the old while they do not fit', async () => {
      copyFileSync(file('server.crt'), file('first.crt'));
      copyFileSync(file('server.key'), file('first.key'));
      const server = await start();
      const before = await serial(server);
      const caller = server.caller(NATIVE, channel(), 'localhost');
      await caller.call('ShouldRateLimit', REQUEST);
      copyFileSync(file('second.crt'), file('server.crt'));
      await until(() =>
        server.logger.lines.includes('TLS certificates not reloaded, the former stay'),
      );
      expect(await serial(server)).to.equal(before);
      copyFileSync(file('second.key'), file('server.key'));
      await until(() => server.logger.lines.includes('TLS certificates reloaded'));
      expect(await serial(server)).to.not.equal(before);
      await caller.call('ShouldRateLimit', REQUEST);
      copyFileSync(file('first.crt'), file('server.crt'));
      copyFileSync(file('first.key'), file('server.key'));
    });

    it('names a file that cannot be read, and a pair that does not fit', () => {
      const make = (certificateFile: string, keyFile: string) => () =>
        new Bench(undefined, {
          tls: {
            certificate: file(certificateFile),
            key: file(keyFile),
            clientCa: undefined,
            clientSan: undefined,
          },
        });
      expect(make('nope.crt', 'server.key')).to.throw(
        `cannot read the certificate file ${file('nope.crt')}`,
      );
      expect(make('server.crt', 'second.key')).to.throw('are not a usable pair');
    });
  });
}

async function until(condition: () => boolean): Promise<void> {
  const limit = Date.now() + 5000;
  while (!condition() && Date.now() < limit)
    await new Promise((resolve) => setTimeout(resolve, 10));
  expect(condition()).to.equal(true);
}
