/**
 * One stream to an xDS server: opens it, sends, hands over what comes, says once when and why it ended.
 * The only file of the configuration that knows grpc-js. Does not try again.
 */
import { readFileSync } from 'node:fs';
import {
  Client,
  credentials,
  Metadata,
  status,
  type ChannelCredentials,
  type ChannelOptions,
  type ClientDuplexStream,
  type StatusObject,
} from '@grpc/grpc-js';
import type { XdsSettings } from '../settings/settings.js';
import {
  ADS_PATH,
  type DiscoveryRequest,
  type DiscoveryResponse,
  type XdsWire,
} from './xds-wire.js';

/**
 * After so long without a byte the server is asked whether it lives. Servers in Go by default close
 * connections that ask more often than every 5 min.
 */
const KEEPALIVE_MS = 330_000;
const KEEPALIVE_TIMEOUT_MS = 20_000;

export interface XdsStreamHandlers {
  readonly onResponse: (response: DiscoveryResponse) => void;
  /** Called once, unless `close` came first. The stream is of no more use. */
  readonly onEnd: (reason: string) => void;
}

/** An open stream. */
export interface XdsStream {
  send(request: DiscoveryRequest): void;
  /** Ends it at once, without `onEnd`. */
  close(): void;
}

/**
 * Opens a stream. Throws when that cannot even be tried, such as with an unreadable certificate file
 * or a header that is no header. An unreachable server is an end.
 */
export function openXdsStream(
  settings: XdsSettings,
  wire: XdsWire,
  handlers: XdsStreamHandlers,
): XdsStream {
  const metadata = toMetadata(settings.headers);
  const client = new Client(settings.server, toCredentials(settings.tls), toOptions(settings));
  let over = false;
  const end = (): boolean => {
    const first = !over;
    over = true;
    client.close();
    return first;
  };
  let call: ClientDuplexStream<DiscoveryRequest, DiscoveryResponse>;
  try {
    call = client.makeBidiStreamRequest(
      ADS_PATH,
      (request: DiscoveryRequest) => wire.encodeRequest(request),
      (bytes: Buffer) => wire.decodeResponse(bytes),
      metadata,
    );
  } catch (error) {
    client.close();
    throw error;
  }
  call.on('data', (response: DiscoveryResponse) => {
    if (!over) handlers.onResponse(response);
  });
  // The status follows and says the same; without a listener the process would end.
  call.on('error', () => undefined);
  call.on('status', (ended: StatusObject) => {
    if (end()) handlers.onEnd(describe(ended));
  });
  return {
    send: (request) => {
      if (!over) call.write(request);
    },
    close: () => {
      if (end()) call.cancel();
    },
  };
}

function describe({ code, details }: StatusObject): string {
  if (code === status.OK) return 'the server has ended the stream';
  const hint =
    code === status.RESOURCE_EXHAUSTED && details.includes('larger than max')
      ? ' (XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES is the largest message that is taken)'
      : '';
  return `${status[code]}: ${details}${hint}`;
}

function toMetadata(headers: XdsSettings['headers']): Metadata {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(headers)) {
    metadata.set(name, name.toLowerCase().endsWith('-bin') ? Buffer.from(value) : value);
  }
  return metadata;
}

/** Read anew for each stream, so that renewed certificates come into use. */
function toCredentials(tls: XdsSettings['tls']): ChannelCredentials {
  if (tls === undefined) return credentials.createInsecure();
  return credentials.createSsl(read(tls.caFile), read(tls.keyFile), read(tls.certFile));
}

function read(file: string | undefined): Buffer | null {
  return file === undefined ? null : readFileSync(file);
}

function toOptions({ tls, maxMessageBytes }: XdsSettings): ChannelOptions {
  return {
    // Each stream has a connection of its own; nothing of a failed one is carried over to the next.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.keepalive_time_ms': KEEPALIVE_MS,
    'grpc.keepalive_timeout_ms': KEEPALIVE_TIMEOUT_MS,
    ...(maxMessageBytes === undefined
      ? {}
      : { 'grpc.max_receive_message_length': maxMessageBytes }),
    ...(tls?.serverName === undefined
      ? {}
      : {
          'grpc.ssl_target_name_override': tls.serverName,
          'grpc.default_authority': tls.serverName,
        }),
  };
}
