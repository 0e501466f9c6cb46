/** The CPU time that a page had, as Linux counts it: what other programs took meanwhile is not in it. */

import { readFileSync } from 'node:fs';

/** The CPU time of a process's main thread, noted every 10 ms for as long as it is asked for. */
export class CpuTime {
  #pid;
  #notes = [];
  #timer = setInterval(() => this.#note(), 10);

  constructor(pid) {
    this.#pid = pid;
    this.#note();
  }

  stop() {
    clearInterval(this.#timer);
    this.#note();
  }

  /**
   * The most that it can have had in a time between the making and `stop`: from the note before to the note after.
   *
   * @param {number} start Unix ms @param {number} duration ms
   */
  within(start, duration) {
    const before = this.#notes.findLast(({ at }) => at <= start);
    const after = this.#notes.find(({ at }) => at >= start + duration);
    return after.cpu - before.cpu;
  }

  #note() {
    const [nanoseconds] = readFileSync(`/proc/${this.#pid}/task/${this.#pid}/schedstat`, 'utf8').split(' ');
    this.#notes.push({ at: performance.timeOrigin + performance.now(), cpu: nanoseconds / 1e6 });
  }
}

/** The process that draws a page: of all renderers the one that works when the page is made to. */
export async function processOf(page) {
  const devtools = await page.context().browser().newBrowserCDPSession();
  const times = async () => {
    const { processInfo } = await devtools.send('SystemInfo.getProcessInfo');
    return new Map(processInfo.filter(({ type }) => type === 'renderer').map(({ id, cpuTime }) => [id, cpuTime]));
  };
  const before = await times();
  await page.evaluate(() => {
    for (const began = performance.now(); performance.now() - began < 500; );
  });
  const grown = [...(await times())].map(([id, time]) => [id, time - (before.get(id) ?? time)]);
  await devtools.detach();
  return grown.sort(([, a], [, b]) => b - a)[0][0];
}
