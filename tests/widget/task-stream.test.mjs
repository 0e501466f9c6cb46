import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { TaskStream } from '../../static/task-stream.js';

/** The browser's part, turned by hand. */
class FakeEventSource extends EventTarget {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSED = 2;
  static all = [];
  static get unclosed() {
    return this.all.filter((source) => source.readyState !== this.CLOSED);
  }
  static get last() {
    return this.all.at(-1);
  }

  readyState = FakeEventSource.CONNECTING;

  constructor(url) {
    super();
    this.url = url;
    FakeEventSource.all.push(this);
    assert.equal(FakeEventSource.unclosed.length, 1, 'never two streams at once');
  }
  close() {
    this.readyState = FakeEventSource.CLOSED;
  }
  announce() {
    this.readyState = FakeEventSource.OPEN;
    this.onopen(new Event('open'));
  }
  message(data, lastEventId = '') {
    this.onmessage(new MessageEvent('message', { data, lastEventId }));
  }
  heartbeat(data, lastEventId = '') {
    this.dispatchEvent(new MessageEvent('heartbeat', { data, lastEventId }));
  }
  /** A lost connection: the browser will reconnect. */
  lose() {
    this.readyState = FakeEventSource.CONNECTING;
    this.onerror(new Event('error'));
  }
  /** An answer that is not a stream: the browser gives up. */
  refuse() {
    this.readyState = FakeEventSource.CLOSED;
    this.onerror(new Event('error'));
  }
}

