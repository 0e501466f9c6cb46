import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { ServerClock, TaskMirror, parseTasks } from '../../static/task-mirror.js';

const row = (id, more) => ({ id, kind: 'bash', label: 'make', status: 'running', startedAt: 1, ...more });
const text = (...rows) => JSON.stringify(rows);

/** A mirror with one generation begun, and what it fired: one `baseline` flag for each change. */
function openMirror() {
  const mirror = new TaskMirror();
  const changes = [];
  mirror.addEventListener('change', ({ baseline }) => changes.push(baseline));
  return { mirror, changes, generation: mirror.beginGeneration() };
}

const ids = (mirror) => mirror.tasks.map(({ id }) => id);

/** Runs `act` and returns what it warned. */
function warnings(act) {
  const warn = mock.method(console, 'warn', () => {});
  try {
    act();
    return warn.mock.calls.map((call) => call.arguments.join(' '));
  } finally {
    warn.mock.restore();
  }
}

test('the last list wins, whole', () => {
  const { mirror, generation } = openMirror();
  mirror.receive(generation, text(row('a'), row('b')));
  mirror.receive(generation, text(row('c')));
  assert.deepEqual(ids(mirror), ['c']);
});

test('an emptied list, a dropped list and no list yet are the same list', () => {
  const { mirror, generation } = openMirror();
  const none = mirror.tasks;
  mirror.receive(generation, text(row('a')));
  mirror.receive(generation, '[]');
  assert.equal(mirror.tasks, none);
  mirror.receive(generation, text(row('a')));
  mirror.expire(mirror.beginGeneration());
  assert.equal(mirror.tasks, none);
  assert.deepEqual(none, []);
});

test('the list is frozen, rows included', () => {
  const { mirror, generation } = openMirror();
  mirror.receive(generation, text(row('a')));
  assert.throws(() => mirror.tasks.push(row('b')), TypeError);
  assert.throws(() => (mirror.tasks[0].label = 'x'), TypeError);
});

test('the rows of the generation before stay until the new one speaks', () => {
  const { mirror, generation } = openMirror();
  mirror.receive(generation, text(row('a')));
  const next = mirror.beginGeneration();
  assert.deepEqual(ids(mirror), ['a']);
  mirror.receive(next, text(row('b')));
  assert.deepEqual(ids(mirror), ['b']);
});

test('the rows of the generation before go when the new one was silent', () => {
  const { mirror, generation, changes } = openMirror();
  mirror.receive(generation, text(row('a')));
  mirror.expire(mirror.beginGeneration());
  assert.deepEqual(ids(mirror), []);
  assert.equal(changes.length, 2);
});

test('a generation that has spoken does not expire', () => {
  const { mirror, generation } = openMirror();
  mirror.receive(generation, text(row('a')));
  mirror.expire(generation);
  assert.deepEqual(ids(mirror), ['a']);
});

test('a generation that repeated the list it found does not expire', () => {
  const { mirror, generation } = openMirror();
  mirror.receive(generation, text(row('a')));
  const next = mirror.beginGeneration();
  mirror.receive(next, text(row('a')));
  mirror.expire(next);
  assert.deepEqual(ids(mirror), ['a']);
});

test('nothing of an older generation changes anything', () => {
  const { mirror, generation } = openMirror();
  mirror.receive(mirror.beginGeneration(), text(row('b')));
  mirror.receive(generation, text(row('a')));
  mirror.expire(generation);
  assert.deepEqual(ids(mirror), ['b']);
});

test('a change tells whether it is what a connection began with', () => {
  const { mirror, changes, generation } = openMirror();
  mirror.receive(generation, text(row('a')));
  mirror.receive(generation, text(row('b')));
  mirror.receive(mirror.beginGeneration(), text(row('c')));
  assert.deepEqual(changes, [true, false, true]);
});

test('after a silent beginning the first list is news, not a baseline', () => {
  const { mirror, changes, generation } = openMirror();
  mirror.expire(generation);
  mirror.receive(generation, text(row('a')));
  assert.deepEqual(changes, [false]);
});

test('an equal list is no change, and what follows it in a new generation is news', () => {
  const { mirror, changes, generation } = openMirror();
  mirror.receive(generation, text(row('a')));
  const next = mirror.beginGeneration();
  mirror.receive(next, text(row('a')));
  mirror.receive(next, text(row('b')));
  assert.deepEqual(changes, [true, false]);
});

test('empty after empty is no change', () => {
  const { mirror, changes, generation } = openMirror();
  mirror.receive(generation, '[]');
  mirror.expire(mirror.beginGeneration());
  assert.deepEqual(changes, []);
});

