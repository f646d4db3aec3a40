/**
 * What a bare scalar of a configuration file is, by the rules of YAML 1.1 that deployed files were
 * written for. Pure: text in, kind and value out. Where text belongs, the source text is kept.
 */

/** A scalar; `text` for what is quoted or is nothing else. */
export type ScalarValue =
  | { readonly kind: 'null' }
  | { readonly kind: 'boolean'; readonly value: boolean }
  | { readonly kind: 'whole'; readonly value: bigint }
  | { readonly kind: 'float'; readonly value: number }
  | { readonly kind: 'text'; readonly value: string };

const NULL = /^(?:|~|null|Null|NULL)$/;
const TRUE = /^(?:y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON)$/;
const FALSE = /^(?:n|N|no|No|NO|false|False|FALSE|off|Off|OFF)$/;
const WHOLE =
  /^(?<sign>[-+]?)(?:0[xX](?<hex>[0-9a-fA-F]+)|0[bB](?<bin>[01]+)|0[oO]?(?<oct>[0-7]+)|(?<dec>0|[1-9][0-9]*))$/;
const FLOAT = /^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$/;
const NOT_OCTAL = /^[-+]?0[0-9]+$/;
const INFINITE = /^[-+]?\.(?:inf|Inf|INF)$/;
const NAN = /^\.(?:nan|NaN|NAN)$/;

/** Resolves a bare (unquoted) scalar. */
export function resolvePlain(source: string): ScalarValue {
  if (NULL.test(source)) return { kind: 'null' };
  if (TRUE.test(source)) return { kind: 'boolean', value: true };
  if (FALSE.test(source)) return { kind: 'boolean', value: false };
  if (!/^[-+.0-9]/.test(source)) return { kind: 'text', value: source };
  const digits = source.replaceAll('_', '');
  const whole = WHOLE.exec(digits)?.groups;
  if (whole !== undefined) return { kind: 'whole', value: toWhole(whole) };
  // `08` is no octal number; the usual reader then takes it for a float, which helps nobody.
  if (NOT_OCTAL.test(digits)) return { kind: 'text', value: source };
  if (FLOAT.test(digits)) return { kind: 'float', value: Number(digits) };
  if (INFINITE.test(source)) {
    return { kind: 'float', value: source.startsWith('-') ? -Infinity : Infinity };
  }
  if (NAN.test(source)) return { kind: 'float', value: NaN };
  return { kind: 'text', value: source };
}

function toWhole(groups: Record<string, string | undefined>): bigint {
  const { sign, hex, bin, oct, dec } = groups;
  const size = BigInt(
    hex !== undefined
      ? `0x${hex}`
      : bin !== undefined
        ? `0b${bin}`
        : oct !== undefined
          ? `0o${oct}`
          : (dec ?? '0'),
  );
  return sign === '-' ? -size : size;
}