/** Writes down what a mirror is told. */
class FakeMirror {
  heard = [];
  #generation = 0;
  clock = { hear: (stamp) => this.heard.push(['clock', stamp]) };
  beginGeneration() {
    this.heard.push(['begin', ++this.#generation]);
    return this.#generation;
  }
  receive(generation, text) {
    this.heard.push(['receive', generation, text]);
  }
  expire(generation) {
    this.heard.push(['expire', generation]);
  }
  told(what) {
    return this.heard.filter(([name]) => name === what);
  }
}

const pass = (milliseconds) => mock.timers.tick(milliseconds);
let mirror;
let stream;

beforeEach(() => {
  mock.timers.enable({ apis: ['setTimeout'] });
  mock.method(Math, 'random', () => 0);
  FakeEventSource.all = [];
  globalThis.EventSource = FakeEventSource;
  globalThis.window = new EventTarget();
  globalThis.document = Object.assign(new EventTarget(), { visibilityState: 'visible' });
  mirror = new FakeMirror();
  stream = new TaskStream('http://gateway.test/sessions/s/tasks?heartbeat=event', mirror);
});

afterEach(() => {
  stream.close();
  mock.timers.reset();
  mock.restoreAll();
});

function show(visibilityState) {
  document.visibilityState = visibilityState;
  document.dispatchEvent(new Event('visibilitychange'));
}

test('opening connects to the URL, once', () => {
  stream.open();
  stream.open();
  assert.deepEqual(FakeEventSource.all.map(({ url }) => url), ['http://gateway.test/sessions/s/tasks?heartbeat=event']);
});

test('a page that is hidden from the start connects when it is seen', () => {
  document.visibilityState = 'hidden';
  stream.open();
  assert.equal(FakeEventSource.all.length, 0);
  show('visible');
  assert.equal(FakeEventSource.all.length, 1);
});

test('frames go to the mirror under the generation of their connection', () => {
  stream.open();
  FakeEventSource.last.announce();
  FakeEventSource.last.message('[1]', '1000');
  FakeEventSource.last.lose();
  FakeEventSource.last.announce();
  FakeEventSource.last.message('[2]', '2000');
  assert.deepEqual(mirror.told('receive'), [['receive', 1, '[1]'], ['receive', 2, '[2]']]);
});

test('the clock hears a frame by its id and a heartbeat by its data', () => {
  stream.open();
  FakeEventSource.last.announce();
  FakeEventSource.last.message('[]', '1000');
  FakeEventSource.last.heartbeat('2000', '1000');
  assert.deepEqual(mirror.told('clock'), [['clock', '1000'], ['clock', '2000']]);
});

test('a connection silent for 500 ms after it opened expires the rows before it', () => {
  stream.open();
  FakeEventSource.last.announce();
  pass(499);
  assert.deepEqual(mirror.told('expire'), []);
  pass(1);
  assert.deepEqual(mirror.told('expire'), [['expire', 1]]);
});

test('a connection that spoke in time expires nothing', () => {
  stream.open();
  FakeEventSource.last.announce();
  pass(499);
  FakeEventSource.last.message('[1]');
  pass(10_000);
  assert.deepEqual(mirror.told('expire'), []);
});

test('a heartbeat is no word about the list: the rows before it still expire', () => {
  stream.open();
  FakeEventSource.last.announce();
  FakeEventSource.last.heartbeat('1');
  pass(500);
  assert.deepEqual(mirror.told('expire'), [['expire', 1]]);
});

for (const [how, end] of [
  ['was lost', () => FakeEventSource.last.lose()],
  ['was refused', () => FakeEventSource.last.refuse()],
  ['was closed by a page that left', () => window.dispatchEvent(new Event('pagehide'))],
]) {
  test(`a connection that ${how} before it spoke expires nothing`, () => {
    stream.open();
    FakeEventSource.last.announce();
    end();
    pass(600);
    assert.deepEqual(mirror.told('expire'), []);
  });
}

test('a lost connection is left to the browser', () => {
  stream.open();
  FakeEventSource.last.announce();
  FakeEventSource.last.lose();
  pass(40_000);
  assert.equal(FakeEventSource.all.length, 1);
});

test('after a fatal error a new one is made after 1 s, doubling to 30 s', () => {
  stream.open();
  for (const wait of [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
    const before = FakeEventSource.all.length;
    FakeEventSource.last.refuse();
    pass(wait - 1);
    assert.equal(FakeEventSource.all.length, before, `nothing before ${wait} ms`);
    pass(1);
    assert.equal(FakeEventSource.all.length, before + 1, `a new one at ${wait} ms`);
  }
});

test('chance takes up to a quarter off the wait', () => {
  Math.random.mock.mockImplementation(() => 1);
  stream.open();
  FakeEventSource.last.refuse();
  pass(749);
  assert.equal(FakeEventSource.all.length, 1);
  pass(1);
  assert.equal(FakeEventSource.all.length, 2);
});

test('a good open starts the waits anew', () => {
  stream.open();
  FakeEventSource.last.refuse();
  pass(1_000);
  FakeEventSource.last.refuse();
  pass(2_000);
  FakeEventSource.last.announce();
  FakeEventSource.last.refuse();
  pass(1_000);
  assert.equal(FakeEventSource.all.length, 4);
});

test('a connection silent for 45 s is replaced', () => {
  stream.open();
  FakeEventSource.last.announce();
  pass(44_999);
  assert.equal(FakeEventSource.all.length, 1);
  pass(1);
  assert.equal(FakeEventSource.all.length, 2);
  assert.equal(FakeEventSource.unclosed.length, 1);
});

test('a connection that never opens is replaced after 45 s, again and again', () => {
  stream.open();
  pass(45_000);
  pass(45_000);
  assert.equal(FakeEventSource.all.length, 3);
});

for (const [what, speak] of [
  ['heartbeats', () => FakeEventSource.last.heartbeat('1')],
  ['frames', () => FakeEventSource.last.message('[]')],
]) {
  test(`${what} keep a connection`, () => {
    stream.open();
    FakeEventSource.last.announce();
    for (let beat = 0; beat < 10; beat += 1) {
      pass(44_000);
      speak();
    }
    assert.equal(FakeEventSource.all.length, 1);
  });
}

test('a page hidden for 5 s lets go of its connection, and takes a new one when seen', () => {
  stream.open();
  show('hidden');
  pass(4_999);
  assert.equal(FakeEventSource.unclosed.length, 1);
  pass(1);
  assert.equal(FakeEventSource.unclosed.length, 0);
  show('visible');
  assert.equal(FakeEventSource.all.length, 2);
  assert.equal(FakeEventSource.unclosed.length, 1);
});

test('a glance at another tab costs nothing', () => {
  stream.open();
  show('hidden');
  pass(4_999);
  show('visible');
  pass(10_000);
  assert.equal(FakeEventSource.all.length, 1);
  assert.equal(FakeEventSource.unclosed.length, 1);
});

test('a page kept for going back to holds no connection, and takes one when it comes back', () => {
  stream.open();
  window.dispatchEvent(new Event('pagehide'));
  show('hidden');
  assert.equal(FakeEventSource.unclosed.length, 0);
  pass(60_000);
  assert.equal(FakeEventSource.all.length, 1);
  show('visible');
  window.dispatchEvent(new Event('pageshow'));
  assert.equal(FakeEventSource.all.length, 2);
});

test('20 flips of visibility leave one connection', () => {
  stream.open();
  for (let flip = 0; flip < 20; flip += 1) {
    show('hidden');
    pass(flip % 2 ? 6_000 : 100);
    show('visible');
    assert.equal(FakeEventSource.unclosed.length, 1);
  }
});

test('a hidden page is not revived', () => {
  stream.open();
  FakeEventSource.last.refuse();
  show('hidden');
  pass(5_000);
  const made = FakeEventSource.all.length;
  FakeEventSource.last.refuse();
  pass(120_000);
  assert.equal(FakeEventSource.all.length, made);
});

test('being seen does not shorten the wait after a fatal error', () => {
  stream.open();
  FakeEventSource.last.refuse();
  show('hidden');
  show('visible');
  assert.equal(FakeEventSource.all.length, 1);
  pass(1_000);
  assert.equal(FakeEventSource.all.length, 2);
});

test('closing leaves no connection, no timer and no listener', () => {
  stream.open();
  FakeEventSource.last.announce();
  show('hidden');
  stream.close();
  show('visible');
  window.dispatchEvent(new Event('pageshow'));
  pass(120_000);
  assert.equal(FakeEventSource.all.length, 1);
  assert.equal(FakeEventSource.unclosed.length, 0);
  assert.deepEqual(mirror.told('expire'), []);
});

test('closing while a revival is due ends it', () => {
  stream.open();
  FakeEventSource.last.refuse();
  stream.close();
  pass(60_000);
  assert.equal(FakeEventSource.all.length, 1);
});

test('a closed stream can be opened again', () => {
  stream.open();
  stream.close();
  stream.open();
  assert.equal(FakeEventSource.unclosed.length, 1);
});
