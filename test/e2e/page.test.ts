import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Browser, Page } from 'playwright-core';
import { startAdmin, type AdminFixture } from '../support/admin-fixture.js';
import { findBrowser, startBrowser } from '../support/browser.js';

const YAML = `
domain: shop
descriptors:
  - key: endpoint
    value: /pay
    descriptors:
      - key: user
        rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: api_key
    rate_limit: { unit: hour, requests_per_unit: 2 }
`;

/** Set to a directory to look at what the tests saw. */
const SHOTS = process.env['PAGE_SCREENSHOTS'];

const looks: readonly { width: number; height: number; colorScheme: 'light' | 'dark' }[] = [
  { width: 1200, height: 900, colorScheme: 'light' },
  { width: 1200, height: 900, colorScheme: 'dark' },
  { width: 360, height: 740, colorScheme: 'light' },
  { width: 360, height: 740, colorScheme: 'dark' },
];

describe('admin page', function () {
  this.timeout(30_000);
  let browser: Browser | undefined;
  let page: Page;
  let admin: AdminFixture;
  const cleanUp: (() => Promise<void>)[] = [];
  let faults: string[];

  before(async function () {
    const path = findBrowser();
    if (path === undefined) {
      if (process.env['CI'] === 'true') throw new Error('Chromium is missing');
      console.error('    *** no Chromium: the page is not tested');
      this.skip();
    }
    browser = await startBrowser(path);
  });
  after(() => browser?.close());

  async function open(
    look: (typeof looks)[number] = { width: 1200, height: 900, colorScheme: 'light' },
    token?: string,
  ): Promise<void> {
    if (browser === undefined) throw new Error('no browser');
    admin = await startAdmin({
      yaml: YAML,
      live: true,
      startMs: Date.now(),
      ...(token === undefined ? {} : { token }),
    });
    const running = admin;
    cleanUp.push(() => running.stop());
    faults = [];
    page = await browser.newPage({
      viewport: { width: look.width, height: look.height },
      colorScheme: look.colorScheme,
    });
    const opened = page;
    cleanUp.push(() => opened.close());
    page.on('pageerror', ({ message }) => faults.push(message));
    page.on('console', (message) => {
      // The browser reports a 401 by itself; what comes of it is what is tested.
      if (message.type() === 'error' && !message.text().includes('401'))
        faults.push(message.text());
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(admin.url) && !request.url().startsWith('blob:')) {
        faults.push(`asked elsewhere: ${request.url()}`);
      }
    });
    await page.goto(admin.url);
  }

  afterEach(async () => {
    for (const undo of cleanUp.splice(0).reverse()) await undo();
    expect(faults).to.deep.equal([]);
  });

  for (const look of looks) {
    const name = `${look.width} px, ${look.colorScheme}`;
    it(`explains, inspects and resets at ${name}`, async () => {
      await open(look);
      await admin.ask('shop', 'endpoint=/pay,user=42', 8);

      await page.fill('#descriptor', 'endpoint=/pay,user=42');
      await page.keyboard.press('Enter');
      const card = page.locator('.card.refuses');
      await card.waitFor();
      expect(await card.locator('.verdict').innerText()).to.match(
        /^Refused now: endpoint=\/pay,user=42 has 5 of 5 used \(5 per hour\)\. Refused 3 times by this instance in \d+ s\. Free again in /,
      );
      expect(await card.innerText()).to.contain('f3600|shop|endpoint=/pay|user=42');
      await card.locator('summary').click();
      expect(await card.locator('.reasons').innerText()).to.contain(
        "the first entry's key is endpoint, not api_key",
      );

      expect(
        await page.evaluate('document.documentElement.scrollWidth <= window.innerWidth'),
        'nothing is wider than the screen',
      ).to.equal(true);
      if (SHOTS !== undefined) {
        mkdirSync(SHOTS, { recursive: true });
        const file = `page-${look.width}-${look.colorScheme}.png`;
        await page.screenshot({ path: join(SHOTS, file), fullPage: true });
      }

      await card.getByRole('button', { name: 'Reset' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Reset' }).click();
      await page.locator('.card:not(.refuses)').waitFor();
      expect(await page.locator('.verdict').innerText()).to.equal(
        'Would pass: endpoint=/pay,user=42 has 0 of 5 used (5 per hour), 5 left.',
      );
      expect((await admin.ask('shop', 'endpoint=/pay,user=42')).allowed).to.equal(true);
    });
  }

  it('has enough contrast in both schemes', async () => {
    for (const look of looks.slice(0, 2)) {
      await open(look);
      const contrast = await page.evaluate(CONTRAST);
      expect(contrast, look.colorScheme).to.satisfy((least: number) => least >= 4.5);
      for (const undo of cleanUp.splice(0).reverse()) await undo();
    }
  });

  it('shows live figures', async () => {
    await open();
    const row = page.locator('.rule', { hasText: 'endpoint=/pay.user' });
    await row.waitFor();
    expect(await row.innerText()).to.contain('0 /s');
    await admin.ask('shop', 'endpoint=/pay,user=7', 20);
    await row.getByText('75 % refused').waitFor();
    expect(await page.locator('#now').innerText()).to.contain('75 %');
    await row.locator('button').first().click();
    const heavy = row.locator('.values').first();
    await heavy.waitFor();
    expect(await heavy.innerText()).to.match(/endpoint=\/pay, user=7\s+20\s+15/);
    await heavy.getByRole('button').click();
    await page.locator('.card.refuses').waitFor();
  });

  it('can be used by keyboard alone', async () => {
    await open();
    await admin.ask('shop', 'endpoint=/pay,user=42', 6);
    await page.locator('.rule').first().waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('endpoint=/pay,user=42');
    await page.keyboard.press('Enter');
    await page.locator('.card.refuses').waitFor();
    const reset = page.locator('.card').getByRole('button', { name: 'Reset' });
    for (let i = 0; i < 5; i++) {
      if (await page.evaluate('document.activeElement.textContent === "Reset"')) break;
      await page.keyboard.press('Tab');
    }
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    expect(await page.locator('.card.refuses').count()).to.equal(1);
    await reset.focus();
    await page.keyboard.press('Enter');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.locator('.card:not(.refuses)').waitFor();
  });

  it('explains a caller, and shows no secret', async () => {
    await open();
    await admin.ask('shop', 'api_key=hunter2-secret', 4);
    await page.getByText('Caller').click();
    await page.fill('#endpoint', '/pay');
    await page.fill('#api_key', 'hunter2-secret');
    await page.keyboard.press('Enter');
    await page.locator('.card.refuses').waitFor();
    expect(await page.locator('.card.refuses h3').innerText()).to.match(/^api_key#/);
    expect(await page.locator('body').innerText()).not.to.contain('hunter2');
    expect(await page.getByText('No rule is for').innerText()).to.contain(
      'endpoint=/pay,client=key:',
    );
  });

  it('asks for the token, and keeps it', async () => {
    await open(undefined, 'open sesame');
    await page.fill('#token', 'wrong');
    await page.keyboard.press('Enter');
    await page.getByText('That admin token is not right').waitFor();
    await page.fill('#token', 'open sesame');
    await page.keyboard.press('Enter');
    await page.locator('.rule').first().waitFor();
    await page.reload();
    await page.locator('.rule').first().waitFor();
  });
});

/** The least contrast of any text against the ground that it stands on, by WCAG. */
const CONTRAST = `(() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let e = element; e !== null; e = e.parentElement) {
      const colour = channels(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let least = Infinity;
  for (const element of document.querySelectorAll('body *')) {
    const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== '');
    if (!text || element.offsetParent === null || element.tagName === 'NOSCRIPT') continue;
    const a = luminance(channels(getComputedStyle(element).color));
    const b = luminance(ground(element));
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()`;
