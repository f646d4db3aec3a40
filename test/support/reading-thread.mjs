// The thread that reads configurations, as TypeScript: threads do not inherit who compiles it.
import { register } from 'tsx/esm/api';

register();
await import('../../src/config/reading-thread.ts');
