/** The CPU time that a page had, as Linux counts it: what other programs took meanwhile is not in it. */

import { readFileSync } from 'node:fs';
import { pause } from './launch.mjs';

/** The CPU time of a process's main thread, noted every 10 ms for as long as it is asked for. */
export class CpuTime {
  #notes = [];
  #timer;

  constructor(pid) {
    const note = () => {
      const [nanoseconds] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ');
      this.#notes.push({ at: performance.timeOrigin + performance.now(), cpu: nanoseconds / 1e6 });
    };
    note();
    this.#timer = setInterval(note, 10);
  }

  stop() {
    clearInterval(this.#timer);
  }

  /** The most that it can have had from `start`, Unix ms, on: from the note before to the note after. */
  within(start, duration) {
    const before = this.#notes.findLast(({ at }) => at <= start);
    const after = this.#notes.find(({ at }) => at >= start + duration);
    return (after ?? this.#notes.at(-1)).cpu - (before ?? this.#notes[0]).cpu;
  }
}

/** The process of the one page that does anything: of all renderers the one that grows. */
export async function busyRenderer(browser, milliseconds) {
  const devtools = await browser.newBrowserCDPSession();
  const times = async () => {
    const { processInfo } = await devtools.send('SystemInfo.getProcessInfo');
    return new Map(processInfo.filter(({ type }) => type === 'renderer').map(({ id, cpuTime }) => [id, cpuTime]));
  };
  const before = await times();
  await pause(milliseconds);
  const grown = [...(await times())].map(([id, time]) => [id, time - (before.get(id) ?? 0)]);
  await devtools.detach();
  return grown.sort(([, a], [, b]) => b - a)[0][0];
}
