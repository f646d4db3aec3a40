// What the linters demand. The table of imports below is the architecture: a module that needs an
// import which is not in its row is in the wrong place, or the row needs a reason to grow.
import js from '@eslint/js';
import tseslint from 'typescript-eslint';

/**
 * One row a module, the last match wins. `ours`: patterns of relative specifiers without their leading
 * `./` and `../`; `packages`: patterns of bare ones. What a row does not name is an error.
 */
const PRODUCT_IMPORTS = [
  { files: 'src/**/*.ts', ours: ['.*'], packages: ['.*'] },
  { files: 'src/model.ts', ours: [], packages: [] },
  {
    files: 'src/log.ts',
    ours: ['model', 'settings'],
    packages: ['pino', 'pino-pretty', 'node:.*'],
  },
  { files: 'src/settings*.ts', ours: ['model', 'settings-[a-z]+'], packages: ['zod', 'node:.*'] },
  {
    files: 'src/algorithms/*.ts',
    // The folder itself is flat: every `./x.js` in it is an algorithm or their contract.
    ours: ['model', '[a-z-]+'],
    packages: [],
  },
  { files: 'src/rules.ts', ours: ['model', 'store/keys', 'rules/.*'], packages: [] },
  { files: 'src/limiter.ts', ours: ['model', 'rules', 'store/store', 'store/keys'], packages: [] },
  {
    files: 'src/store/*.ts',
    ours: ['model', 'algorithms/.*', '[a-z-]+'],
    packages: ['node:.*'],
  },
  {
    files: 'src/store/redis*.ts',
    ours: ['model', 'algorithms/.*', '[a-z-]+'],
    packages: ['node:.*', 'ioredis'],
  },
  {
    files: 'src/config/*.ts',
    ours: ['model', 'rules', 'algorithms/.*', 'store/keys', '[a-z-]+'],
    packages: ['node:.*', 'yaml', 'zod'],
  },
  { files: 'src/metrics.ts', ours: ['model', 'store/(keys|store)'], packages: ['prom-client'] },
  {
    files: 'src/transport/*.ts',
    ours: ['model', 'limiter', 'metrics', 'settings', '[a-z-]+'],
    packages: ['node:.*'],
  },
  {
    files: 'src/transport/native*.ts',
    ours: ['model', 'limiter', 'metrics', 'settings', 'store/keys', '[a-z-]+'],
    packages: ['node:.*'],
  },
  {
    files: 'src/transport/{grpc,codec,proto}*.ts',
    ours: ['model', 'limiter', 'metrics', 'settings', '[a-z-]+'],
    packages: ['node:.*', '@grpc/.*'],
  },
  {
    files: 'src/transport/http*.ts',
    ours: ['model', 'limiter', 'metrics', 'settings', '[a-z-]+'],
    packages: ['node:.*', 'fastify'],
  },
  {
    files: 'src/admin/*.ts',
    ours: ['model', 'limiter', 'metrics', 'settings', 'config/.*', '[a-z-]+'],
    packages: ['node:.*', 'fastify'],
  },
  { files: 'src/{app,main}.ts', ours: ['.*'], packages: ['.*'] },
  { files: 'src/cli/*.ts', ours: ['.*'], packages: ['.*'] },
];

/** The rule's pattern for "neither one of ours nor one of these packages". */
function importRow({ files, ours, packages }) {
  const relative = ours.length === 0 ? [] : [`(?:\\.{1,2}/)+(?:${ours.join('|')})\\.js`];
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
  ...PRODUCT_IMPORTS.map(importRow),
  {
    name: 'tests: an expectation of chai is an expression',
    files: ['test/**/*.ts', 'bench/**/*.ts'],
    rules: { '@typescript-eslint/no-unused-expressions': 'off' },
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
);
