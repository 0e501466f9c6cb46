/**
 * `<session-tasks session="…">`: what a session does in the background, in a page's header.
 *
 * The element holds no truth of its own: it shows a mirror, which a stream feeds. Elements for the same
 * stream share both. All that changes the connection (attributes, coming, going, moving) is settled once,
 * in a microtask; all that changes the picture is drawn once, in an animation frame.
 */

import { elapsed, endings, formatDuration, inReadingOrder, isLive, wordsFor } from './format.js';
import { TaskMirror } from './task-mirror.js';
import { TaskStream } from './task-stream.js';
import { styles } from './session-tasks-styles.js';

/** This module is served at `<gateway>/widget/`, so the gateway is one folder up. */
const HOME_GATEWAY = new URL('..', import.meta.url).href;
/** Room between the list and the edges of the viewport, px. */
const MARGIN = 16;
/** Room between the button and the list, px. */
const GAP = 6;
/** The tallest that the style sheet lets the list become, px: what it would like to have below the button. */
const TALLEST = 420;
/** How long endings are gathered before they are spoken, ms. */
const ANNOUNCEMENT_DELAY = 1_000;

const NO_TASKS = Object.freeze([]);

/** @type {Map<string, {mirror: TaskMirror, stream: TaskStream, users: number}>} by the stream's URL */
const sessions = new Map();

/** A session that an element follows. Each `follow` needs one `unfollow`. */
function follow(url) {
  let session = sessions.get(url);
  if (!session) {
    const mirror = new TaskMirror();
    session = { mirror, stream: new TaskStream(url, mirror), users: 0 };
    sessions.set(url, session);
    session.stream.open();
  }
  session.users += 1;
  return session.mirror;
}

function unfollow(url) {
  const session = sessions.get(url);
  session.users -= 1;
  if (session.users > 0) return;
  sessions.delete(url);
  session.stream.close();
}

/**
 * The header control. See the README for its attributes, parts and custom properties.
 *
 * Fires `taskschange`, a bubbling `CustomEvent` with `detail.tasks`, after every change of `tasks`.
 */
export class SessionTasksElement extends HTMLElement {
  static observedAttributes = ['session', 'src', 'lang'];

  #root = this.attachShadow({ mode: 'open' });
  #internals = this.attachInternals();

  /** The stream followed now, and its mirror: both or neither. */
  #url = null;
  #mirror = null;
  /** The list last told to the embedder. */
  #tasks = NO_TASKS;
  #settling = false;

  #frame = 0;
  #open = false;
  #ticker;
  /** Listeners that live only while the list is open. @type {AbortController | null} */
  #openEvents = null;
  /** @type {Map<string, Row>} by task id; empty while the list is closed */
  #rows = new Map();

  #languages = new MutationObserver(() => this.#invalidate());
  #ended = [];
  #announcement;

