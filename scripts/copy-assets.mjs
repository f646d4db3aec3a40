// Copies what tsc leaves out: every .lua file of src, to the same place in dist.
import { copyFileSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

for (const name of readdirSync(join(root, 'src'), { recursive: true })) {
  if (!name.endsWith('.lua')) continue;
  const target = join(root, 'dist', name);
  mkdirSync(dirname(target), { recursive: true });
  copyFileSync(join(root, 'src', name), target);
}
