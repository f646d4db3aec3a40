// What the linters demand. The table of imports below is the architecture: a module that needs an
// import which is not in its row is in the wrong place, or the row needs a reason to grow.
import js from '@eslint/js';
import tseslint from 'typescript-eslint';

const NODE = 'node:.*';
const ANY = '.*';
/** Files of the same folder, which are all flat. */
const SAME = './[a-z-]+';
const TRANSPORT = ['model', 'limiter', 'metrics', 'settings', 'store/keys', SAME];

/**
 * A row: files, what of ours they may import (paths from `src`, without ending), which packages. The last
 * row that fits a file holds; what it does not name is an error.
 */
const IMPORTS = [
  ['src/**/*.ts', ['model'], []], // a new file has to be given a row
  ['src/model.ts', [], []],
  ['src/wildcard.ts', [], []],
  ['src/log.ts', ['model', 'settings'], [NODE, 'pino', 'pino-pretty']],
  ['src/tracing*.ts', ['model', 'settings'], [NODE, '@opentelemetry/.*']],
  ['src/settings*.ts', ['model', SAME], [NODE]],
  ['src/algorithms/*.ts', ['model', SAME], []],
  ['src/rules.ts', ['model', 'wildcard', 'store/keys'], []],
  ['src/limiter.ts', ['model', 'rules', 'store/store', 'store/keys'], []],
  ['src/store/*.ts', ['model', 'algorithms/.*', SAME], [NODE]],
  ['src/store/redis*.ts', ['model', 'algorithms/.*', SAME], [NODE, 'ioredis']],
  [
    'src/config/*.ts',
    ['model', 'rules', 'wildcard', 'algorithms/.*', 'store/keys', SAME],
    [NODE, 'yaml'],
  ],
  // A source of configuration that is a gRPC client.
  [
    'src/config/xds*.ts',
    ['model', 'settings', SAME],
    [NODE, '@grpc/grpc-js', '@grpc/proto-loader'],
  ],
  ['src/active-keys.ts', ['hyperloglog'], []],
  [
    'src/{metrics,rule-series}*.ts',
    [
      'model',
      'active-keys',
      'exposition',
      'metrics-compat',
      'rolling-ratio',
      'heavy-hitters',
      'rule-series',
      'metrics-compat',
      'store/keys',
      'store/store',
    ],
    ['prom-client'],
  ],
  ['src/transport/*.ts', TRANSPORT, [NODE]],
  [
    'src/transport/{grpc,listener,reflection}*.ts',
    TRANSPORT,
    [NODE, '@grpc/.*', 'protobufjs(/.*)?'],
  ],
  ['src/transport/*codec*.ts', TRANSPORT, [NODE, '@grpc/.*']],
  ['src/transport/http*.ts', TRANSPORT, [NODE, 'fastify']],
  [
    'src/admin/*.ts',
    [...TRANSPORT, 'config/.*', 'rules', 'heavy-hitters', 'refusal-log'],
    [NODE, 'fastify'],
  ],
  [
    'src/storage.ts',
    ['model', 'settings', 'settings-redis', 'redis-place', 'store/.*'],
    ['node:crypto'],
  ],
  ['src/redis-place.ts', ['settings-redis', 'store/(connect|redis-client)'], ['node:.*']],
  ['src/service-health.ts', ['model', 'transport/front-door'], []],
  ['src/{version,young-generation}.ts', [], [NODE]],
  ['src/refusal-log.ts', ['model', 'store/keys'], []],
  [
    'src/admin-sources.ts',
    [
      'model',
      'limiter',
      'metrics',
      'settings.*',
      'storage',
      'admin/.*',
      'config/.*',
      'transport/.*',
    ],
    [NODE],
  ],
  ['src/workers/*.ts', ['admin/recent-report', 'exposition', 'log', SAME], ['node:.*']],
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
const PURE = ['src/model.ts', 'src/algorithms/*.ts', 'src/rules.ts', 'src/store/keys.ts'];

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
