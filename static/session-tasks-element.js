/**
 * `<session-tasks session="…">`: what a session does in the background, in a page's header.
 *
 * The element holds no truth of its own: it shows a mirror, which a stream feeds. Elements for the same
 * stream share both. All that changes the connection (attributes, coming, going, moving) is settled once,
 * in a microtask; all that changes the picture is drawn once, in an animation frame.
 */

import { drawing, element, nearestLanguage, setAttribute, setText } from './dom.js';
import { endings, inReadingOrder, isLive, wordsFor } from './format.js';
import { styles } from './session-tasks-styles.js';
import { TaskMirror } from './task-mirror.js';
import { TaskList } from './task-list.js';
import { Icon } from './task-row.js';
import { TaskStream } from './task-stream.js';

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

/** An outline in a 16 × 16 box. */
const CHEVRON = 'M4 6l4 4l4-4';

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

  #languages = new MutationObserver(() => this.#invalidate());
  #ended = [];
  #announcement;

  #summary = element('span', 'summary');
  #buttonIcon = new Icon();
  #button = button(this.#buttonIcon, this.#summary);
  /** Empty while it is closed. */
  #list = new TaskList();
  #popover = element('div', 'popover', {
    part: 'popover', id: 'popover', popover: 'manual', role: 'group', tabindex: '0',
  });
  #liveRegion = element('div', 'unseen', { role: 'status' });
  /** Where the focus rests when the control it was on has gone; see `#leave`. */
  #restingPlace = element('span', 'unseen', { tabindex: '-1' });

  constructor() {
    super();
    this.#root.adoptedStyleSheets = [styles];
    this.#popover.append(this.#list.element);
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
    this.#list.render(inReadingOrder(tasks), this.#mirror.clock.now(), words);
    this.#keepTime(live > 0);
    this.#place();
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
    this.#list.clear();
    this.#invalidate();
  }

  #keydown(event) {
    if (!this.#open || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if (event.key === 'Escape') {
      // The press was for this list: a dialog around it is not to close as well.
      event.preventDefault();
      event.stopPropagation();
      this.#button.focus();
      this.#close();
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      if (this.#list.step(event.key === 'ArrowDown' ? 1 : -1)) event.preventDefault();
    }
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
    this.#list.tick(this.#mirror.clock.now(), wordsFor(nearestLanguage(this)));
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

function button(icon, summary) {
  const made = element('button', 'button', { type: 'button', 'aria-expanded': 'false', 'aria-controls': 'popover' });
  const chevron = drawing(CHEVRON);
  chevron.setAttribute('class', 'chevron');
  chevron.setAttribute('aria-hidden', 'true');
  made.append(icon.element, summary, chevron);
  return made;
}
