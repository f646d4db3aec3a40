import { readFileSync, readdirSync } from 'node:fs';
import { expect } from 'chai';
import { loadAside } from '../../src/config/load-aside.js';
import { loadConfig, type ConfigFile } from '../../src/config/load.js';

const OPTIONS = {
  mergeDomains: true,
  defaultOnStoreError: 'allow',
  generation: 3,
  nowMs: 1_700_000_000_000,
} as const;

function large(rules: number): ConfigFile {
  const text = Array.from(
    { length: rules },
    (_, i) => `
  - key: endpoint
    value: /path/${i}
    rate_limit: { unit: minute, requests_per_unit: ${i + 1} }`,
  );
  return { name: 'large.yaml', text: `domain: large\ndescriptors:${text.join('')}\n` };
}

const examples = readdirSync('examples/config')
  .filter((name) => name.endsWith('.yaml'))
  .map((name) => ({ name, text: readFileSync(`examples/config/${name}`, 'utf8') }));

async function errorOf(loading: Promise<unknown>): Promise<string> {
  try {
    await loading;
  } catch (error) {
    return String(error);
  }
  return 'none';
}

const THREAD = new URL('../support/reading-thread.mjs', import.meta.url);

describe('loading aside', function () {
  this.timeout(20_000);
  it('comes to what loading at once comes to', async () => {
    const files = [...examples, large(1000)];
    const { snapshot, warnings } = await loadAside(files, OPTIONS, { thread: THREAD });
    const expected = loadConfig(files, OPTIONS);
    expect(snapshot.rules).to.deep.equal(expected.snapshot.rules);
    expect(snapshot.domains).to.deep.equal(expected.snapshot.domains);
    expect(snapshot.files).to.deep.equal(expected.snapshot.files);
    expect(snapshot).to.include({ generation: 3, loadedAtMs: 1_700_000_000_000 });
    expect(warnings).to.deep.equal(expected.warnings);
    const entries = [{ key: 'endpoint', value: '/path/999' }];
    expect(snapshot.match('large', entries)?.limits[0]?.requests).to.equal(1000);
  });

  it('keeps a domain that has no rules', async () => {
    const { snapshot } = await loadAside([{ name: 'a.yaml', text: 'domain: a' }], OPTIONS, {
      thread: THREAD,
    });
    expect(snapshot.domains).to.deep.equal(new Set(['a']));
  });

  it('reports every problem', async () => {
    const files = [{ name: 'a.yaml', text: 'domain: a\ndescriptors: [{ kee: x }]\nnope: 1' }];
    const expected = 'a.yaml:2:15 a.descriptors[0]';
    expect(await errorOf(loadAside(files, OPTIONS, { thread: THREAD })))
      .to.include(expected)
      .and.to.include('nope');
  });

  it('leaves room for requests: no turn takes as long as a tenth of the loading', async () => {
    const file = large(10_000);
    await loadAside([file], OPTIONS, { thread: THREAD }); // code gets warm
    let longestMs = 0;
    let lastMs = performance.now();
    const watch = setInterval(() => {
      longestMs = Math.max(longestMs, performance.now() - lastMs);
      lastMs = performance.now();
    }, 1);
    await loadAside([file], OPTIONS, { thread: THREAD });
    clearInterval(watch);
    const startMs = performance.now();
    loadConfig([file], OPTIONS);
    expect(longestMs).to.be.lessThan((performance.now() - startMs) / 10);
  });
});
