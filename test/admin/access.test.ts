import { request } from 'node:http';
import { expect } from 'chai';
import { refuseChange } from '../../src/admin/access.js';
import { startAdmin, type AdminFixture } from '../support/admin-fixture.js';

const YAML =
  'domain: shop\ndescriptors:\n  - { key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }\n';
const QUESTION = JSON.stringify({ domain: 'shop', descriptors: ['user=42'] });

/** `fetch` does not let a test choose `Host` and `Origin`. */
function send(
  url: string,
  method: string,
  headers: Readonly<Record<string, string>>,
  body?: string,
): Promise<number> {
  return new Promise((resolve, reject) => {
    const call = request(url, { method, headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    call.on('error', reject);
    call.end(body);
  });
}

describe('admin access', () => {
  const json = { 'content-type': 'application/json', 'x-weir-admin': '1' };

  describe('without a token', () => {
    let admin: AdminFixture;
    before(async () => {
      admin = await startAdmin({ yaml: YAML });
    });
    after(() => admin.stop());

    it('lets no page of another site start a read', async () => {
      const status = (site: string): Promise<number> =>
        send(`${admin.url}/stats`, 'GET', { 'sec-fetch-site': site });
      expect(await status('cross-site')).to.equal(403);
      expect(await status('same-origin')).to.equal(200);
      expect(await status('none')).to.equal(200);
    });

    const cases: readonly [what: string, headers: Record<string, string>, status: number][] = [
      ['takes a reset that carries the header', {}, 200],
      ['refuses a reset without the header', { 'x-weir-admin': '' }, 403],
      ['refuses one from another site', { origin: 'https://evil.example' }, 403],
      ['refuses one from a page that hides its origin', { origin: 'null' }, 403],
      ['refuses a body that a form could send', { 'content-type': 'text/plain' }, 415],
      ['refuses a name that is not ours, as a rebound one would be', { host: 'evil.example' }, 403],
      ['takes localhost by name', { host: 'localhost:6070' }, 200],
      ['takes an address', { host: '[::1]:6070' }, 200],
    ];
    for (const [what, headers, status] of cases) {
      it(what, async () => {
        const url = `${admin.url}/api/v1/reset`;
        expect(await send(url, 'POST', { ...json, ...headers }, QUESTION)).to.equal(status);
      });
    }

    it('takes a reset from its own page', async () => {
      const headers = { ...json, origin: admin.url };
      expect(await send(`${admin.url}/api/v1/reset`, 'POST', headers, QUESTION)).to.equal(200);
    });

    it('lets a rebound name read nothing either', async () => {
      const headers = { host: 'evil.example' };
      expect(await send(`${admin.url}/api/v1/status`, 'GET', headers)).to.equal(403);
      expect(await send(`${admin.url}/`, 'GET', headers)).to.equal(403);
    });

    it('answers no preflight of another site', async () => {
      const headers = { origin: 'https://evil.example', 'access-control-request-method': 'POST' };
      expect(await send(`${admin.url}/api/v1/reset`, 'OPTIONS', headers)).to.equal(403);
    });

    it('forbids the page to load anything from elsewhere or to be framed', async () => {
      const { headers } = await fetch(`${admin.url}/`);
      expect(headers.get('content-security-policy')).to.match(
        /^default-src 'none'; script-src 'self';/,
      );
      expect(headers.get('content-security-policy')).to.match(/frame-ancestors 'none'/);
      expect(headers.get('content-security-policy')).not.to.contain('unsafe');
      expect(headers.get('access-control-allow-origin')).to.equal(null);
    });

    it('takes changes from this host only', () => {
      const asked = { method: 'POST', headers: json, isShell: false };
      const access = { token: undefined, host: '0.0.0.0' };
      expect(refuseChange({ ...asked, address: '::ffff:127.0.0.1' }, access)).to.equal(undefined);
      expect(refuseChange({ ...asked, address: '::1' }, access)).to.equal(undefined);
      expect(refuseChange({ ...asked, address: '10.0.0.7' }, access)?.status).to.equal(403);
    });
  });

  describe('with a token', () => {
    let admin: AdminFixture;
    before(async () => {
      admin = await startAdmin({ yaml: YAML, token: 'open sesame' });
    });
    after(() => admin.stop());

    it('needs it for every answer with data in it', async () => {
      for (const path of [
        '/api/v1/status',
        '/api/v1/rules',
        '/rlconfig',
        '/stats',
        '/debug/pprof/heap',
      ]) {
        expect(await send(admin.url + path, 'GET', {}), path).to.equal(401);
        const wrong = { authorization: 'Bearer open sesamE' };
        expect(await send(admin.url + path, 'GET', wrong), path).to.equal(401);
        const right = { authorization: 'Bearer open sesame' };
        expect(await send(admin.url + path, 'GET', right), path).to.equal(200);
      }
    });

    it('serves the page, which asks for it, and the health of the process without', async () => {
      for (const path of ['/', '/page.js', '/page.css', '/healthz']) {
        expect(await send(admin.url + path, 'GET', {}), path).to.equal(200);
      }
    });

    it('takes any name, and changes from any host', async () => {
      const headers = { ...json, authorization: 'Bearer open sesame', host: 'weir.internal:6070' };
      expect(await send(`${admin.url}/api/v1/reset`, 'POST', headers, QUESTION)).to.equal(200);
      const access = { token: 'open sesame', host: '0.0.0.0' };
      const asked = { method: 'POST', headers: json, isShell: false, address: '10.0.0.7' };
      expect(refuseChange(asked, access)).to.equal(undefined);
    });
  });
});
