/** The gateway's own page: follows one session, shows its bytes, and tells how to feed and embed it. */

import { plain } from './format.js';
import './session-tasks.js';

/** The gateway as this page reached it; behind a proxy that may be under a path. */
const gateway = new URL('..', import.meta.url).href;
const session = new URLSearchParams(location.search).get('session') || 'demo';
const streamUrl = `${gateway}sessions/${encodeURIComponent(session)}/tasks`;

const byId = (id) => document.getElementById(id);

// ---- the session -------------------------------------------------------------------------------------------

const widget = document.querySelector('session-tasks');
const state = byId('state');

function showState() {
  const { tasks } = widget;
  const live = tasks.filter((task) => task.finishedAt === undefined).length;
  const ended = tasks.length - live;
  const counts = [live > 0 && `${live} running`, ended > 0 && `${ended} ended`].filter(Boolean).join(', ');
  state.textContent = counts ? `Session ${session}: ${counts}.` : `Session ${session} has no background task.`;
  const title = live > 0 ? `(${live}) ${session} · Tasklight` : `${session} · Tasklight`;
  if (document.title !== title) document.title = title;
}

byId('session').value = session;
widget.addEventListener('taskschange', showState);
widget.setAttribute('session', session);
showState();

// ---- what to type ------------------------------------------------------------------------------------------

/** For a POSIX shell. */
const quoted = (text) => (/^[\w.,:@%+/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
const attribute = (text) => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;');

const snippets = {
  start: `tasklight start --session ${quoted(session)} -- make test`,
  run: `tasklight run --session ${quoted(session)} -- cargo build`,
  curl: `curl -N ${quoted(streamUrl)}`,
  embed:
    `<script type="module"\nsrc="${gateway}widget/session-tasks.js"></script>\n` +
    `<session-tasks session="${attribute(session)}"></session-tasks>`,
};

for (const [id, text] of Object.entries(snippets)) {
  const pre = byId(id);
  pre.append(...text.split(/(--[a-z]*)/).map((part, at) => (at % 2 === 1 ? make('span', '', part) : part)));
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'Copy';
  button.setAttribute('aria-describedby', id);
  let reset;
  button.addEventListener('click', async () => {
    button.textContent = (await copy(text, pre)) ? 'Copied' : 'Selected';
    clearTimeout(reset);
    reset = setTimeout(() => (button.textContent = 'Copy'), 2_000);
  });
  pre.before(button);
}

/** @returns {Promise<boolean>} false where the browser allows no clipboard: then the text is selected */
async function copy(text, pre) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(pre);
    return false;
  }
}

// ---- the bytes ---------------------------------------------------------------------------------------------

/** Entries kept; the oldest go. */
const LOG_LENGTH = 200;
/** Wait after the stream has ended or failed, ms. */
const RETRY = 3_000;

const log = byId('log');
const link = byId('link');
const pause = byId('pause');

/** Entries that came since the last frame, oldest first. */
let fresh = [];
let frame = 0;
/** @type {AbortController | null} */
let reading = null;
let retry;

log.dataset.empty = 'Nothing yet. A quiet stream says so every 15 seconds.';

/**
 * Reads the stream as bytes, not as EventSource, which hides comments, `retry:` and the heartbeat.
 *
 * @param {AbortSignal} signal
 */
async function read(signal) {
  showLink('connecting', 'connecting');
  try {
    const response = await fetch(streamUrl, { headers: { accept: 'text/event-stream' }, cache: 'no-store', signal });
    if (!response.ok) throw new Error(`answered ${response.status}`);
    showLink('open', 'open');
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) note(block);
    }
    throw new Error('ended');
  } catch (error) {
    if (signal.aborted) return;
    showLink('lost', error instanceof TypeError ? 'no connection' : error.message);
    retry = setTimeout(follow, RETRY);
  }
}

function follow() {
  leave();
  reading = new AbortController();
  read(reading.signal);
}

function leave() {
  clearTimeout(retry);
  reading?.abort();
  reading = null;
}

function showLink(name, text) {
  link.dataset.state = name;
  link.textContent = text;
}

function note(block) {
  fresh.push({ block, at: new Date() });
  if (fresh.length > LOG_LENGTH) fresh.shift();
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    log.prepend(...fresh.reverse().map(entry));
    fresh = [];
    while (log.childElementCount > LOG_LENGTH) log.lastElementChild.remove();
  });
}

/** One block of the stream: a line, which opens to the whole where there is more. */
function entry({ block, at }) {
  const item = make('li', '');
  const data = /^data: ?(.*)$/m.exec(block)?.[1];
  const line = make(data === undefined ? 'div' : 'summary', 'line');
  const time = make('time', '', at.toLocaleTimeString(undefined, { hour12: false }));
  time.dateTime = at.toISOString();
  line.append(time, make('span', 'gist', plain(block).replaceAll('\n', '  ')));
  if (data === undefined) {
    item.className = 'control';
    item.append(line);
    return item;
  }
  line.append(make('span', 'size', bytes(new Blob([block]).size)));
  const details = make('details', '');
  details.append(line);
  // Made when it is opened: two hundred lists are not laid out for nobody.
  details.addEventListener('toggle', () => details.append(make('pre', '', plain(readable(block, data)))), { once: true });
  item.append(details);
  return item;
}

/** The block with its JSON spread over lines. */
function readable(block, data) {
  try {
    return block.replace(data, () => JSON.stringify(JSON.parse(data), null, 2));
  } catch {
    return block;
  }
}

function bytes(count) {
  return count < 1024 ? `${count} B` : `${(count / 1024).toFixed(1)} KiB`;
}

function make(name, className, text = '') {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

function followVisibility() {
  const wanted = document.visibilityState === 'visible' && pause.getAttribute('aria-pressed') === 'false';
  if (wanted && !reading) follow();
  if (!wanted && reading) {
    leave();
    showLink('paused', 'paused');
  }
}

pause.addEventListener('click', () => {
  pause.setAttribute('aria-pressed', String(pause.getAttribute('aria-pressed') === 'false'));
  followVisibility();
});
byId('clear').addEventListener('click', () => log.replaceChildren());
document.addEventListener('visibilitychange', followVisibility);
window.addEventListener('pageshow', followVisibility);
window.addEventListener('pagehide', leave);
followVisibility();
