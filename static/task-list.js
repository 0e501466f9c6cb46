/**
 * The rows of an open list.
 *
 * Promises:
 * - A row is kept by its task's id and changed in place; of rows that trade places, the one with the focus
 *   or a text selection keeps still, so that focus, selection, scroll and the eye keep their hold.
 * - A text that is cut at the row's end can be read whole without a pointer that hovers: the row with the
 *   keyboard's focus shows its texts whole, and so does one that was pressed.
 */

import { arrange, element } from './dom.js';
import { Row } from './task-row.js';

export class TaskList {
  element = element('ul', 'list', { part: 'list', role: 'list' });

  /** @type {Map<string, Row>} by task id */
  #rows = new Map();

  constructor() {
    this.element.addEventListener('click', (event) => this.#pressed(event));
  }

  /**
   * @param {readonly import('./session-tasks.js').TaskView[]} tasks in reading order
   * @param {number} now the server's clock, Unix ms
   * @param {import('./format.js').Words} words
   */
  render(tasks, now, words) {
    const focused = this.#focusedRow();
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
    arrange(this.element, elements, restless, this.#rowWithSelection() ?? focused);
    if (focused && focused !== this.#focusedRow()) {
      const heir = focused.isConnected ? focused : this.element.parentElement;
      heir.focus({ preventScroll: true });
    }
  }

  /** Time went by. */
  tick(now, words) {
    for (const row of this.#rows.values()) row.tick(now, words);
  }

  clear() {
    this.#rows.clear();
    this.element.replaceChildren();
  }

  /**
   * An arrow key goes to the next row, once there is nothing left of this one to scroll to.
   *
   * @param {1 | -1} direction down or up
   * @returns {boolean} false where the key is left to scroll, as it does by itself
   */
  step(direction) {
    const current = this.#focusedRow();
    if (current) {
      const row = current.getBoundingClientRect();
      const view = this.element.parentElement.getBoundingClientRect();
      if (direction > 0 ? row.bottom > view.bottom : row.top < view.top) return false;
    }
    const next = current
      ? current[direction > 0 ? 'nextElementSibling' : 'previousElementSibling']
      : direction > 0 && this.element.firstElementChild;
    if (!next) return false;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: 'nearest' });
    return true;
  }

  /** A press shows a row whole, and cut again; one that selects text only does that. */
  #pressed(event) {
    if (!this.#selection()) event.target.closest('.task')?.classList.toggle('whole');
  }

  #focusedRow() {
    return this.element.getRootNode().activeElement?.closest('.task') ?? null;
  }

  /** The row that a text selection begins in: moving its element would lose the selection. */
  #rowWithSelection() {
    const node = this.#selection()?.startContainer;
    return (node instanceof Element ? node : node?.parentElement)?.closest('.task') ?? null;
  }

  #selection() {
    const selection = this.element.ownerDocument.getSelection();
    const [range] = selection?.getComposedRanges?.({ shadowRoots: [this.element.getRootNode()] }) ?? [];
    return range && !range.collapsed ? range : null;
  }
}
