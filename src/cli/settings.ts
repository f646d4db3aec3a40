/** `weir settings`: prints the table of environment variables; docs/settings.md is made of it. */
import { Command } from 'commander';
import { CHAPTERS, type Variable } from '../settings/table.js';
import type { Terminal } from './terminal.js';

/** The command. */
export function settingsCommand(terminal: Terminal): Command {
  return new Command('settings')
    .summary('list the environment variables, their defaults and meanings')
    .description('Lists every environment variable with its default and meaning.')
    .argument('[word]', 'only those that contain this, such as REDIS')
    .option('--markdown', 'as docs/settings.md has it')
    .addHelpText('after', '\nExamples:\n  weir settings\n  weir settings drain\n')
    .action((word: string | undefined, options: { readonly markdown?: true }) => {
      terminal.print(options.markdown === true ? settingsMarkdown() : plain(word ?? ''));
    });
}

function plain(word: string): string {
  const wanted = word.toLowerCase();
  let text = '';
  for (const { title, variables } of CHAPTERS) {
    const lines = Object.entries(variables)
      .filter(([name, { meaning }]) => `${name} ${meaning}`.toLowerCase().includes(wanted))
      .map(([name, variable]) => describe(name, variable));
    if (lines.length > 0) text += `${text === '' ? '' : '\n'}${title}\n\n${lines.join('')}`;
  }
  return text === '' ? `No variable contains ${word}.\n` : text;
}

function describe(name: string, variable: Variable): string {
  const value = variable.default === '' ? '(unset)' : variable.default;
  const unused = variable.use === 'ignored' ? ` Ignored: ${variable.why}.` : '';
  return `  ${name}=${value}\n      ${variable.meaning.replaceAll('`', '')}.${unused}\n`;
}

const HEAD = `# Settings

Weir is set up by environment variables. It takes those that deployments of Envoy's usual rate limit
service set, so that changing the image is enough, and some of its own. This page is the output of
\`weir settings --markdown\`.

- Set but empty is unset, save where the table says otherwise.
- Booleans are \`true\`, \`false\`, \`1\`, \`0\`, \`t\`, \`f\`. Durations have a unit: \`100ms\`, \`10s\`, \`1h30m\`; the
  longest is 24.8 days. Names such as \`WARN\` or \`SINGLE\` are read in any case.
- A value that is wrong ends the start, with every wrong variable named at once. Values of secrets are
  never shown.
- A variable that is accepted and not used is said in the log, when it is set to something that asks
  for more. So is a name that looks like one of ours, misspelt (\`REDIS_URI\`).

## Where Weir differs from the usual service

| variable | Weir | why |
| --- | --- | --- |
| \`BACKEND_TYPE\`, \`REDIS_URL\` | With neither set, it counts in memory and says so in the log. \`REDIS_URL\` set: in Redis. \`memcache\` is refused | It runs at once where the usual service waits for a Redis; with memcached no decision is atomic |
| \`REDIS_SOCKET_TYPE\` | Not needed: \`/path\` and \`unix://\` are a socket, \`host:port\`, \`redis://\` and \`rediss://\` are TCP | |
| \`REDIS_TIMEOUT\` | 2 s, for connecting only. A decision has \`DECISION_TIMEOUT\`, 100 ms | Envoy gives up after 20 ms by default |
| \`STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT\` | Unset is neither: a refused request costs nothing, save charges made afterwards. An explicit \`false\` counts every hit, as the usual service does by default | One request is all or nothing, and token budgets still empty |
| \`DEBUG_HOST\` | 127.0.0.1 | The admin port can reset counters |
| \`LOCAL_CACHE_SIZE_IN_BYTES\` | Ignored; \`DENY_CACHE_ENTRIES\` is on by default | |
| \`USE_STATSD\` and its kin | Ignored: metrics are for Prometheus, on \`PORT\`, and with \`USE_PROMETHEUS\` on \`PROMETHEUS_ADDR\` too | |
| \`RUNTIME_IGNOREDOTFILES\` | Ignored: a name that begins with a dot is never configuration | Kubernetes' \`..data\` |
| \`RUNTIME_SUBDIRECTORY\` | May be empty, whatever \`RUNTIME_WATCH_ROOT\` says | |
| \`LIMIT_RESPONSE_HEADERS_ENABLED\` | Adds \`Retry-After\` on a refusal | What a 429 needs |

## Credentials

\`REDIS_URL\` may carry a user and a password: \`redis://user:password@host:port/db\`. The last \`@\` ends them,
so a password may hold \`:\`, \`/\`, \`@\` and \`#\` as they are or percent-encoded; a \`%\` that is not followed by two
hexadecimal digits is itself. A lone word before the \`@\` is the password.

\`REDIS_AUTH\` is a password, or \`user:password\`. It is split at the first colon: a password that holds one
needs its user in front, or a colon (\`:pass:word\`). It goes before what the URL says. \`REDIS_AUTH_FILE\`
names a file with the same; one line end at its close is dropped.
`;

/** The text of docs/settings.md. */
export function settingsMarkdown(): string {
  let text = HEAD;
  for (const { title, variables } of CHAPTERS) {
    text += `\n## ${title}\n\n| variable | default | meaning |\n| --- | --- | --- |\n`;
    for (const [name, variable] of Object.entries(variables)) {
      const value = variable.default === '' ? '' : `\`${variable.default}\``;
      const unused = variable.use === 'ignored' ? ` Ignored: ${variable.why}.` : '';
      const kind = ` *${variable.kind.name}*`;
      text += `| \`${name}\` | ${value} | ${variable.meaning.replaceAll('|', '\\|')}.${unused}${kind} |\n`;
    }
  }
  return text;
}
