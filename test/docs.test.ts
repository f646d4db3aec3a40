import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { loadConfig } from '../src/config/load.js';
import { ConfigError, formatProblem } from '../src/config/problems.js';
import { PLACES } from '../src/config/schema.js';

const PAGES = ['README.md', 'CONTRIBUTING.md', ...markdown('docs')];
function markdown(directory: string): string[] {
  const names = readdirSync(directory).filter((name) => name.endsWith('.md'));
  return names.sort().map((name) => join(directory, name));
}

const CONFIGURATION = readFileSync('docs/configuration.md', 'utf8');

/** The fenced blocks of a language that stand behind `after`. */
function blocks(text: string, language: string, after = ''): string[] {
  const rest = text.slice(text.indexOf(after));
  return [...rest.matchAll(/^ *```(\w*)\n(.*?)^ *```$/gms)]
    .filter(([, found]) => found === language)
    .map(([, , block]) => block ?? '');
}

/** What a heading is called in a link: GitHub's way. */
function anchors(text: string): string[] {
  return [...text.replaceAll(/^ *```.*?^ *```$/gms, '').matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
    (title ?? '')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  );
}

function load(text: string): { problems: string[]; warnings: string[] } {
  const options = {
    mergeDomains: false,
    defaultOnStoreError: 'allow' as const,
    generation: 1,
    nowMs: 0,
  };
  try {
    const { warnings } = loadConfig([{ name: 'shop.yaml', text }], options);
    return { problems: [], warnings: warnings.map(formatProblem) };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { problems: error.problems.map(formatProblem), warnings: [] };
  }
}

describe('the docs', () => {
  for (const page of PAGES) {
    it(`have links that lead somewhere: ${page}`, () => {
      const text = readFileSync(page, 'utf8').replaceAll(/^ *```.*?^ *```$/gms, '');
      const broken = [...text.matchAll(/\]\(([^)\s]+)\)/g)]
        .map(([, target]) => target ?? '')
        .filter((target) => !/^https?:/.test(target))
        .filter((target) => {
          const [path = '', anchor] = target.split('#');
          const file = path === '' ? page : join(dirname(page), path);
          if (!existsSync(file)) return true;
          return anchor !== undefined && !anchors(readFileSync(file, 'utf8')).includes(anchor);
        });
      expect(broken).to.deep.equal([]);
    });
  }

  it('name every field of the rules', () => {
    const fields = Object.values(PLACES).flatMap((place) => Object.keys(place));
    expect(fields.filter((field) => !CONFIGURATION.includes(`\`${field}\``))).to.deep.equal([]);
  });

  it('show rules that load without a warning', () => {
    const files = [
      ...blocks(CONFIGURATION, 'yaml'),
      ...blocks(readFileSync('README.md', 'utf8'), 'yaml'),
    ];
    const whole = files.filter((text) => text.startsWith('domain:') && !text.includes('rate_limt'));
    const parts = files
      .filter((text) => text.startsWith('- key:'))
      .map((text) => `domain: shop\ndescriptors:\n${text.replaceAll(/^/gm, '  ')}`);
    expect(whole).to.have.length(3);
    expect(parts).to.have.length(3);
    for (const text of [...whole, ...parts]) {
      expect(load(text), text).to.deep.equal({ problems: [], warnings: [] });
    }
  });

  it('show mistakes and their messages as they are printed', () => {
    const [rules = ''] = blocks(CONFIGURATION, 'yaml', '## Mistakes');
    const [printed = ''] = blocks(CONFIGURATION, '', '## Mistakes');
    const lines = load(rules).problems.map((problem) => `rules/${problem}`);
    expect(`${lines.join('\n')}\n5 problems in 1 file\n`).to.equal(printed);
  });
});
