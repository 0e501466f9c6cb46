/**
 * Measures what the widget costs a page while its session is busy, as a Markdown table, against the real gateway.
 *
 *     node tests/browser/measure.mjs [--minutes N] [--only TEXT]
 *
 * Each load runs for N minutes (1) with the list open and with it closed; `--only` takes those whose name has
 * TEXT in it. Exits with 1 when a bar is missed. The page embeds the widget and has nothing else.
 *
 * - script, style and layout, main thread: CPU time of the page's main thread, as a share of one core, by
 *   Chromium's own count (DevTools `Performance.getMetrics`, in thread time): another program's does not count. The
 *   last is all that the thread does, with painting, and with the loop that watches the frames.
 * - longest gap: between two callbacks of `requestAnimationFrame`, 16.7 ms when all is well. Other programs of the
 *   machine can make it longer, so it is told and is no bar.
 * - long frames: of 50 ms or more by the clock on the wall, from the first task of the frame to its paint, as Chromium
 *   reports them (`long-animation-frame`). On a busy machine a frame waits for a core as well, so beside their number
 *   stands the most CPU time that the main thread had in one of them, at most (Linux tells it in `schedstat`, read
 *   every 10 ms). No frame may have had 50 ms.
 * - heap: JavaScript in use after a forced collection, at the start, middle and end; no number above is taken
 *   while one runs.
 * - first paint: from the first byte of the stream's answer to the first contentful paint, which is the control's,
 *   since the page has nothing else; both on the browser's clock. The median of several loads.
 */

import { loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { CpuTime, processOf } from './support/cpu-time.mjs';
import { startGateway } from './support/gateway.mjs';
import { launch, pause } from './support/launch.mjs';
import { startSite } from './support/site.mjs';
import { Work } from './support/work.mjs';

const LOADS = [
  { name: '12 tasks, 200 changes/s', live: 10, settled: 2, rate: 200 },
  { name: '110 tasks, 10 changes/s', live: 10, settled: 100, rate: 10 },
];

/** What comes before the first number, ms: code is compiled, caches are filled. */
const WARM_UP = 10_000;
/** How often a page is loaded for the first paint. */
const PAINTS = 9;

/** Most that script, style and layout may take of one core, %. */
const CPU_BAR = 20;
/** CPU time that a frame must stay under, ms. */
const FRAME_BAR = 50;
/** Most that the heap may have grown from the middle to the end: before, code is still compiled. */
const GROWTH_BAR = 1.1;
/** Fewest changes of those made that the page must have been told, for the load to count. */
const TOLD_BAR = 0.9;

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '1' }, only: { type: 'string', default: '' } } });
const minutes = Number(values.minutes);
if (!(minutes > 0)) throw new Error(`--minutes ${values.minutes}: not a number of minutes`);
const cases = LOADS.flatMap((load) => ['open', 'closed'].map((list) => ({ ...load, list, name: `${load.name}, ${list}` })))
  .filter(({ name }) => name.includes(values.only));
if (cases.length === 0) throw new Error(`--only ${values.only}: no load has that in its name`);

const say = (text) => console.error(`${new Date().toLocaleTimeString('en-GB')} ${text}`);
const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];
const browser = await launch();
const site = await startSite();

/** In the page: counts what it is told, and watches its frames. */
function watch() {
  window.told = 0;
  document.addEventListener('taskschange', () => (window.told += 1));
  let began, last, longest;
  const long = [];
  const each = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    requestAnimationFrame(each);
  };
  requestAnimationFrame(each);
  const observer = new PerformanceObserver((list) => long.push(...list.getEntries()));
  observer.observe({ type: 'long-animation-frame' });
  window.beginWatch = () => {
    long.length = 0;
    longest = 0;
    began = last = performance.now();
  };
  window.endWatch = () => {
    long.push(...observer.takeRecords());
    // One that began before, such as a collection's, can be told late.
    const own = long.filter(({ startTime }) => startTime >= began);
    return { gap: longest, long: own.map(({ startTime, duration }) => ({ start: performance.timeOrigin + startTime, duration })) };
  };
}

/** What Chromium has counted of a page. */
async function metricsOf(devtools) {
  const { metrics } = await devtools.send('Performance.getMetrics');
  return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
}

async function collected(devtools) {
  await devtools.send('HeapProfiler.collectGarbage');
  const { JSHeapUsedSize, Nodes } = await metricsOf(devtools);
  return { heap: JSHeapUsedSize / 1e6, nodes: Nodes };
}

/** Counts for one stretch of time, as shares of one core. */
async function stretch(page, pid, devtools, work, milliseconds) {
  const time = new CpuTime(pid);
  await page.evaluate(() => window.beginWatch());
  const before = { at: performance.now(), made: work.changes, told: await page.evaluate(() => window.told), ...(await metricsOf(devtools)) };
  await pause(milliseconds);
  const after = { at: performance.now(), made: work.changes, told: await page.evaluate(() => window.told), ...(await metricsOf(devtools)) };
  const { gap, long } = await page.evaluate(() => window.endWatch());
  time.stop();
  const seconds = (after.at - before.at) / 1_000;
  const share = (...names) => names.reduce((sum, name) => sum + (100 * (after[name] - before[name])) / seconds, 0);
  return {
    script: share('ScriptDuration'),
    layout: share('RecalcStyleDuration', 'LayoutDuration'),
    thread: share('TaskDuration'),
    made: (after.made - before.made) / seconds,
    told: (after.told - before.told) / seconds,
    gap,
    long: long.map(({ start, duration }) => ({ duration, cpu: time.within(start, duration) })),
  };
}

