/** A certificate authority for one test run, and certificates that it has signed, made with openssl. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Paths of PEM files. */
export interface CertificateFiles {
  readonly cert: string;
  readonly key: string;
}

export class CertificateAuthority {
  readonly directory = mkdtempSync(join(tmpdir(), 'weir-certificates-'));
  /** Path of the authority's own certificate. */
  readonly ca = join(this.directory, 'ca.pem');
  private readonly caKey = join(this.directory, 'ca.key');
  private issued = 0;

  constructor(name = 'weir tests') {
    const subject = ['-subj', `/CN=${name}`, '-days', '2'];
    this.openssl('req', '-x509', ...EC_KEY, '-keyout', this.caKey, '-out', this.ca, ...subject);
  }

  /** A certificate for these names, such as `DNS:localhost` or `IP:127.0.0.1`. */
  issue(commonName: string, names: readonly string[]): CertificateFiles {
    const base = join(this.directory, `${++this.issued}-${commonName}`);
    const files = { cert: `${base}.pem`, key: `${base}.key` };
    const extensions = `${base}.ext`;
    writeFileSync(extensions, names.length === 0 ? '' : `subjectAltName=${names.join(',')}\n`);
    const request = `${base}.csr`;
    const subject = ['-subj', `/CN=${commonName}`];
    this.openssl('req', ...EC_KEY, '-keyout', files.key, '-out', request, ...subject);
    const signer = ['-CA', this.ca, '-CAkey', this.caKey, '-CAcreateserial', '-days', '2'];
    const out = ['-out', files.cert, '-extfile', extensions];
    this.openssl('x509', '-req', '-in', request, ...signer, ...out);
    return files;
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }

  private openssl(...args: string[]): void {
    execFileSync('openssl', args, { stdio: 'pipe' });
  }
}

const EC_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
