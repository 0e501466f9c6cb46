/** One task as a row of the list. */

import { drawing, element, setAttribute, setText, setTitled } from './dom.js';
import { elapsed, formatDuration, isLive, plain } from './format.js';

/** One task's row. Made empty; `update` gives it all it shows. */
export class Row {
  element = element('li', 'task', { tabindex: '-1' });

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
    setTitled(this.#kind, plain(task.kind));
    setTitled(this.#label, plain(task.label));
    setTitled(this.#status, plain(task.detail || word));
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

export class Icon {
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
