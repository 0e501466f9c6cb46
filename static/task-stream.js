/**
 * One session's stream, kept alive for as long as somebody could be looking.
 *
 * The browser's EventSource reconnects by itself after a lost connection. This adds what it leaves out:
 * - it gives up for ever on an answer that is not a stream (a 502 of a proxy): a new one is made, with backoff;
 * - it cannot tell a silent connection from a dead one: a watchdog on the server's heartbeat can;
 * - it holds one of the six connections that a browser allows a host, over all tabs, while nobody looks:
 *   it is closed while the page is hidden or kept for going back to, and opened when the page is seen.
 *
 * There is never more than one connection: `#connect` and `#disconnect` are the only two places that make
 * and end one, and the first calls the second.
 */

/** How long an open connection may be silent before the rows of the one before are taken for gone, ms. */
const BASELINE_GRACE = 500;
/** First wait after a fatal error, ms; doubled by each further one. */
const REVIVAL_FIRST = 1_000;
/** Longest wait after a fatal error, ms. */
const REVIVAL_LONGEST = 30_000;
/** Share of a wait that chance may take off, so that pages which fell together do not come back together. */
const REVIVAL_JITTER = 0.25;
/** Silence that means a dead connection, ms: the server's heartbeat comes every 15 s, so three were missed. */
const WATCHDOG = 45_000;
/** How long a hidden page keeps its stream, ms: a glance at another tab should cost no reconnect. */
const HIDDEN_GRACE = 5_000;

export class TaskStream {
  #url;
  #mirror;
  /** @type {EventSource | null} */
  #source = null;
  /** Fatal errors since the last good open. */
  #failures = 0;
  #generation = 0;
  /** @type {AbortController | null} present from `open` to `close` */
  #pageEvents = null;
  #graceTimer;
  #revivalTimer;
  #watchdogTimer;
  #hiddenTimer;

  /**
   * @param {string} url of the stream; ask for `heartbeat=event`, or the watchdog will take silence for death
   * @param {{
   *   beginGeneration(): number,
   *   receive(generation: number, text: string): void,
   *   expire(generation: number): void,
   *   clock: { hear(stamp: string): void },
   * }} mirror what hears of everything
   */
  constructor(url, mirror) {
    this.#url = url;
    this.#mirror = mirror;
  }

  /** Begins to follow the session. A page that is not seen connects when it is. */
  open() {
    if (this.#pageEvents) return;
    this.#pageEvents = new AbortController();
    const { signal } = this.#pageEvents;
    document.addEventListener('visibilitychange', () => this.#followVisibility(), { signal });
    window.addEventListener('pagehide', () => this.#park(), { signal });
    window.addEventListener('pageshow', () => this.#followVisibility(), { signal });
    if (isSeen()) this.#connect();
  }

  /** Ends for good: no connection, timer or listener is left. */
  close() {
    this.#pageEvents?.abort();
    this.#pageEvents = null;
    this.#park();
  }

  #connect() {
    this.#disconnect();
    const source = new EventSource(this.#url);
    source.onopen = () => this.#opened();
    source.onmessage = (event) => this.#message(event);
    source.onerror = () => this.#failed();
    source.addEventListener('heartbeat', (event) => this.#heartbeat(event));
    this.#source = source;
    this.#watch();
  }

  /**
   * WHATWG HTML 9.2.3: a task that finds `readyState` CLOSED dispatches nothing, so once `close()` has run
   * no handler of this source is called again and none needs to ask whether it is still the current one.
   */
  #disconnect() {
    clearTimeout(this.#graceTimer);
    clearTimeout(this.#watchdogTimer);
    clearTimeout(this.#revivalTimer);
    this.#revivalTimer = undefined;
    this.#source?.close();
    this.#source = null;
  }

  /** Also runs when the browser has reconnected by itself: each announced connection is a generation. */
  #opened() {
    this.#failures = 0;
    const generation = this.#mirror.beginGeneration();
    this.#generation = generation;
    clearTimeout(this.#graceTimer);
    this.#graceTimer = setTimeout(() => this.#mirror.expire(generation), BASELINE_GRACE);
    this.#watch();
  }

  #message(event) {
    // Unreadable or not, a frame says that the session has a list: silence no longer speaks for an empty one.
    clearTimeout(this.#graceTimer);
    this.#mirror.clock.hear(event.lastEventId);
    this.#mirror.receive(this.#generation, event.data);
    this.#watch();
  }

  #heartbeat(event) {
    // Not `lastEventId`: a heartbeat has no id of its own and would repeat the last frame's (9.2.6).
    this.#mirror.clock.hear(event.data);
    this.#watch();
  }

  /**
   * WHATWG HTML 9.2.3: after a network error `readyState` is CONNECTING and the browser reestablishes the
   * connection; after an answer that is not `200` with `text/event-stream` it is CLOSED, and nobody will.
   */
  #failed() {
    // A connection that broke before it spoke has not shown the old rows to be gone.
    clearTimeout(this.#graceTimer);
    if (this.#source?.readyState !== EventSource.CLOSED) return;
    this.#disconnect();
    const wait = Math.min(REVIVAL_FIRST * 2 ** this.#failures, REVIVAL_LONGEST);
    this.#failures += 1;
    this.#revivalTimer = setTimeout(() => this.#connect(), wait * (1 - REVIVAL_JITTER * Math.random()));
  }

  #watch() {
    clearTimeout(this.#watchdogTimer);
    this.#watchdogTimer = setTimeout(() => this.#connect(), WATCHDOG);
  }

  #followVisibility() {
    clearTimeout(this.#hiddenTimer);
    if (!isSeen()) {
      this.#hiddenTimer = setTimeout(() => this.#park(), HIDDEN_GRACE);
    } else if (!this.#source && this.#revivalTimer === undefined) {
      this.#connect();
    }
  }

  /** Lets go of the connection and of every timer; the mirror keeps its rows. */
  #park() {
    clearTimeout(this.#hiddenTimer);
    this.#disconnect();
  }
}

function isSeen() {
  return document.visibilityState === 'visible';
}
