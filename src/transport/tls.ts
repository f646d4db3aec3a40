/**
 * Certificates of the gRPC port: read, checked, and read again when their files change. A client
 * certificate is checked against the CA by TLS itself, against the wanted name here.
 */
import { readFileSync, unwatchFile, watchFile } from 'node:fs';
import { createSecureContext, type PeerCertificate, type SecureContextOptions } from 'node:tls';
import type { Logger } from '../model.js';

/** Paths of PEM files. */
export interface TlsFiles {
  readonly certificate: string;
  readonly key: string;
  /** When set, clients must show a certificate that this CA has signed. */
  readonly clientCa: string | undefined;
  /** A DNS name that a client's certificate must have; undefined: any certificate of the CA. */
  readonly clientSan: string | undefined;
}

/** Files are looked at so often: a swapped symlink (Kubernetes secrets) has no event of its own. */
const WATCH_INTERVAL_MS = 5000;

/** Reads the files. Throws an Error that names the file, or the pair that does not fit together. */
export function readCertificates(files: TlsFiles): SecureContextOptions {
  const options: SecureContextOptions = {
    cert: readPem(files.certificate, 'certificate'),
    key: readPem(files.key, 'key'),
    minVersion: 'TLSv1.2',
  };
  if (files.clientCa !== undefined) options.ca = readPem(files.clientCa, 'client CA');
  try {
    createSecureContext(options);
  } catch (error) {
    throw new Error(
      `TLS: ${files.certificate} and ${files.key} are not a usable pair: ${messageOf(error)}`,
      { cause: error },
    );
  }
  return options;
}

function readPem(path: string, what: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new Error(`TLS: cannot read the ${what} file ${path}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/**
 * Calls `apply` with the new certificates whenever a file has changed and all fit together; keeps what
 * there is and says so in the log when they do not. Returns how to stop.
 */
export function watchCertificates(
  files: TlsFiles,
  apply: (options: SecureContextOptions) => void,
  logger: Logger,
  intervalMs = WATCH_INTERVAL_MS,
): () => void {
  const paths = [files.certificate, files.key];
  if (files.clientCa !== undefined) paths.push(files.clientCa);
  const reload = (): void => {
    try {
      apply(readCertificates(files));
      logger.info({ certificate: files.certificate }, 'TLS certificates reloaded');
    } catch (error) {
      // Certificate and key are written one after the other: the next change brings the other.
      logger.error({ err: messageOf(error) }, 'TLS certificates not reloaded, the former stay');
    }
  };
  for (const path of paths) watchFile(path, { interval: intervalMs, persistent: false }, reload);
  return () => {
    for (const path of paths) unwatchFile(path, reload);
  };
}

/** One alternative name: Node puts quotes around what could be taken for several. */
const ALTERNATIVE_NAME = /(?:[^,"]|"(?:[^"\\]|\\.)*")+/g;

/** Whether a certificate has this DNS name, literally, among its subject alternative names. */
export function hasDnsName(certificate: PeerCertificate, name: string): boolean {
  const names = certificate.subjectaltname?.match(ALTERNATIVE_NAME) ?? [];
  const wanted = `dns:${name.toLowerCase()}`;
  return names.some((candidate) => candidate.trim().toLowerCase() === wanted);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
