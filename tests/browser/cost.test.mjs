/** What a busy session costs a page: a render a frame at most, and nothing left over. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { becomes, control, drawn, openList, openPage, pause, rows } from './support/browser.mjs';
import { startSite } from './support/site.mjs';

let site;
before(async () => (site = await startSite()));
after(() => site.stop());

const task = (id, more = {}) => ({ id: `bash-${id}`, kind: 'bash', label: `task ${id}`, status: 'running', startedAt: Date.now(), ...more });
const ended = (id) => task(id, { status: 'completed', finishedAt: Date.now() });

/** Counts the renders of each animation frame that has any, and timers that repeat. */
const COUNTERS = `
  window.renders = new Map();
  const { requestAnimationFrame: request, setInterval: set, clearInterval: clear } = window;
  // Asked for when a frame begins, so that it is the first of the next: not its time, which two may share.
  let frame = 0;
  const begin = () => { frame += 1; request(begin); };
  request(begin);
  window.requestAnimationFrame = (callback) => request((time) => {
    renders.set(frame, (renders.get(frame) ?? 0) + 1);
    callback(time);
  });
  window.repeating = new Set();
  window.setInterval = (...all) => { const id = set(...all); repeating.add(id); return id; };
  window.clearInterval = (id) => { repeating.delete(id); clear(id); };
`;

test('200 changes a second cost one render a frame', async (t) => {
  site.list = [task(1)];
  const page = await openPage(t, site.page('<session-tasks session="demo"></session-tasks>'), { initScript: COUNTERS });
  await openList(page);
  await page.evaluate(() => {
    window.changes = 0;
    window.renders.clear();
    document.addEventListener('taskschange', () => (window.changes += 1));
  });
  const started = Date.now();
  for (let change = 1; change <= 600; change += 1) {
    const late = started + change * 5 - Date.now();
    if (late > 0) await pause(late);
    site.send([task(1, { label: `change ${change}` }), change % 2 === 0 ? task(2) : ended(2)]);
  }
  await becomes('all came', () => page.evaluate(() => window.changes), 600);
  await becomes('the last one shows', async () => (await rows(page).first().textContent()).includes('change 600'), true);
  const counts = await page.evaluate(() => [...window.renders.values()]);
  assert.equal(Math.max(...counts), 1);
  assert.ok(counts.length < 600, `${counts.length} renders for 600 changes`);
});

test('a change of one task in a list of 110 touches its row and no other', async (t) => {
  // One live task: the clock moves no other row's duration.
  const rest = Array.from({ length: 109 }, (_, at) => ended(at + 2));
  site.list = [task(1), ...rest];
  const page = await openPage(t, site.page('<session-tasks session="demo"></session-tasks>'));
  await openList(page);
  await drawn(page);
  await page.evaluate(() => {
    const root = document.querySelector('session-tasks').shadowRoot;
    /** What was changed since it was emptied: a row's or another part, and how. */
    window.touched = [];
    const observer = new MutationObserver((records) => {
      for (const { type, target, attributeName } of records) {
        const place = target instanceof Element ? target : target.parentElement;
        const row = place.closest('.task')?.querySelector('.label').textContent;
        window.touched.push([row, place.className, attributeName ?? type].filter(Boolean).join(' '));
      }
    });
    observer.observe(root, { subtree: true, childList: true, characterData: true, attributes: true });
  });
  /** What a list touches, but for durations, which the clock moves as well. */
  const touches = async (list) => {
    await page.evaluate(() => {
      window.touched = [];
      window.told = new Promise((resolve) => document.addEventListener('taskschange', () => resolve(), { once: true }));
    });
    site.send(list);
    await page.evaluate(() => window.told);
    await drawn(page);
    return (await page.evaluate(() => window.touched)).filter((place) => !place.includes(' duration ')).sort();
  };

  await touches([task(1, { detail: 'step 1' }), ...rest]);
  const next = [task(1, { detail: 'step 2' }), ...rest];
  assert.deepEqual(await touches(next), ['task 1 status characterData', 'task 1 status title']);
  assert.deepEqual(await touches([...next, task(200)]), ['list childList', 'summary characterData'], 'a start is one more row');
});

test('an hour of changes, in short, leaves no node, listener or timer over', async (t) => {
  site.list = [task(1)];
  const page = await openPage(t, site.page('<div id="place"><session-tasks session="demo"></session-tasks></div>'), { initScript: COUNTERS });
  await control(page).waitFor();
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable');
  const left = async () => {
    await drawn(page);
    await devtools.send('HeapProfiler.collectGarbage');
    const { metrics } = await devtools.send('Performance.getMetrics');
    const value = (name) => metrics.find((metric) => metric.name === name).value;
    return { nodes: value('Nodes'), listeners: value('JSEventListeners'), timers: await page.evaluate(() => window.repeating.size) };
  };
  let id = 1;
  /** What happens in a page: tasks come and go, the list is opened and closed, the element leaves and returns. */
  const someTime = async () => {
    for (let round = 0; round < 40; round += 1) {
      for (let change = 0; change < 20; change += 1) {
        id += 1;
        site.send([task(1), task(id), ended(id - 1), ended(id + 100_000)]);
      }
      if (round % 4 === 0) await control(page).click();
      if (round % 10 === 5) {
        site.send([]);
        await control(page).waitFor({ state: 'detached' });
        site.send([task(1)]);
        await control(page).waitFor();
      }
      if (round % 10 === 9) {
        await page.evaluate(() => {
          const element = document.querySelector('session-tasks');
          element.remove();
          document.querySelector('#place').append(element);
        });
      }
      await drawn(page);
    }
    if ((await control(page).getAttribute('aria-expanded')) === 'true') await control(page).click();
    site.send([task(1)]);
    await becomes('the end', () => page.evaluate(() => document.querySelector('session-tasks').tasks.length), 1);
  };
  await someTime();
  const first = await left();
  await someTime();
  await someTime();
  const last = await left();
  assert.equal(last.timers, 0);
  assert.ok(last.nodes <= first.nodes + 20, `${first.nodes} nodes, then ${last.nodes}`);
  assert.ok(last.listeners <= first.listeners + 2, `${first.listeners} listeners, then ${last.listeners}`);
  assert.equal(site.streams, 1);

  await page.evaluate(() => document.querySelector('session-tasks').remove());
  await becomes('its stream ended', async () => site.streams, 0);
});

test('the clock ticks only while the list is open and something is live', async (t) => {
  site.list = [task(1)];
  const page = await openPage(t, site.page('<session-tasks session="demo"></session-tasks>'), { initScript: COUNTERS });
  const timers = () => page.evaluate(() => window.repeating.size);
  await control(page).waitFor();
  assert.equal(await timers(), 0);
  await openList(page);
  assert.equal(await timers(), 1);
  site.send([ended(1)]);
  await becomes('nothing live', timers, 0);
  site.send([task(2)]);
  await becomes('live again', timers, 1);
  await control(page).click();
  assert.equal(await timers(), 0);
});
