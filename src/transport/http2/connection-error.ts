/** What a client did wrong for its whole connection; `code` is one of ERROR, for the GOAWAY. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';

  constructor(readonly code: number) {
    super(`error ${code} of HTTP/2`);
  }
}