  #summary = element('span', 'summary');
  #buttonIcon = new Icon();
  #button = button(this.#buttonIcon, this.#summary);
  #list = element('ul', 'list', { part: 'list', role: 'list' });
  #popover = element('div', 'popover', {
    part: 'popover', id: 'popover', popover: 'manual', role: 'group', tabindex: '0',
  });
  #liveRegion = element('div', 'unseen', { role: 'status' });
  /** Where the focus rests when the control it was on has gone; see `#leave`. */
  #restingPlace = element('span', 'unseen', { tabindex: '-1' });

  constructor() {
    super();
    this.#root.adoptedStyleSheets = [styles];
    this.#popover.append(this.#list);
    this.#button.addEventListener('click', () => (this.#open ? this.#close() : this.#show()));
    this.#root.addEventListener('keydown', (event) => this.#keydown(event));
    this.#restingPlace.addEventListener('blur', () => this.#moveOn());
    this.#internals.states.add('empty');
  }

  /** The list in registration order, deeply frozen; empty without tasks, session or connection yet. */
  get tasks() {
    return this.#tasks;
  }

  connectedCallback() {
    this.#languages.observe(this.ownerDocument, { subtree: true, attributeFilter: ['lang'] });
    this.#settle();
    this.#invalidate();
  }

  disconnectedCallback() {
    this.#languages.disconnect();
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#forgetEndings();
    this.#close();
    this.#settle();
  }

  /** A move within the document (`moveBefore`) is neither a coming nor a going. */
  connectedMoveCallback() {
    this.#invalidate();
  }

  attributeChangedCallback(name) {
    if (name === 'lang') this.#invalidate();
    else this.#settle();
  }

  // ---- the session -------------------------------------------------------------------------------------

  /**
   * Brings the stream in line with attributes and place, after the code that changes them has had its say:
   * an element that is moved, or given a new `session` and `src`, opens one stream and not two.
   */
  #settle() {
    if (this.#settling) return;
    this.#settling = true;
    queueMicrotask(() => {
      this.#settling = false;
      const url = this.isConnected ? this.#streamUrl() : null;
      if (url === this.#url) return;
      const [oldUrl, oldMirror] = [this.#url, this.#mirror];
      this.#url = url;
      this.#mirror = url === null ? null : follow(url);
      this.#mirror?.addEventListener('change', this.#mirrorChanged);
      oldMirror?.removeEventListener('change', this.#mirrorChanged);
      if (oldUrl !== null) unfollow(oldUrl);
      this.#forgetEndings();
      this.#took(this.#mirror?.tasks ?? NO_TASKS);
    });
  }

  #streamUrl() {
    const session = this.getAttribute('session');
    if (!session) return null;
    try {
      const gateway = new URL(this.getAttribute('src') || HOME_GATEWAY, this.baseURI);
      const folder = gateway.pathname.replace(/\/*$/, '/');
      return new URL(`${folder}sessions/${encodeURIComponent(session)}/tasks?heartbeat=event`, gateway).href;
    } catch (error) {
      console.warn(`<session-tasks> cannot follow session "${session}": ${error.message}`);
      return null;
    }
  }

  /** @param {import('./task-mirror.js').MirrorChangeEvent} event */
  #mirrorChanged = ({ baseline }) => {
    const before = this.#tasks;
    const after = this.#mirror.tasks;
    if (!baseline) this.#noteEndings(endings(before, after));
    this.#took(after);
  };

  #took(tasks) {
    if (tasks.length === 0 && this.#tasks.length === 0) return;
    this.#tasks = tasks;
    this.#invalidate();
    this.dispatchEvent(new CustomEvent('taskschange', { bubbles: true, detail: { tasks } }));
  }

  // ---- the picture -------------------------------------------------------------------------------------

  #invalidate() {
    if (this.#frame !== 0 || !this.isConnected) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#render();
    });
  }

  #render() {
    const tasks = this.#tasks;
    const words = wordsFor(nearestLanguage(this));
    if (tasks.length === 0) {
      this.#leave(words);
      return;
    }
    this.#appear();
    const live = tasks.filter(isLive).length;
    setAttribute(this.#button, 'lang', words.language);
    setAttribute(this.#button, 'part', ['button', live > 0 && 'live', this.#open && 'open'].filter(Boolean).join(' '));
    setAttribute(this.#liveRegion, 'lang', words.language);
    setText(this.#summary, words.summary(tasks.length, live));
    this.#buttonIcon.element.hidden = live === 0;
    this.#buttonIcon.show('running');
    if (!this.#open) return;
    setAttribute(this.#popover, 'lang', words.language);
    setAttribute(this.#popover, 'aria-label', words.title);
    this.#renderRows(inReadingOrder(tasks), words);
    this.#keepTime(live > 0);
    this.#place();
  }

  /** Rows are kept by id and changed in place, so that selection, scroll and the eye keep their hold. */
  #renderRows(tasks, words) {
    const now = this.#mirror.clock.now();
    const ids = new Set(tasks.map((task) => task.id));
    for (const [id, row] of this.#rows) {
      if (ids.has(id)) continue;
      row.element.remove();
      this.#rows.delete(id);
    }
    const restless = new Set();
    const elements = tasks.map((task) => {
      let row = this.#rows.get(task.id);
      if (!row) this.#rows.set(task.id, (row = new Row()));
      else if (row.sortsElsewhere(task)) restless.add(row.element);
      row.update(task, now, words);
      return row.element;
    });
    arrange(this.#list, elements, restless, this.#rowWithSelection());
  }

  /** The row that a text selection begins in: moving its element would lose the selection. */
  #rowWithSelection() {
    const selection = this.ownerDocument.getSelection();
    const [range] = selection?.getComposedRanges?.({ shadowRoots: [this.#root] }) ?? [];
    if (!range || range.collapsed) return null;
    const node = range.startContainer;
    return (node instanceof Element ? node : node.parentElement)?.closest('.task') ?? null;
  }

  /** The first task has come. */
  #appear() {
    if (this.#button.parentNode) return;
    const resting = this.#root.activeElement === this.#restingPlace;
    this.#internals.states.delete('empty');
    this.#internals.states.delete('resting');
    this.#root.replaceChildren(this.#button, this.#popover, this.#liveRegion);
    if (resting) this.#button.focus();
  }

  /**
   * The last task has gone, and the control with it.
   *
   * Focus that was on the control must not fall back to the top of the page, nor jump to a neighbour whose
   * Enter key then does what nobody meant. It rests where the control was, on a text that says why: Tab and
   * Shift+Tab go on from there, the text goes when the focus does, and a new task takes the focus back.
   */
  #leave(words) {
    if (!this.#button.parentNode) return;
    const focused = this.#root.activeElement !== null;
    this.#forgetEndings();
    this.#close();
    if (!focused) {
      this.#vanish();
      return;
    }
    setText(this.#restingPlace, words.none);
    setAttribute(this.#restingPlace, 'lang', words.language);
    this.#internals.states.add('resting');
    this.#root.append(this.#restingPlace);
    this.#restingPlace.focus({ preventScroll: true });
    for (const part of [this.#button, this.#popover, this.#liveRegion]) part.remove();
  }

  /** The focus left the resting place; when the whole window lost it, it comes back here with the window. */
  #moveOn() {
    if (this.#tasks.length === 0 && this.#root.activeElement !== this.#restingPlace) this.#vanish();
  }

  #vanish() {
    this.#internals.states.delete('resting');
    this.#internals.states.add('empty');
    this.#root.replaceChildren();
  }

  // ---- the list, opened --------------------------------------------------------------------------------

  #show() {
    this.#open = true;
    this.#button.setAttribute('aria-expanded', 'true');
    this.#openEvents = new AbortController();
    const { signal } = this.#openEvents;
    const document = this.ownerDocument;
    document.addEventListener('pointerdown', (event) => this.#pointerdown(event), { capture: true, signal });
    document.addEventListener('scroll', () => this.#invalidate(), { capture: true, passive: true, signal });
    document.defaultView.addEventListener('resize', () => this.#invalidate(), { signal });
    this.#popover.showPopover();
    this.#render();
  }

  /** Leaves no row, timer or listener. */
  #close() {
    if (!this.#open) return;
    this.#open = false;
    this.#button.setAttribute('aria-expanded', 'false');
    this.#openEvents.abort();
    this.#keepTime(false);
    if (this.#popover.isConnected) this.#popover.hidePopover();
    this.#rows.clear();
    this.#list.replaceChildren();
    this.#invalidate();
  }

  #keydown(event) {
    if (event.key !== 'Escape' || !this.#open) return;
    // The press was for this list: a dialog around it is not to close as well.
    event.preventDefault();
    event.stopPropagation();
    this.#button.focus();
    this.#close();
  }

  #pointerdown(event) {
    if (!event.composedPath().includes(this)) this.#close();
  }

  /** One timer, only while there is a moving duration to be seen. */
  #keepTime(moving) {
    if (!moving) {
      clearInterval(this.#ticker);
      this.#ticker = undefined;
    } else if (this.#ticker === undefined) {
      this.#ticker = setInterval(() => this.#tick(), 1_000);
    }
  }

  #tick() {
    // The session has gone, and the frame that will close the list has not come yet.
    if (!this.#mirror) return;
    const words = wordsFor(nearestLanguage(this));
    const now = this.#mirror.clock.now();
    for (const row of this.#rows.values()) row.tick(now, words);
  }

  /** Below the button, or above where there is more room; towards the middle of the page; always in view. */
  #place() {
    const anchor = this.#button.getBoundingClientRect();
    const { clientWidth, clientHeight } = this.ownerDocument.documentElement;
    const { offsetWidth: width, scrollHeight: height, style } = this.#popover;
    const below = clientHeight - anchor.bottom - GAP - MARGIN;
    const above = anchor.top - GAP - MARGIN;
    const upwards = Math.min(height, TALLEST) > below && above > below;
    style.setProperty('--_room', `${Math.max(0, upwards ? above : below)}px`);
    style.top = upwards ? 'auto' : `${anchor.bottom + GAP}px`;
    style.bottom = upwards ? `${clientHeight - anchor.top + GAP}px` : 'auto';
    const onTheRight = anchor.left + anchor.right > clientWidth;
    const left = onTheRight ? anchor.right - width : anchor.left;
    style.left = `${Math.max(MARGIN, Math.min(left, clientWidth - MARGIN - width))}px`;
  }

  // ---- the voice ---------------------------------------------------------------------------------------

  /** Endings close to each other are told in one sentence. */
  #noteEndings(ended) {
    if (ended.length === 0 || this.getAttribute('announce') === 'off') return;
    this.#ended.push(...ended);
    if (this.#announcement !== undefined) return;
    // Emptied first: the same sentence twice is news twice.
    setText(this.#liveRegion, '');
    this.#announcement = setTimeout(() => {
      const words = wordsFor(nearestLanguage(this));
      setText(this.#liveRegion, words.announcement(this.#ended));
      this.#announcement = undefined;
      this.#ended = [];
    }, ANNOUNCEMENT_DELAY);
  }

  #forgetEndings() {
    clearTimeout(this.#announcement);
    this.#announcement = undefined;
    this.#ended = [];
    setText(this.#liveRegion, '');
  }
}

/** One task's row. Made empty; `update` gives it all it shows. */
class Row {
  element = element('li', 'task');

  #task;
  #icon = new Icon();
  #kind = element('span', 'kind', { part: 'kind' });
  #label = element('span', 'label', { part: 'label', dir: 'auto' });
  #status = element('span', 'status', { part: 'status', dir: 'auto' });
  #duration = element('span', 'duration', { part: 'duration' });

  constructor() {
    this.element.append(this.#icon.element, this.#kind, this.#label, this.#status, this.#duration);
  }

  /** Whether the task, as it is now, may belong in another place than it had. */
  sortsElsewhere(task) {
    return task.startedAt !== this.#task.startedAt || task.finishedAt !== this.#task.finishedAt;
  }

  update(task, now, words) {
    this.#task = task;
    const live = isLive(task);
    const word = words.status(task.status);
    this.element.classList.toggle('settled', !live);
    setAttribute(this.element, 'data-status', task.status);
    setAttribute(this.element, 'part', `task ${live ? 'live' : 'settled'} ${task.status}`);
    this.#icon.show(task.status);
    // Where the detail takes the word's place, the icon is what says the status.
    this.#icon.name(word, Boolean(task.detail));
    setTitled(this.#kind, task.kind);
    setTitled(this.#label, task.label);
    setTitled(this.#status, task.detail || word);
    this.#showDuration(now, words);
  }

  /** Time went by. */
  tick(now, words) {
    if (isLive(this.#task)) this.#showDuration(now, words);
  }

  #showDuration(now, words) {
    const duration = formatDuration(elapsed(this.#task, now));
    setText(this.#duration, duration);
    setAttribute(this.#duration, 'title', isLive(this.#task) ? words.runningFor(duration) : words.took(duration));
  }
}

/** Outlines in a 16 × 16 box: a shape for each status, since colour alone tells not everyone. */
const SHAPES = {
  running: 'M8 4.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0-7z',
  stopping: 'M4.5 4.5h7v7h-7z',
  completed: 'M3.5 8.5l3 3l6-7',
  killed: 'M8 2.75a5.25 5.25 0 1 0 0 10.5a5.25 5.25 0 1 0 0-10.5M4.3 11.7l7.4-7.4',
  failed: 'M4.25 4.25l7.5 7.5M11.75 4.25l-7.5 7.5',
};
const UNKNOWN_SHAPE = 'M5 8h6';
const CHEVRON = 'M4 6l4 4l4-4';

class Icon {
  element = element('span', 'icon', { part: 'icon', 'aria-hidden': 'true' });
  #path;

  constructor() {
    const svg = drawing(UNKNOWN_SHAPE);
    this.#path = svg.firstChild;
    this.element.append(svg);
  }

  /** @param {string} status */
  show(status) {
    setAttribute(this.element, 'data-status', status);
    setAttribute(this.#path, 'd', Object.hasOwn(SHAPES, status) ? SHAPES[status] : UNKNOWN_SHAPE);
  }

  /** @param {string} word @param {boolean} spoken whether assistive technology reads it too */
  name(word, spoken) {
    setAttribute(this.element, 'title', word);
    setAttribute(this.element, 'role', spoken ? 'img' : null);
    setAttribute(this.element, 'aria-label', spoken ? word : null);
    setAttribute(this.element, 'aria-hidden', spoken ? null : 'true');
  }
}

function button(icon, summary) {
  const made = element('button', 'button', { type: 'button', 'aria-expanded': 'false', 'aria-controls': 'popover' });
  const chevron = drawing(CHEVRON);
  chevron.setAttribute('class', 'chevron');
  chevron.setAttribute('aria-hidden', 'true');
  made.append(icon.element, summary, chevron);
  return made;
}

function drawing(shape) {
  const namespace = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(namespace, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  const path = document.createElementNS(namespace, 'path');
  path.setAttribute('d', shape);
  svg.append(path);
  return svg;
}

function element(name, className, attributes = {}) {
  const made = document.createElement(name);
  made.className = className;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

/** An equal value is left alone, so that drawing again costs no style or layout; null takes it away. */
function setAttribute(target, name, value) {
  if (target.getAttribute(name) === value) return;
  if (value === null) target.removeAttribute(name);
  else target.setAttribute(name, value);
}

/** The text node is kept: one that is replaced takes a selection with it. */
function setText(target, text) {
  if (target.firstChild === null) target.append(text);
  else if (target.firstChild.data !== text) target.firstChild.data = text;
}

/** A text that may be cut at the row's end, and whole in its title. */
function setTitled(target, text) {
  setText(target, text);
  setAttribute(target, 'title', text);
}

/**
 * Puts `wanted` in order into `list` with as few moves as matter: elements known to be `restless` give way,
 * all others keep still, and `pinned` is never touched, whatever must move around it.
 */
function arrange(list, wanted, restless, pinned) {
  let cursor = list.firstElementChild;
  for (const item of wanted) {
    while (cursor && cursor !== item && cursor !== pinned && (item === pinned || restless.has(cursor))) {
      const next = cursor.nextElementSibling;
      cursor.remove();
      cursor = next;
    }
    if (cursor === item) cursor = item.nextElementSibling;
    else list.insertBefore(item, cursor);
  }
}

/** The `lang` that applies to an element, across the shadow roots it stands in; empty when none does. */
function nearestLanguage(start) {
  for (let node = start; node; node = node.getRootNode().host) {
    const holder = node.closest('[lang]');
    if (holder) return holder.getAttribute('lang');
  }
  return '';
}
