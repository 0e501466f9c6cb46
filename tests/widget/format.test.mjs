import assert from 'node:assert/strict';
import { test } from 'node:test';
import { elapsed, endings, formatDuration, inReadingOrder, isLive, plain, wordsFor } from '../../static/format.js';

const task = (id, more) => ({ id, kind: 'bash', label: id, status: 'running', startedAt: 0, ...more });
const settled = (id, finishedAt, more) => task(id, { status: 'completed', finishedAt, ...more });
const ids = (tasks) => tasks.map(({ id }) => id);

test('live tasks come first, the longest running on top; settled ones follow, the latest on top', () => {
  const tasks = [
    settled('a', 10),
    task('b', { startedAt: 5 }),
    settled('c', 30),
    task('d', { startedAt: 2, status: 'stopping' }),
    settled('e', 20, { status: 'failed' }),
  ];
  assert.deepEqual(ids(inReadingOrder(tasks)), ['d', 'b', 'c', 'e', 'a']);
});

test('tasks of the same time keep registration order', () => {
  const tasks = [task('a'), task('b'), settled('c', 9), settled('d', 9), task('e')];
  assert.deepEqual(ids(inReadingOrder(tasks)), ['a', 'b', 'e', 'c', 'd']);
});

test('ordering leaves the list it was given alone', () => {
  const tasks = Object.freeze([settled('a', 1), task('b')]);
  assert.deepEqual(ids(inReadingOrder(tasks)), ['b', 'a']);
  assert.deepEqual(ids(tasks), ['a', 'b']);
});

test('a task of an unknown status is live until it has an end', () => {
  assert.equal(isLive(task('a', { status: 'paused' })), true);
  assert.equal(isLive(settled('a', 1, { status: 'evaporated' })), false);
});

for (const [milliseconds, text] of [
  [0, '0s'],
  [999, '0s'],
  [42_999, '42s'],
  [59_999, '59s'],
  [60_000, '1m 00s'],
  [185_000, '3m 05s'],
  [3_599_999, '59m 59s'],
  [3_600_000, '1h 00m'],
  [7_620_000, '2h 07m'],
  [360_000_000, '100h 00m'],
  [-1, '0s'],
  [-3_600_000, '0s'],
]) {
  test(`${milliseconds} ms is shown as ${text}`, () => assert.equal(formatDuration(milliseconds), text));
}

test('a live task has run until now, a settled one until its end', () => {
  assert.equal(elapsed(task('a', { startedAt: 100 }), 350), 250);
  assert.equal(elapsed(settled('a', 300, { startedAt: 100 }), 9_999), 200);
});

test('endings are the tasks settled now that were live or unknown before', () => {
  const before = [task('a'), settled('b', 1), task('c')];
  const after = [settled('a', 2), settled('b', 1), task('c'), settled('d', 3)];
  assert.deepEqual(ids(endings(before, after)), ['a', 'd']);
});

test('the summary counts live tasks while there are any, else all, in the right number', () => {
  const { summary } = wordsFor('en');
  assert.equal(summary(3, 0), '3 background tasks');
  assert.equal(summary(1, 0), '1 background task');
  assert.equal(summary(5, 2), '2 background tasks running');
  assert.equal(summary(5, 1), '1 background task running');
});

test('the summary in Chinese', () => {
  const { summary } = wordsFor('zh');
  assert.equal(summary(3, 0), '3 个后台任务');
  assert.equal(summary(5, 2), '2 个后台任务运行中');
});

test('each status has its word in both languages', () => {
  const words = (language) =>
    ['running', 'stopping', 'completed', 'killed', 'failed'].map((status) => wordsFor(language).status(status));
  assert.deepEqual(words('en'), ['running', 'stopping', 'completed', 'cancelled', 'failed']);
  assert.deepEqual(words('zh'), ['运行中', '正在停止', '已完成', '已取消', '已失败']);
});

test('an unknown status is shown as it is, even one that names a property of every object', () => {
  for (const status of ['paused', 'constructor', '__proto__', '']) {
    assert.equal(wordsFor('en').status(status), status);
    assert.equal(wordsFor('zh').status(status), status);
  }
});

for (const [tag, language] of [
  ['zh', 'zh'],
  ['zh-CN', 'zh'],
  ['ZH-hant-TW', 'zh'],
  ['zh_TW', 'zh'],
  [' zh ', 'zh'],
  ['en-GB', 'en'],
  ['fr', 'en'],
  ['zhx', 'en'],
  ['', 'en'],
  ['constructor', 'en'],
]) {
  test(`lang "${tag}" is answered in ${language}`, () => assert.equal(wordsFor(tag).language, language));
}

test('titles of durations in both languages', () => {
  assert.equal(wordsFor('en').runningFor('42s'), 'Running for 42s');
  assert.equal(wordsFor('en').took('42s'), 'Took 42s');
  assert.equal(wordsFor('zh').runningFor('42s'), '已运行 42s');
  assert.equal(wordsFor('zh').took('42s'), '用时 42s');
});

test('one ending is announced by its label, how it ended, and its detail', () => {
  const ended = [settled('make test', 1)];
  assert.equal(wordsFor('en').announcement(ended), 'make test: completed');
  assert.equal(wordsFor('zh').announcement(ended), 'make test：已完成');
  const failed = [settled('make test', 1, { status: 'failed', detail: 'exit code: 2' })];
  assert.equal(wordsFor('en').announcement(failed), 'make test: failed, exit code: 2');
  assert.equal(wordsFor('zh').announcement(failed), 'make test：已失败，exit code: 2');
});

test('several endings are announced as a count, with the failures among them', () => {
  const good = [settled('a', 1), settled('b', 1)];
  assert.equal(wordsFor('en').announcement(good), '2 background tasks ended');
  assert.equal(wordsFor('zh').announcement(good), '2 个后台任务已结束');
  const mixed = [...good, settled('c', 1, { status: 'failed' })];
  assert.equal(wordsFor('en').announcement(mixed), '3 background tasks ended, 1 failed');
  assert.equal(wordsFor('zh').announcement(mixed), '3 个后台任务已结束，其中 1 个失败');
});

test('a long label is cut for the ear, between characters, on one line', () => {
  const spoken = wordsFor('en').announcement([settled(`a\n${'😀'.repeat(200)}`, 1)]);
  assert.equal(spoken, `a ${'😀'.repeat(78)}…: completed`);
});

test('characters that hide or reorder text are shown, not obeyed', () => {
  assert.equal(plain('echo \u202eevil\u0007\u2066'), 'echo \\u{202e}evil\\u{7}\\u{2066}');
  for (const text of ['a\tb\nc', 'هل يعمل\u200f؟', '构建 😀', '<b>&amp;']) assert.equal(plain(text), text);
});
