// The admin page: asks the API of the server that it came from, and shows the answers. Text from the
// server is only ever set as text, never as markup.

const POLL_MS = 1000;
const SLOW_POLL_MS = 5000;
const MANY_RULES = 200;
const SVG = 'http://www.w3.org/2000/svg';

const byId = (id) => document.getElementById(id);

/** An element; `props` are properties, or attributes where no property has that name. */
function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

// --- asking -------------------------------------------------------------------------------------

class AskError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, body) {
  const token = sessionStorage.getItem('weir-token');
  const headers = { 'x-weir-admin': '1' };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  const response = await fetch(path, {
    method: body === undefined ? 'GET' : 'POST',
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.status === 401) showTokenForm(token !== null);
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new AskError(response.status, told.error ?? `the server answers ${response.status}`);
  }
  byId('token-form').hidden = true;
  return response;
}

const askJson = async (path, body) => (await ask(path, body)).json();

function showTokenForm(wasWrong) {
  const form = byId('token-form');
  if (!form.hidden) return;
  form.hidden = false;
  form.querySelector('label').textContent = wasWrong
    ? 'That admin token is not right'
    : 'This server asks for its admin token';
}

byId('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  sessionStorage.setItem('weir-token', byId('token').value);
  byId('token').value = '';
  byId('token-form').hidden = true;
  void refresh();
});

