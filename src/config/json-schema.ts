/** The JSON Schema of configuration files, for editors; made from the same tables as the reader. */
import type { JsonObject } from '../model.js';
import { PLACES, type Field, type Fields, type PlaceName } from './schema.js';

/** What a place must hold, besides what its fields say of themselves. */
const REQUIRED: Readonly<Record<PlaceName, readonly string[]>> = {
  file: ['domain'],
  descriptor: ['key'],
  rate_limit: [],
  replaces: ['name'],
};

/** Where YAML reads a bare word or number as something else, the reader still takes it for text. */
const TEXT = { type: ['string', 'integer', 'boolean'] };

/** The schema, draft 2020-12. Stricter than the reader in what it does not need to be lenient in. */
export function configJsonSchema(): JsonObject {
  const { file, ...below } = PLACES;
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Weir configuration',
    description: 'One domain of rate limits.',
    ...placeSchema('file', file),
    $defs: Object.fromEntries(
      (Object.entries(below) as [PlaceName, Fields][]).map(([place, fields]) => [
        place,
        placeSchema(place, fields),
      ]),
    ),
  };
}

function placeSchema(place: PlaceName, fields: Fields): JsonObject {
  const required = REQUIRED[place];
  const properties = Object.entries(fields).map(([name, field]) => [
    name,
    { ...fieldSchema(field), ...(required.includes(name) ? { minLength: 1 } : {}) },
  ]);
  return {
    type: 'object',
    properties: Object.fromEntries(properties) as JsonObject,
    required,
    additionalProperties: false,
    ...(place === 'descriptor' ? { not: { required: ['rate_limit', 'rate_limits'] } } : {}),
    ...(place === 'rate_limit' ? { anyOf: UNIT_OR_UNLIMITED } : {}),
  };
}

const UNIT_OR_UNLIMITED: readonly JsonObject[] = [
  { required: ['unit'] },
  { required: ['unlimited'], properties: { unlimited: { const: true } } },
];

function fieldSchema(field: Field): JsonObject {
  return { description: field.about, ...valueSchema(field) };
}

function valueSchema(field: Field): JsonObject {
  switch (field.kind) {
    case 'text':
      return TEXT;
    case 'flag':
      return { type: 'boolean' };
    case 'duration':
      return { type: 'string', pattern: '^([0-9]+(\\.[0-9]+)?(us|µs|ms|s|m|h))+$' };
    case 'metadata':
      return { type: 'object' };
    case 'whole':
      return { type: 'integer', minimum: field.min, maximum: field.max };
    case 'choice':
      return choiceSchema(field.choices, field.anyCase);
    case 'map':
      return { $ref: `#/$defs/${field.of}` };
    case 'list':
      return { type: 'array', items: { $ref: `#/$defs/${field.of}` } };
  }
}

/** An enum, so that editors offer the choices; in any case, also a pattern for the other spellings. */
function choiceSchema(choices: readonly string[], anyCase: boolean): JsonObject {
  if (!anyCase) return { enum: choices };
  const pattern = choices.map((each) => Array.from(each, eitherCase).join('')).join('|');
  return { anyOf: [{ enum: choices }, { type: 'string', pattern: `^(${pattern})$` }] };
}

function eitherCase(letter: string): string {
  return `[${letter}${letter.toUpperCase()}]`;
}
