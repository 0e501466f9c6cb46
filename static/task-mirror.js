/**
 * The client's copy of one session's list, and of the server's clock.
 *
 * Promises, in order of weight:
 * - Last wins: a list replaces the one before it whole; nothing is merged.
 * - Empty is absent: `[]`, no list yet and a dropped list are one state, the empty list.
 * - Generations: each connection is one. Rows of the generation before stay readable until the new one has
 *   spoken or has been found silent, and a frame of an older generation changes nothing.
 * - A frame that cannot be read changes nothing: the last good list stays.
 */

/** @typedef {import('./session-tasks.js').TaskView} TaskView */

const EMPTY = Object.freeze([]);

/** Fires `change`, a {@link MirrorChangeEvent}, after every change of `tasks`. */
export class TaskMirror extends EventTarget {
  /** The server's clock, fed by whoever reads the stream. */
  clock = new ServerClock();

  /** @type {readonly TaskView[]} */
  #tasks = EMPTY;
  /** What `#tasks` was read from: an equal frame after a reconnect is then no change. */
  #text = '';
  #generation = 0;
  /** No good frame of this generation has been read: the rows, if any, are the previous one's. */
  #awaitingBaseline = true;
  /** One bad frame is news; two hundred a second would bury the console. */
  #warned = false;

  /** The list in registration order, deeply frozen. @returns {readonly TaskView[]} */
  get tasks() {
    return this.#tasks;
  }

  /** A new connection is open. @returns {number} the generation its frames belong to */
  beginGeneration() {
    this.#awaitingBaseline = true;
    this.#warned = false;
    return ++this.#generation;
  }

  /**
   * Takes a frame's data.
   *
   * @param {number} generation as given by `beginGeneration`
   * @param {string} text a JSON array of tasks
   */
  receive(generation, text) {
    if (generation !== this.#generation) return;
    if (text === this.#text) {
      this.#awaitingBaseline = false;
      return;
    }
    let tasks;
    try {
      tasks = parseTasks(text);
    } catch (error) {
      this.#warn(error);
      return;
    }
    const baseline = this.#awaitingBaseline;
    this.#awaitingBaseline = false;
    this.#replace(tasks, text, baseline);
  }

  /**
   * The connection has been open long enough to have spoken. A server says nothing about an empty list to a
   * consumer it does not know, so rows of an earlier generation that are still here are ghosts.
   *
   * @param {number} generation as given by `beginGeneration`
   */
  expire(generation) {
    if (generation !== this.#generation || !this.#awaitingBaseline) return;
    this.#awaitingBaseline = false;
    this.#replace(EMPTY, '', true);
  }

  #replace(tasks, text, baseline) {
    const changed = tasks.length > 0 || this.#tasks.length > 0;
    this.#tasks = tasks.length > 0 ? tasks : EMPTY;
    this.#text = text;
    if (changed) this.dispatchEvent(new MirrorChangeEvent(baseline));
  }

  #warn(error) {
    if (this.#warned) return;
    this.#warned = true;
    console.warn(`<session-tasks> ignored a frame it cannot read: ${error.message}`);
  }
}

/** `tasks` of a {@link TaskMirror} changed. */
export class MirrorChangeEvent extends Event {
  /** @param {boolean} baseline */
  constructor(baseline) {
    super('change');
    /** The list is what a new connection began with: its endings happened at some earlier time. */
    this.baseline = baseline;
  }
}

/**
 * The server's clock as seen from here.
 *
 * Runs on `performance.now()`, which a step of the wall clock does not touch, plus an offset learned from
 * time stamps of the server. A frame that was held up on its way only makes the offset smaller, so the
 * largest of the recent ones is the best. That also mends a monotonic clock that stood still in sleep:
 * what it lost makes the next offset larger. Only recent ones count, so a server's clock that was set back
 * is followed after two windows at the latest.
 */
export class ServerClock {
  /** Milliseconds; long against a hiccup of the network, short against a wrong display. */
  static WINDOW = 60_000;

  #windowStart = -Infinity;
  #best = -Infinity;
  #bestBefore = -Infinity;

  /**
   * Takes a time stamp at the moment it arrives.
   *
   * @param {string} stamp decimal Unix ms; anything else, such as the empty id after `[]`, is no stamp
   */
  hear(stamp) {
    if (!/^\d{1,15}$/.test(stamp)) return;
    const received = performance.now();
    const offset = Number(stamp) - received;
    if (received - this.#windowStart >= ServerClock.WINDOW) {
      this.#windowStart = received;
      this.#bestBefore = this.#best;
      this.#best = offset;
    } else {
      this.#best = Math.max(this.#best, offset);
    }
  }

  /** @returns {number} Unix ms by the server's clock; by our own until the server has told its own */
  now() {
    const offset = Math.max(this.#best, this.#bestBefore);
    return offset === -Infinity ? Date.now() : performance.now() + offset;
  }
}

/** What the wire promises of each status; one that is not here is taken as it comes. */
const TERMINAL = Object.freeze({ running: false, stopping: false, completed: true, killed: true, failed: true });

/**
 * Reads one frame's data.
 *
 * @param {string} text
 * @returns {readonly TaskView[]} deeply frozen
 * @throws {Error} when it is not a JSON array of tasks, saying what is wrong
 */
export function parseTasks(text) {
  const rows = JSON.parse(text);
  if (!Array.isArray(rows)) throw new TypeError('not an array');
  const tasks = rows.map(parseTask);
  if (new Set(tasks.map((task) => task.id)).size !== tasks.length) throw new TypeError('an id stands twice');
  return Object.freeze(tasks);
}

/** A field that a newer server adds is dropped here: a task has the documented fields and no other. */
function parseTask(row, index) {
  if (typeof row !== 'object' || row === null) throw new TypeError(`row ${index} is not an object`);
  const { id, kind, label, status, detail, startedAt, finishedAt } = row;
  for (const [name, value] of Object.entries({ id, kind, label, status })) {
    if (typeof value !== 'string' || value === '') throw new TypeError(`row ${index}: ${name} is not a text`);
  }
  if (detail !== undefined && typeof detail !== 'string') throw new TypeError(`row ${index}: detail is not a text`);
  if (!Number.isSafeInteger(startedAt)) throw new TypeError(`row ${index}: startedAt is not an integer`);
  if (finishedAt !== undefined && !Number.isSafeInteger(finishedAt)) {
    throw new TypeError(`row ${index}: finishedAt is not an integer`);
  }
  if (Object.hasOwn(TERMINAL, status) && TERMINAL[status] !== (finishedAt !== undefined)) {
    throw new TypeError(`row ${index}: finishedAt does not fit the status ${status}`);
  }
  const task = { id, kind, label, status, startedAt };
  if (detail !== undefined) task.detail = detail;
  if (finishedAt !== undefined) task.finishedAt = finishedAt;
  return Object.freeze(task);
}
