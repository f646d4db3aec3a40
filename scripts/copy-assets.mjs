// Copies what tsc leaves out, to the same place in dist: every .lua file of src, and the admin page.
import { copyFileSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

for (const name of readdirSync(join(root, 'src'), { recursive: true })) {
  const wanted = name.endsWith('.lua') || /^admin\/page\/.*\.(?:html|css|js|svg)$/.test(name);
  if (!wanted) continue;
  const target = join(root, 'dist', name);
  mkdirSync(dirname(target), { recursive: true });
  copyFileSync(join(root, 'src', name), target);
}