/** One load, with the list open or closed. */
async function cost(address, work, open) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.addInitScript(watch);
  await page.goto(address);
  await page.locator('session-tasks button').waitFor();
  if (open) {
    await page.locator('session-tasks button').click();
    await page.locator('session-tasks li').first().waitFor();
  }
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  await pause(WARM_UP);
  const pid = await processOf(page);
  const memory = [await collected(devtools)];
  const stretches = [];
  for (const half of ['first', 'second']) {
    say(`  the ${half} ${minutes * 30} s: heap ${memory.at(-1).heap.toFixed(2)} MB, load of the machine ${loadavg()[0].toFixed(2)}`);
    stretches.push(await stretch(page, pid, devtools, work, minutes * 30_000));
    memory.push(await collected(devtools));
  }
  await page.close();
  const mean = (name) => (stretches[0][name] + stretches[1][name]) / 2;
  return {
    memory,
    ...Object.fromEntries(['script', 'layout', 'thread', 'made', 'told'].map((name) => [name, mean(name)])),
    gap: Math.max(...stretches.map(({ gap }) => gap)),
    long: stretches.flatMap(({ long }) => long),
  };
}

/** From the first byte of the stream to the first paint of the control, ms. */
async function firstPaint(address) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Network.enable');
  await devtools.send('Performance.enable');
  const answered = new Promise((resolve) => {
    devtools.on('Network.responseReceived', ({ type, response }) => type === 'EventSource' && resolve(response.timing));
  });
  await page.goto(address);
  const painted = await page.evaluate(() => new Promise((resolve) => {
    new PerformanceObserver((list) => {
      for (const { name, startTime } of list.getEntries()) if (name === 'first-contentful-paint') resolve(startTime);
    }).observe({ type: 'paint', buffered: true });
  }));
  const { requestTime, receiveHeadersStart } = await answered;
  const { NavigationStart } = await metricsOf(devtools);
  await page.close();
  return (NavigationStart - requestTime) * 1_000 + painted - receiveHeadersStart;
}

async function firstPaints(address) {
  const all = [];
  for (let load = 0; load < PAINTS; load += 1) all.push(await firstPaint(address));
  return median(all);
}

/** What of it is over a bar, in words. */
function missed({ script, layout, long, memory: [, middle, end], made, told }) {
  return [
    !(script + layout <= CPU_BAR) && `script, style and layout take ${(script + layout).toFixed(1)} % of a core`,
    ...long.filter(({ cpu }) => !(cpu < FRAME_BAR))
      .map(({ duration, cpu }) => `a frame took ${duration.toFixed(0)} ms, with up to ${cpu.toFixed(0)} ms of CPU time`),
    !(end.heap <= middle.heap * GROWTH_BAR) && `the heap grew from ${middle.heap} MB to ${end.heap} MB`,
    !(told >= made * TOLD_BAR) && `the page was told ${told.toFixed(0)} changes a second of ${made.toFixed(0)}`,
  ].filter(Boolean);
}

const table = [
  '| load, list | changes/s made, told | script | style, layout | main thread | longest gap | long frames | heap, MB | nodes | first paint |',
  '|---|---|---|---|---|---|---|---|---|---|',
];
for (const { name, list, rate, ...size } of cases) {
  say(name);
  const gateway = await startGateway({ flags: ['--allow-origin', site.base, '--max-settled-tasks', String(size.settled)] });
  const address = site.page('<session-tasks session="demo"></session-tasks>', {
    script: `${gateway.base}/widget/session-tasks.js`,
    policy: `default-src 'self'; script-src 'self' ${gateway.base}; connect-src ${gateway.base}`,
  });
  const work = new Work(gateway);
  let paint, measured;
  try {
    await work.fill(size);
    paint = await firstPaints(address);
    // The pace ends by `stop`, or by what went wrong.
    measured = await Promise.race([cost(address, work, list === 'open'), work.pace(rate)]);
  } finally {
    work.stop();
    await gateway.stop();
  }
  const { script, layout, thread, made, told, gap, long, memory } = measured;
  const percent = (number) => `${number.toFixed(1)} %`;
  const columns = [
    name, `${made.toFixed(0)}, ${told.toFixed(0)}`, percent(script), percent(layout), percent(thread), `${gap.toFixed(0)} ms`,
    long.length === 0 ? '0' : `${long.length}, CPU at most ${Math.max(...long.map(({ cpu }) => cpu)).toFixed(0)} ms`, memory.map(({ heap }) => heap.toFixed(2)).join(', '), memory.map(({ nodes }) => nodes).join(', '), `${paint.toFixed(0)} ms`,
  ];
  table.push(`| ${columns.join(' | ')} |`);
  for (const text of missed(measured)) {
    say(`MISSED: ${text}`);
    process.exitCode = 1;
  }
}
console.log(table.join('\n'));
await browser.close();
await site.stop();
