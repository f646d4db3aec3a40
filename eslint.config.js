// What the linters demand. The table of imports below is the architecture: a module that needs an
// import which is not in its row is in the wrong place, or the row needs a reason to grow.
import js from '@eslint/js';
import tseslint from 'typescript-eslint';

const NODE = 'node:.*';
const ANY = '.*';
/** Files of the same folder, which are all flat. */
const SAME = './[a-z-]+';
const TRANSPORT = ['model', 'limiter', 'metrics/metrics', 'settings/settings', 'store/keys', SAME];

/**
 * A row: files, what of ours they may import (paths from `src`, without ending), which packages. The last
 * row that fits a file holds; what it does not name is an error.
 */
const IMPORTS = [
  ['src/**/*.ts', ['model'], []], // a new file has to be given a row
  ['src/model.ts', [], []],
  ['src/settings/*.ts', ['model', SAME], [NODE]],
  ['src/log/*.ts', ['model', 'settings/settings', 'settings/parse', 'store/keys'], [NODE]],
  ['src/log/log.ts', ['model', 'settings/settings'], [NODE, 'pino', 'pino-pretty']],
  ['src/log/tracing*.ts', ['model', 'settings/settings'], [NODE, '@opentelemetry/.*']],
  ['src/algorithms/*.ts', ['model', SAME], []],
  ['src/rules/*.ts', ['model', 'store/keys', SAME], []],
  ['src/limiter.ts', ['model', 'rules/rules', 'store/store', 'store/keys'], []],
  ['src/store/*.ts', ['model', 'algorithms/.*', SAME], [NODE]],
  ['src/store/redis*.ts', ['model', 'algorithms/.*', SAME], [NODE, 'ioredis']],
  ['src/store/redis-place.ts', ['settings/redis', SAME], [NODE]],
  ['src/config/*.ts', ['model', 'rules/.*', 'algorithms/.*', 'store/keys', SAME], [NODE, 'yaml']],
  // A source of configuration that is a gRPC client.
  [
    'src/config/xds*.ts',
    ['model', 'settings/settings', SAME],
    [NODE, '@grpc/grpc-js', '@grpc/proto-loader'],
  ],
  ['src/metrics/*.ts', ['model', 'store/keys', 'store/store', SAME], ['prom-client']],
  ['src/transport/*.ts', TRANSPORT, [NODE]],
  [
    'src/transport/{calls,grpc,library-server,listener,reflection}*.ts',
    [...TRANSPORT, 'http2/http2-server'],
    [NODE, '@grpc/.*', 'protobufjs(/.*)?'],
  ],
  ['src/transport/http2/*.ts', ['calls', 'model', SAME], [NODE, '@grpc/grpc-js']],
  ['src/transport/*codec*.ts', TRANSPORT, [NODE, '@grpc/.*']],
  ['src/admin/*.ts', [...TRANSPORT, 'config/.*', 'rules/.*', 'log/refusal-log'], [NODE, 'fastify']],
  [
    'src/admin/service-sources.ts',
    [...TRANSPORT, 'metrics/exposition', 'config/.*', 'settings/.*', 'storage', 'transport/.*'],
    [NODE],
  ],
  ['src/storage.ts', ['model', 'settings/settings', 'settings/redis', 'store/.*'], ['node:crypto']],
  ['src/workers/*.ts', ['admin/recent-report', 'metrics/exposition', 'log/log', SAME], [NODE]],
  ['src/{app,main}.ts', [ANY], [ANY]],
  ['src/cli/*.ts', [ANY], [ANY]],
];

function importRow([files, ours, packages]) {
  const relative = ours.map((path) =>
    path === SAME ? '\\./[a-z0-9-]+\\.js' : `(?:\\./|(?:\\.\\./)+)${path}\\.js`,
  );
  const allowed = [...relative, ...packages].join('|');
  return {
    name: `imports of ${files}`,
    files: [files],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              regex: allowed === '' ? '.' : `^(?!(?:${allowed})$)`,
              message: 'Not in the table of imports (eslint.config.js).',
            },
          ],
        },
      ],
    },
  };
}

/** Files whose results depend on their arguments alone. */
const PURE = ['src/model.ts', 'src/algorithms/*.ts', 'src/rules/*.ts', 'src/store/keys.ts'];

export default tseslint.config(
  { ignores: ['dist/', 'coverage/', 'node_modules/', '.tools/'] },
  js.configs.recommended,
  {
    name: 'TypeScript',
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
      eqeqeq: 'error',
      'no-restricted-syntax': [
        'error',
        { selector: 'ExportDefaultDeclaration', message: 'Named exports only.' },
        { selector: 'ExportAllDeclaration', message: 'No barrels: import from where it is made.' },
      ],
    },
  },
  {
    name: 'the product ends in main and prints through the log',
    files: ['src/**/*.ts'],
    ignores: ['src/main.ts', 'src/cli/*.ts'],
    rules: {
      'no-console': 'error',
      'no-restricted-properties': [
        'error',
        { object: 'process', property: 'exit', message: 'Only main.ts ends the process.' },
      ],
    },
  },
  {
    name: 'pure files have no clock and no chance',
    files: PURE,
    rules: {
      'no-restricted-globals': ['error', 'Date', 'performance', 'process', 'setTimeout'],
      'no-restricted-properties': ['error', { object: 'Math', property: 'random' }],
    },
  },
  ...IMPORTS.map(importRow),
  {
    // An expectation of chai is an expression; what a test takes out of an object are closures.
    name: 'tests',
    files: ['test/**/*.ts', 'bench/**/*.ts'],
    rules: {
      '@typescript-eslint/no-unused-expressions': 'off',
      '@typescript-eslint/unbound-method': 'off',
    },
  },
  {
    name: 'scripts',
    files: ['**/*.{js,mjs}'],
    languageOptions: {
      globals: {
        console: 'readonly',
        process: 'readonly',
        URL: 'readonly',
        fetch: 'readonly',
        performance: 'readonly',
        setTimeout: 'readonly',
        clearTimeout: 'readonly',
        setInterval: 'readonly',
        clearInterval: 'readonly',
        setImmediate: 'readonly',
        Buffer: 'readonly',
      },
    },
  },
  {
    name: 'the admin page runs in a browser',
    files: ['src/admin/page/*.js'],
    languageOptions: {
      globals: Object.fromEntries(
        ['document', 'window', 'sessionStorage', 'URLSearchParams'].map((name) => [
          name,
          'readonly',
        ]),
      ),
    },
  },
);
