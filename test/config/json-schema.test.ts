import { readFileSync, writeFileSync } from 'node:fs';
import { expect } from 'chai';
import { configJsonSchema } from '../../src/config/json-schema.js';

const FILE = new URL('../../docs/weir-config.schema.json', import.meta.url);
const current = (): string => `${JSON.stringify(configJsonSchema(), null, 2)}\n`;
/** After writing it: `npx prettier --write docs/weir-config.schema.json`. */

describe('JSON Schema of the configuration', () => {
  it('is current in docs (UPDATE_SCHEMA=1 writes it)', () => {
    if (process.env['UPDATE_SCHEMA'] === '1') writeFileSync(FILE, current());
    expect(JSON.parse(readFileSync(FILE, 'utf8'))).to.deep.equal(JSON.parse(current()));
  });

  it('knows every field of a limit, and no other', () => {
    const { $defs } = JSON.parse(current()) as {
      $defs: { rate_limit: { properties: object; additionalProperties: boolean } };
    };
    expect(Object.keys($defs.rate_limit.properties)).to.deep.equal([
      'unit',
      'unit_multiplier',
      'requests_per_unit',
      'unlimited',
      'name',
      'replaces',
      'algorithm',
      'burst',
      'precision',
      'on_store_error',
      'count_rejected',
      'disclose',
    ]);
    expect($defs.rate_limit.additionalProperties).to.equal(false);
  });
});