// Plain endpoints need the token too, which a link cannot send: fetch, then save.
byId('links').addEventListener('click', async (event) => {
  const name = event.target.dataset?.plain;
  if (name === undefined || sessionStorage.getItem('weir-token') === null) return;
  event.preventDefault();
  const content = await (await ask(event.target.getAttribute('href'))).blob();
  const link = h('a', { href: URL.createObjectURL(content), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
});

// --- words --------------------------------------------------------------------------------------

/** The server's clock minus the browser's, so that "ago" is right whatever the browser thinks. */
let skewMs = 0;
const nowMs = () => Date.now() + skewMs;

function span(ms) {
  let seconds = Math.max(0, Math.round(ms / 1000));
  const parts = [];
  for (const [unit, size] of [
    ['d', 86400],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ]) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count > 0) parts.push(`${count} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.length === 0 ? '0 s' : parts.join(' ');
}

/** Close times as a clock, far ones with their date; the exact one as a tooltip. */
function when(ms) {
  const date = new Date(ms);
  const near = Math.abs(ms - nowMs()) < 12 * 3600_000;
  const text = near
    ? date.toLocaleTimeString('en-GB')
    : date.toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
  return h('time', { dateTime: date.toISOString(), title: date.toISOString() }, text);
}

const ago = (ms) => h('span', {}, when(ms), ` (${span(nowMs() - ms)} ago)`);
const ahead = (ms) => h('span', {}, when(ms), ` (in ${span(ms - nowMs())})`);

function figure(value) {
  if (value === 0) return '0';
  if (value < 10) return value.toFixed(value < 1 ? 2 : 1);
  return Math.round(value).toLocaleString('en');
}
const percent = (ratio) => `${(ratio * 100).toFixed(ratio > 0 && ratio < 0.1 ? 1 : 0)} %`;

// --- drawing ------------------------------------------------------------------------------------

/** Bars of the last minute, refused on top of allowed. Returns a function that draws new ones. */
function sparkline(label) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 120 30');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  const paths = ['allowed', 'refused'].map((name) => {
    const path = document.createElementNS(SVG, 'path');
    path.setAttribute('class', name);
    svg.append(path);
    return path;
  });
  const draw = ({ allowedBySecond, rejectedBySecond }) => {
    const most = Math.max(1, ...allowedBySecond.map((count, i) => count + rejectedBySecond[i]));
    const bar = (i, from, to) =>
      to === from
        ? ''
        : `M${i * 2} ${(30 - (from / most) * 30).toFixed(1)}h1.6V${(30 - (to / most) * 30).toFixed(1)}h-1.6z`;
    paths[0].setAttribute('d', allowedBySecond.map((count, i) => bar(i, 0, count)).join(''));
    paths[1].setAttribute(
      'd',
      rejectedBySecond
        .map((count, i) => bar(i, allowedBySecond[i], allowedBySecond[i] + count))
        .join(''),
    );
    const sum = (counts) => counts.reduce((total, count) => total + count, 0);
    svg.setAttribute(
      'aria-label',
      `${label}: ${sum(allowedBySecond)} allowed, ${sum(rejectedBySecond)} refused in the last minute`,
    );
  };
  return { svg, draw };
}

/** How full a counter is. */
function meter(used, capacity, refuses) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 100 1');
  svg.setAttribute('preserveAspectRatio', 'none');
  const rect = document.createElementNS(SVG, 'rect');
  rect.setAttribute('width', String(capacity === 0 ? 100 : Math.min(100, (used / capacity) * 100)));
  rect.setAttribute('height', '1');
  rect.setAttribute('class', refuses ? 'refused' : 'allowed');
  svg.append(rect);
  return h(
    'div',
    { className: 'meter', role: 'img', 'aria-label': `${used} of ${capacity} used` },
    svg,
  );
}

// --- now ----------------------------------------------------------------------------------------

const figures = ['Requests', 'Refused', 'Answered by policy', 'Matched no rule'].map((name) => {
  const number = h('p', { className: 'number' }, '–');
  const note = h('p', { className: 'quiet' }, name);
  const box = h('div', { className: 'figure' }, note, number);
  byId('now').append(box);
  return { name, number, note, box };
});
const overallLine = sparkline('All requests');
figures[0].box.append(overallLine.svg);

function showStatus(status) {
  skewMs = status.nowMs - Date.now();
  byId('about').textContent =
    `${status.instanceId} · ${status.version} · up ${span(status.nowMs - status.startedAtMs)}` +
    (status.instances > 1 ? ` · one of ${status.instances} instances` : '');
  showPills(status);
  showBanners(status);
  const { overall } = status;
  figures[0].number.textContent = `${figure(overall.rate)} /s`;
  figures[1].number.textContent = percent(overall.rejectRatio);
  figures[2].number.textContent = overall.totals.policy.toLocaleString('en');
  figures[3].number.textContent = overall.totals.notTaken.toLocaleString('en');
  figures[1].note.textContent = 'Refused, last 60 s';
  figures[2].note.textContent = 'Answered by policy, since start';
  figures[3].note.textContent = 'Matched no rule, since start';
  overallLine.draw(overall);
  showStrangers(status.notLimited);
  showLoaded(status);
  fillDomains(status.config?.domains ?? []);
}

function showPills({ config, reload, stores }) {
  const pills = [];
  if (config === null) pills.push(['bad', 'no configuration']);
  else if (reload.problems.length > 0)
    pills.push(['warn', `configuration ${config.generation}, newer one rejected`]);
  else pills.push(['', `configuration ${config.generation}`]);
  for (const store of stores) {
    pills.push(
      store.breakerOpen ? ['bad', `${store.kind}: no answer`] : ['', `${store.kind}: fine`],
    );
  }
  byId('pills').replaceChildren(
    ...pills.map(([kind, text]) => h('span', { className: `pill ${kind}` }, text)),
  );
}

let shownBanners = '';
function showBanners({ config, reload, stores }) {
  const banners = [];
  if (config === null)
    banners.push(['No configuration is loaded: every call fails.', reload.problems]);
  else if (reload.problems.length > 0) {
    banners.push([
      'The files have mistakes; the rules loaded before stay in force.',
      reload.problems,
    ]);
  }
  for (const { name, breakerOpen, lastFailure } of stores) {
    if (!breakerOpen) continue;
    const why = lastFailure === undefined ? '' : ` (${lastFailure.kind}: ${lastFailure.message})`;
    banners.push([
      `${name} does not answer${why}. Limits are decided by their on_store_error policy.`,
      [],
    ]);
  }
  // Written anew only when changed, or a screen reader would say it every second.
  const text = JSON.stringify(banners);
  if (text === shownBanners) return;
  shownBanners = text;
  byId('banners').replaceChildren(
    ...banners.map(([title, lines]) =>
      h(
        'div',
        { className: 'banner bad' },
        title,
        lines.length === 0
          ? undefined
          : h('ul', {}, ...lines.map((line) => h('li', { className: 'code' }, line))),
      ),
    ),
  );
}

function showStrangers(strangers) {
  byId('strangers-panel').hidden = strangers.length === 0;
  byId('strangers').replaceChildren(
    ...strangers.map(({ domain, keys, lastMs }) =>
      h(
        'li',
        {},
        keys === null ? 'unknown domain ' : 'no rule for ',
        h('code', {}, keys === null ? domain : `${domain}: ${keys}`),
        h('span', { className: 'quiet' }, ` ${span(nowMs() - lastMs)} ago`),
      ),
    ),
  );
}

function facts(list, pairs) {
  list.replaceChildren(
    ...pairs.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]),
  );
}

function showLoaded({ config, stores, reload }) {
  facts(
    byId('loaded'),
    config === null
      ? [['Configuration', 'none']]
      : [
          ['Configuration', `number ${config.generation}, ${config.rules} rules`],
          ['Loaded', ago(config.loadedAtMs)],
          ['Files', config.files.join(', ')],
          ['Domains', config.domains.join(', ')],
          ...reload.warnings.map((warning) => ['Doubtful', warning]),
        ],
  );
  facts(
    byId('stores'),
    stores.flatMap((store) => [
      ['Store', store.name],
      ['Breaker', store.breakerOpen ? 'open: it is not asked' : 'closed'],
      ...(store.lastFailure === undefined || store.lastFailure === null
        ? []
        : [['Last failure', `${store.lastFailure.kind}: ${store.lastFailure.message}`]]),
      ...(typeof store.clockSkewSeconds === 'number'
        ? [['Clock', `${store.clockSkewSeconds.toFixed(3)} s from ours`]]
        : []),
      ...Object.entries(store.facts ?? {}),
    ]),
  );
}

byId('settings-box').addEventListener('toggle', async () => {
  if (!byId('settings-box').open) return;
  facts(byId('settings'), Object.entries(await askJson('/api/v1/settings')));
});

// --- rules --------------------------------------------------------------------------------------

/** Rows by domain and path, kept over polls, so that focus and what is open stay. */
const rows = new Map();
let rules = [];

function makeRow(rule) {
  const limit = h('span', { className: 'limit' });
  const place = h('span', { className: 'place' });
  const tags = h('span');
  const rate = h('span', { className: 'amount' });
  const ratio = h('span', { className: 'amount ratio' });
  const line = sparkline(rule.path);
  const inside = h('div', { className: 'inside', hidden: true });
  const button = h(
    'button',
    { type: 'button', 'aria-expanded': 'false' },
    h('span', { className: 'name' }, h('code', {}, rule.path), tags, place),
    limit,
    rate,
    ratio,
    line.svg,
  );
  const row = { element: h('div', { className: 'rule' }, button, inside), inside, rule };
  button.addEventListener('click', () => {
    inside.hidden = !inside.hidden;
    button.setAttribute('aria-expanded', String(!inside.hidden));
    if (!inside.hidden) void showInside(row);
  });
  row.update = (next) => {
    row.rule = next;
    const { activity } = next;
    place.textContent = `${next.domain} · ${next.file}:${next.line}`;
    limit.textContent = next.unlimited ? 'unlimited' : next.limits.join(' and ');
    tags.replaceChildren(
      ...[
        next.shadow ? 'shadow' : '',
        next.quota ? 'quota' : '',
        next.hidden ? 'hidden values' : '',
        ...next.algorithms
          .filter((name) => name !== 'fixed_window')
          .map((name) => name.replaceAll('_', ' ')),
      ]
        .filter((tag) => tag !== '')
        .map((tag) => h('span', { className: 'tag' }, tag)),
    );
    rate.textContent = `${figure(activity.rate)} /s`;
    ratio.textContent = next.unlimited ? '' : `${percent(activity.rejectRatio)} refused`;
    ratio.classList.toggle('high', activity.rejectRatio > 0);
    line.draw(activity);
  };
  return row;
}

function showRules() {
  const wanted = byId('filter').value.toLowerCase();
  const shown = rules.filter(({ domain, path, file }) =>
    `${domain} ${path} ${file}`.toLowerCase().includes(wanted),
  );
  const refusals = ({ rejectedBySecond }) =>
    rejectedBySecond.reduce((sum, count) => sum + count, 0);
  const order = byId('order').value;
  if (order === 'rate') shown.sort((a, b) => b.activity.rate - a.activity.rate);
  if (order === 'refused') shown.sort((a, b) => refusals(b.activity) - refusals(a.activity));
  const seen = shown.slice(0, MANY_RULES);
  byId('rules-count').textContent =
    shown.length === seen.length
      ? `${shown.length}`
      : `the first ${seen.length} of ${shown.length}`;
  const elements = seen.map((rule) => {
    const name = `${rule.domain}\n${rule.path}`;
    if (!rows.has(name)) rows.set(name, makeRow(rule));
    const row = rows.get(name);
    row.update(rule);
    return row.element;
  });
  const list = byId('rules');
  const same =
    list.children.length === elements.length &&
    elements.every((element, i) => list.children[i] === element);
  if (!same) list.replaceChildren(...elements);
}

async function showInside(row) {
  const { domain, path, hidden } = row.rule;
  const query = new URLSearchParams({ domain, rule: path, n: '10' });
  const { values, refusals } = await askJson(`/api/v1/top?${query}`);
  const name = ({ value }) => {
    // A digest cannot be asked for: who knows the value can paste it.
    if (hidden || /[#@~]/.test(value)) return h('code', {}, value);
    const button = h('button', { type: 'button', title: 'Explain' }, value);
    button.addEventListener('click', () => explainValue(domain, value));
    return button;
  };
  const table = (head, lines) =>
    h(
      'table',
      { className: 'values' },
      h('thead', {}, h('tr', {}, ...head.map((title) => h('th', { scope: 'col' }, title)))),
      h(
        'tbody',
        {},
        ...lines.map((cells) => h('tr', {}, ...cells.map((cell) => h('td', {}, cell)))),
      ),
    );
  const none = (text) => h('p', { className: 'quiet' }, text);
  const focused = row.inside.contains(document.activeElement);
  // Not under somebody's fingers.
  if (focused) return;
  row.inside.replaceChildren(
    h(
      'div',
      {},
      h('h3', {}, 'Heaviest values, last minute'),
      values.length === 0
        ? none('Nobody asks.')
        : table(
            ['Value', 'Requests', 'Refused'],
            values.map((value) => [
              name(value),
              `${value.error > 0 ? '≈ ' : ''}${value.requests.toLocaleString('en')}`,
              value.rejected.toLocaleString('en'),
            ]),
          ),
    ),
    h(
      'div',
      {},
      h('h3', {}, 'Refused lately by this instance'),
      refusals.length === 0
        ? none('Nobody.')
        : table(
            ['Value', 'Times', 'Since', 'Until'],
            refusals.map((refusal) => [
              name(refusal),
              refusal.count.toLocaleString('en'),
              when(refusal.sinceMs),
              refusal.untilMs === null ? 'never' : when(refusal.untilMs),
            ]),
          ),
    ),
  );
}

byId('filter').addEventListener('input', showRules);
byId('order').addEventListener('change', showRules);

// --- explain, inspect, reset ----------------------------------------------------------------------

function fillDomains(domains) {
  const select = byId('domain');
  if (domains.join('\n') === [...select.options].map(({ value }) => value).join('\n')) return;
  const { value } = select;
  select.replaceChildren(...domains.map((domain) => h('option', { value: domain }, domain)));
  if (domains.includes(value)) select.value = value;
}

for (const radio of document.querySelectorAll('input[name=by]')) {
  radio.addEventListener('change', () => {
    const byCaller = document.querySelector('input[name=by]:checked').value === 'caller';
    byId('by-caller').hidden = !byCaller;
    byId('by-descriptor').hidden = byCaller;
  });
}

function explainValue(domain, value) {
  byId('domain').value = domain;
  document.querySelector('input[name=by][value=descriptor]').click();
  byId('descriptor').value = value
    .split(', ')
    .map((part) => (/,|^\s|\s$/.test(part) ? part.replace(/=(.*)$/s, '="$1"') : part))
    .join(',');
  byId('ask-form').requestSubmit();
  byId('ask').scrollIntoView({ block: 'start' });
  byId('descriptor').focus();
}

/** What was asked last; asked again while the page is live, so that the answer stays true. */
let question;
let reasons = [];

byId('ask-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const domain = byId('domain').value;
  if (document.querySelector('input[name=by]:checked').value === 'descriptor') {
    question = { domain, descriptors: [byId('descriptor').value] };
  } else {
    const identity = {};
    for (const name of ['endpoint', 'user', 'ip', 'api_key'])
      identity[name] = byId(name).value.trim();
    question = { domain, identity };
  }
  void explain(true);
});

async function explain(isNew) {
  try {
    const answer = await askJson(`/api/v1/${isNew ? 'explain' : 'inspect'}`, question);
    // Only counters change from second to second; why rules match is asked for once.
    if (isNew) reasons = answer.descriptors.map(({ rules }) => rules);
    else answer.descriptors.forEach((part, i) => (part.rules = reasons[i] ?? []));
    showAnswer(answer, isNew);
  } catch (error) {
    if (!(error instanceof AskError)) throw error;
    byId('answer').replaceChildren(h('p', { className: 'error' }, error.message));
  }
}

let shownAnswer = '';
function showAnswer(explained, isNew) {
  // Verdicts count seconds; the rest is drawn anew only when a figure has changed.
  const shape = JSON.stringify(explained, (name, value) =>
    ['nowMs', 'verdict', 'freeAtMs', 'resetAtMs'].includes(name) ? undefined : value,
  );
  if (!isNew && shape === shownAnswer) {
    explained.descriptors.forEach(({ verdict }, i) => {
      const place = byId('answer').querySelector(`[data-verdict="${i}"]`);
      if (place !== null) place.replaceChildren(...withCode(verdict));
    });
    return;
  }
  if (!isNew && byId('answer').contains(document.activeElement)) return;
  shownAnswer = shape;
  const open = !isNew && byId('answer').querySelector('details')?.open === true;
  // What matches goes first: an identity has many descriptors that no rule is for.
  const parts = explained.descriptors.map((part, i) => [part, i]);
  const weight = ({ refuses, counters }) => (refuses ? 2 : Math.min(1, counters.length));
  const matched = parts
    .filter(([{ rule }]) => rule !== null)
    .sort(([a], [b]) => weight(b) - weight(a));
  const unmatched = parts.filter(([{ rule }]) => rule === null);
  byId('answer').replaceChildren(
    ...matched.map(([part, i]) => card(part, i, explained.domain, open)),
    ...(matched.length === 0 || unmatched.length === 1
      ? unmatched.map(([part, i]) => card(part, i, explained.domain, open))
      : unmatched.length === 0
        ? []
        : [
            h(
              'p',
              { className: 'quiet' },
              'No rule is for ',
              ...unmatched.flatMap(([{ descriptor }], i) => [
                i === 0 ? '' : ', ',
                h('code', {}, descriptor),
              ]),
              '.',
            ),
          ]),
  );
}

/** Text with `code` in it. */
function withCode(text) {
  return text.split('`').map((part, i) => (i % 2 === 1 ? h('code', {}, part) : part));
}

function card(part, index, domain, open) {
  const { rule } = part;
  const kind = part.refuses ? 'refuses' : part.counters.length === 0 ? 'none' : '';
  return h(
    'article',
    { className: `card ${kind}` },
    h('h3', {}, part.descriptor),
    h('p', { className: 'verdict', 'data-verdict': String(index) }, ...withCode(part.verdict)),
    rule === null
      ? undefined
      : h(
          'p',
          { className: 'quiet' },
          'Rule ',
          h('code', {}, rule.path),
          ` at ${rule.file}:${rule.line}`,
          rule.shadow ? ', in shadow mode' : '',
          rule.quota ? ', a quota' : '',
        ),
    ...part.counters.map((counter) => counterView(counter, part, domain)),
    h(
      'details',
      { open },
      h('summary', {}, 'Why the other rules do not match'),
      h(
        'ul',
        { className: 'reasons' },
        ...part.rules.map((reason) =>
          h(
            'li',
            { className: reason.matched ? 'matched' : '' },
            h('code', {}, reason.path),
            h('span', { className: 'quiet' }, ` ${reason.file}:${reason.line} `),
            h('br'),
            ...withCode(reason.reason),
          ),
        ),
      ),
    ),
  );
}

function counterView(counter, part, domain) {
  const known = counter.source === 'store';
  const rows = [
    ['Counter', h('code', {}, counter.key)],
    ['In the log', h('code', {}, counter.id)],
    [
      'Counted as',
      counter.algorithm.replaceAll('_', ' ') +
        (counter.role === 'enforced' ? '' : ` (${counter.role})`),
    ],
  ];
  if (!known) rows.push(['Answered by', `policy ${counter.source}: the store does not answer`]);
  if (known && counter.freeAtMs !== null) rows.push(['Free again', ahead(counter.freeAtMs)]);
  if (known && counter.resetAtMs !== null) rows.push(['As untouched', ahead(counter.resetAtMs)]);
  if (counter.refused !== null) {
    rows.push(['Refused since', ago(counter.refused.sinceMs)]);
    rows.push([
      'Refused',
      `${counter.refused.count.toLocaleString('en')} times by this instance, last `,
    ]);
    rows.at(-1)[1] = h('span', {}, rows.at(-1)[1], ago(counter.refused.lastMs));
  }
  const list = h('dl', { className: 'facts' });
  facts(list, rows);
  const reset = h('button', { type: 'button', className: 'danger' }, 'Reset');
  const single = question?.descriptors !== undefined || !part.descriptor.includes('#');
  reset.hidden = !single || counter.used === 0;
  reset.addEventListener('click', () => resetCounter(counter, part, domain));
  return h(
    'div',
    { className: 'counter' },
    h(
      'div',
      { className: 'heading' },
      h(
        'strong',
        {},
        known
          ? `${counter.used.toLocaleString('en')} of ${counter.capacity.toLocaleString('en')} used, ${counter.limit}`
          : counter.limit,
      ),
      reset,
    ),
    known ? meter(counter.used, counter.capacity, !counter.fits) : undefined,
    list,
  );
}

function resetCounter(counter, part, domain) {
  const dialog = byId('confirm');
  byId('confirm-text').replaceChildren(
    h('code', {}, part.descriptor),
    ` has ${counter.used} of ${counter.capacity} used (${counter.limit}).`,
  );
  dialog.addEventListener(
    'close',
    async () => {
      if (dialog.returnValue !== 'reset') return;
      // A hidden value is known to this page only as it was typed.
      const descriptors = question.descriptors ?? [part.descriptor];
      try {
        await askJson('/api/v1/reset', { domain, descriptors, keys: [counter.key] });
        await explain(true);
      } catch (error) {
        if (!(error instanceof AskError)) throw error;
        byId('answer').prepend(h('p', { className: 'error', role: 'alert' }, error.message));
      }
    },
    { once: true },
  );
  dialog.returnValue = '';
  dialog.showModal();
}

// --- live ---------------------------------------------------------------------------------------

let live = true;
let timer;

async function refresh() {
  clearTimeout(timer);
  try {
    const [status, told] = await Promise.all([askJson('/api/v1/status'), askJson('/api/v1/rules')]);
    rules = told.rules;
    showStatus(status);
    showRules();
    const open = [...rows.values()].filter(
      ({ inside, element }) => !inside.hidden && element.isConnected,
    );
    await Promise.all(open.map(showInside));
    if (question !== undefined && live) await explain(false);
    byId('live-text').textContent = live ? 'Live' : 'Paused';
  } catch (error) {
    byId('live-text').textContent =
      error instanceof AskError ? error.message : 'No answer from the server';
  }
  clearTimeout(timer);
  if (live && !document.hidden) {
    timer = setTimeout(refresh, rules.length > MANY_RULES ? SLOW_POLL_MS : POLL_MS);
  }
}

byId('live').addEventListener('click', () => {
  live = !live;
  byId('live').setAttribute('aria-pressed', String(live));
  byId('live-text').textContent = live ? 'Live' : 'Paused';
  if (live) void refresh();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && live) void refresh();
});
document.addEventListener('keydown', (event) => {
  const typing = event.target.closest?.('input, select, textarea, dialog') !== null;
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    byId('descriptor').focus();
  }
});

void refresh();
