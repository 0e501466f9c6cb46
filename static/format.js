/**
 * What the list says and in which order: pure functions of tasks, times and languages.
 *
 * Nothing here reads a clock, the document or the network, so every rule can be tested as a table.
 */

/** @typedef {import('./session-tasks.js').TaskView} TaskView */

/**
 * Whether a task is still at work.
 *
 * The wire carries `finishedAt` exactly when a task is terminal, so its absence is the one test that also
 * holds for a status this client has never heard of.
 *
 * @param {TaskView} task
 * @returns {boolean}
 */
export function isLive(task) {
  return task.finishedAt === undefined;
}

/**
 * The tasks in the order people read them: live ones first, the longest running on top, then the settled
 * ones, the latest ending on top. Ties keep registration order.
 *
 * @param {readonly TaskView[]} tasks in registration order
 * @returns {TaskView[]} a new array
 */
export function inReadingOrder(tasks) {
  const live = tasks.filter(isLive);
  const settled = tasks.filter((task) => !isLive(task));
  live.sort((a, b) => a.startedAt - b.startedAt);
  settled.sort((a, b) => b.finishedAt - a.finishedAt);
  return live.concat(settled);
}

/**
 * How long a task has run, or ran.
 *
 * @param {TaskView} task
 * @param {number} now the server's clock, Unix ms; unused for a settled task
 * @returns {number} milliseconds; negative when the clocks disagree, which only the display clamps
 */
export function elapsed(task, now) {
  return (task.finishedAt ?? now) - task.startedAt;
}

/**
 * A duration as `42s`, `3m 05s` or `2h 07m`: floored, and never below `0s`.
 *
 * @param {number} milliseconds
 * @returns {string}
 */
export function formatDuration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (hours > 0) return `${hours}h ${twoDigits(minutes % 60)}m`;
  if (minutes > 0) return `${minutes}m ${twoDigits(seconds % 60)}s`;
  return `${seconds}s`;
}

/** Controls but for tab and line ends, and what turns the direction of the text behind it. */
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/**
 * A text of the wire as people may read it: characters that would hide or reorder others are shown by their
 * number, not obeyed. Else a command could look like another.
 *
 * @param {string} text
 * @returns {string}
 */
export function plain(text) {
  return text.replace(UNSEEN, (character) => `\\u{${character.charCodeAt(0).toString(16)}}`);
}

/**
 * The tasks that ended between two lists of one session: settled now, and live or unknown before.
 *
 * @param {readonly TaskView[]} before
 * @param {readonly TaskView[]} after
 * @returns {TaskView[]}
 */
export function endings(before, after) {
  const settledBefore = new Set();
  for (const task of before) if (!isLive(task)) settledBefore.add(task.id);
  return after.filter((task) => !isLive(task) && !settledBefore.has(task.id));
}

/**
 * Everything the widget says in one language.
 *
 * @typedef {object} Words
 * @property {string} language BCP 47 tag to mark the text with
 * @property {string} title name of the list
 * @property {string} none said when the last task has gone
 * @property {(status: string) => string} status an unknown status is shown as it is
 * @property {(total: number, live: number) => string} summary the control's text
 * @property {(duration: string) => string} runningFor
 * @property {(duration: string) => string} took
 * @property {(ended: readonly TaskView[]) => string} announcement for assistive technology; `ended` is not empty
 */

/** @type {Readonly<Record<string, Words>>} */
const WORDS = {
  en: {
    language: 'en',
    title: 'Background tasks',
    none: 'No background tasks',
    status: wordFrom({
      running: 'running',
      stopping: 'stopping',
      completed: 'completed',
      killed: 'cancelled',
      failed: 'failed',
    }),
    summary(total, live) {
      const count = live > 0 ? live : total;
      const noun = count === 1 ? 'background task' : 'background tasks';
      return live > 0 ? `${count} ${noun} running` : `${count} ${noun}`;
    },
    runningFor: (duration) => `Running for ${duration}`,
    took: (duration) => `Took ${duration}`,
    announcement(ended) {
      if (ended.length === 1) return oneEnding(ended[0], this, ': ', ', ');
      const failed = failures(ended);
      const all = `${ended.length} background tasks ended`;
      return failed > 0 ? `${all}, ${failed} failed` : all;
    },
  },
  zh: {
    language: 'zh',
    title: '后台任务',
    none: '没有后台任务',
    status: wordFrom({
      running: '运行中',
      stopping: '正在停止',
      completed: '已完成',
      killed: '已取消',
      failed: '已失败',
    }),
    summary: (total, live) => (live > 0 ? `${live} 个后台任务运行中` : `${total} 个后台任务`),
    runningFor: (duration) => `已运行 ${duration}`,
    took: (duration) => `用时 ${duration}`,
    announcement(ended) {
      if (ended.length === 1) return oneEnding(ended[0], this, '：', '，');
      const failed = failures(ended);
      const all = `${ended.length} 个后台任务已结束`;
      return failed > 0 ? `${all}，其中 ${failed} 个失败` : all;
    },
  },
};

/**
 * The words for a `lang` value: the first subtag decides, English stands in for what we do not speak.
 *
 * @param {string} tag BCP 47, any case, may be empty
 * @returns {Words}
 */
export function wordsFor(tag) {
  const [primary] = tag.trim().toLowerCase().split(/[-_]/);
  return Object.hasOwn(WORDS, primary) ? WORDS[primary] : WORDS.en;
}

/** Longest label read aloud, in characters: a whole script would hold a screen reader for minutes. */
const SPOKEN_LABEL = 80;

function oneEnding(task, words, colon, comma) {
  const characters = Array.from(task.label.replace(/\s+/g, ' ').trim());
  const label =
    characters.length > SPOKEN_LABEL ? `${characters.slice(0, SPOKEN_LABEL).join('')}…` : characters.join('');
  const end = words.status(task.status);
  return task.detail ? `${label}${colon}${end}${comma}${task.detail}` : `${label}${colon}${end}`;
}

function failures(tasks) {
  return tasks.filter((task) => task.status === 'failed').length;
}

function wordFrom(table) {
  return (status) => (Object.hasOwn(table, status) ? table[status] : status);
}

function twoDigits(number) {
  return String(number).padStart(2, '0');
}