for (const [what, frame] of [
  ['not JSON', '[{"id":'],
  ['not an array', '{"id":"a"}'],
  ['null', 'null'],
  ['a row that is no object', '[1]'],
  ['a null row', '[null]'],
  ['no id', text(row(undefined))],
  ['an empty id', text(row(''))],
  ['a numeric kind', text(row('a', { kind: 1 }))],
  ['no label', text(row('a', { label: undefined }))],
  ['an empty label', text(row('a', { label: '' }))],
  ['no status', text(row('a', { status: undefined }))],
  ['a null detail', text(row('a', { detail: null }))],
  ['no startedAt', text(row('a', { startedAt: undefined }))],
  ['startedAt as text', text(row('a', { startedAt: '1' }))],
  ['startedAt with a fraction', text(row('a', { startedAt: 1.5 }))],
  ['finishedAt as text', text(row('a', { status: 'failed', finishedAt: '2' }))],
  ['an end without a time', text(row('a', { status: 'completed' }))],
  ['a time without an end', text(row('a', { finishedAt: 2 }))],
  ['one id twice', text(row('a'), row('a'))],
  ['one bad row among good ones', text(row('a'), row('b', { kind: null }))],
]) {
  test(`a frame with ${what} is ignored with one warning, and the last good list stays`, () => {
    const { mirror, changes, generation } = openMirror();
    mirror.receive(generation, text(row('good')));
    const said = warnings(() => {
      mirror.receive(generation, frame);
      mirror.receive(generation, frame);
    });
    assert.equal(said.length, 1);
    assert.match(said[0], /<session-tasks> ignored a frame/);
    assert.deepEqual(ids(mirror), ['good']);
    assert.deepEqual(changes, [true]);
  });
}

test('a good frame after a bad one is taken, and a new connection may warn again', () => {
  const { mirror, generation } = openMirror();
  const said = warnings(() => {
    mirror.receive(generation, '?');
    mirror.receive(generation, text(row('a')));
    assert.deepEqual(ids(mirror), ['a']);
    mirror.receive(mirror.beginGeneration(), '?');
  });
  assert.equal(said.length, 2);
});

test('a task has its documented fields and no other', () => {
  const [live, ended] = parseTasks(
    text(row('a', { pid: 7 }), row('b', { status: 'failed', detail: 'exit code: 1', finishedAt: 2, owner: 'x' })),
  );
  assert.deepEqual(Object.keys(live), ['id', 'kind', 'label', 'status', 'startedAt']);
  assert.deepEqual(Object.keys(ended), ['id', 'kind', 'label', 'status', 'startedAt', 'detail', 'finishedAt']);
});

test('an unknown kind and an unknown status are taken as they come', () => {
  const [task] = parseTasks(text(row('a', { kind: 'quux', status: 'paused' })));
  assert.equal(task.kind, 'quux');
  assert.equal(task.status, 'paused');
});

/** A server's clock on a monotonic clock that the test turns by hand. */
function clockOn(t) {
  const time = { monotonic: 1_000 };
  t.mock.method(performance, 'now', () => time.monotonic);
  return { clock: new ServerClock(), time };
}

test('the server\'s clock is our own until the server has told its own', (t) => {
  const { clock } = clockOn(t);
  t.mock.method(Date, 'now', () => 42);
  assert.equal(clock.now(), 42);
  clock.hear('7000');
  assert.equal(clock.now(), 7_000);
});

test('the server\'s clock goes on with the monotonic clock, whatever the wall clock does', (t) => {
  const { clock, time } = clockOn(t);
  clock.hear('5000');
  time.monotonic += 250;
  t.mock.method(Date, 'now', () => -1e12);
  assert.equal(clock.now(), 5_250);
});

test('a stamp that was held up on its way does not set the clock back', (t) => {
  const { clock, time } = clockOn(t);
  clock.hear('5000');
  time.monotonic += 10_000;
  clock.hear('6000');
  assert.equal(clock.now(), 15_000);
});

test('a monotonic clock that stood still in sleep is mended by the next stamp', (t) => {
  const { clock, time } = clockOn(t);
  clock.hear('5000');
  time.monotonic += 10;
  clock.hear('3605010');
  assert.equal(clock.now(), 3_605_010);
});

test('a server\'s clock that was set back is followed after two windows', (t) => {
  const { clock, time } = clockOn(t);
  clock.hear('10000000');
  for (let beat = 0; beat < 9; beat += 1) {
    time.monotonic += 15_000;
    clock.hear(String(1_000_000 + beat * 15_000));
  }
  assert.equal(clock.now(), 1_000_000 + 8 * 15_000);
});

test('what is no stamp is not heard', (t) => {
  const { clock } = clockOn(t);
  clock.hear('5000');
  for (const stamp of ['', 'abc', '1e9', '-1', '99999999999999999999', ' 9000']) clock.hear(stamp);
  assert.equal(clock.now(), 5_000);
});
