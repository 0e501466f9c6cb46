/** The main job: background work shows in the page's header, live, from its start to its end. */

import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { becomes, cells, control, openList, openPage, popover, rows } from './support/browser.mjs';
import { startGateway } from './support/gateway.mjs';

let gateway;
before(async () => (gateway = await startGateway({ flags: ['--grace', '60s'] })));
after(() => gateway.stop());

const pageOf = (session) => `${gateway.base}/?session=${encodeURIComponent(session)}`;

test('a background command appears in the header with no user action', async (t) => {
  const page = await openPage(t, pageOf('appears'));
  assert.equal(await control(page).count(), 0);
  assert.equal(await page.locator('session-tasks').isVisible(), false);
  await gateway.run('appears', 'sleep 600');
  await control(page).waitFor();
  assert.equal(await control(page).innerText(), '1 background task running');
  await gateway.run('appears', 'sleep 600');
  await becomes('the text', () => control(page).innerText(), '2 background tasks running');
});

test('a kill through the control API flips the open list to its signal', async (t) => {
  const page = await openPage(t, pageOf('kill'));
  const id = await gateway.run('kill', 'sleep 600');
  await openList(page);
  assert.deepEqual(await cells(page, 'status'), ['running']);
  assert.equal((await gateway.kill('kill', id)).status, 202);
  await becomes('the row', () => cells(page, 'status'), ['signal: SIGTERM']);
  assert.equal(await rows(page).locator('[part="icon"]').getAttribute('title'), 'cancelled');
  assert.equal(await popover(page).isVisible(), true);
  assert.equal(await control(page).innerText(), '1 background task');
});

test('each of the four commits shows: registered, stopping, settled, removed', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tasklight-'));
  t.after(() => rm(folder, { recursive: true }));
  const page = await openPage(t, pageOf('commits'));
  await page.evaluate(() => {
    window.lists = [];
    document.addEventListener('taskschange', ({ detail }) => window.lists.push(detail.tasks.map((task) => task.status).join()));
  });

  const leave = path.join(folder, 'leave');
  const trap = `trap 'while [ ! -e ${leave} ]; do sleep 0.02; done; exit 0' TERM; while :; do sleep 0.02; done`;
  const id = await gateway.run('commits', trap, { label: 'make the release' });
  await openList(page);
  assert.deepEqual(await cells(page, 'label'), ['make the release']);
  assert.deepEqual(await cells(page, 'status'), ['running']);

  await gateway.kill('commits', id);
  await becomes('the row', () => cells(page, 'status'), ['stopping']);
  assert.equal(await control(page).innerText(), '1 background task running');

  await writeFile(leave, '');
  await becomes('the row', () => cells(page, 'status'), ['exit code: 0']);
  assert.equal(await control(page).innerText(), '1 background task');
  const settled = await gateway.ended('commits', id);
  assert.equal(settled.status, 'killed');
  assert.deepEqual(await page.evaluate(() => document.querySelector('session-tasks').tasks), [settled]);

  assert.equal((await gateway.dispose('commits')).status, 204);
  await control(page).waitFor({ state: 'detached' });
  assert.equal(await page.locator('session-tasks').isVisible(), false);
  assert.deepEqual(await page.evaluate(() => window.lists), ['running', 'stopping', 'killed', '']);
});

test('failures, completions and cancellations read as what they were', async (t) => {
  const page = await openPage(t, pageOf('ends'));
  for (const command of ['true', 'exit 3', 'kill -SEGV $$']) {
    await gateway.ended('ends', await gateway.run('ends', command));
  }
  await openList(page);
  await becomes('the rows', () => cells(page, 'status'), ['signal: SIGSEGV', 'exit code: 3', 'completed']);
  const icons = rows(page).locator('[part="icon"]');
  assert.deepEqual(await icons.evaluateAll((all) => all.map((icon) => icon.title)), ['failed', 'failed', 'completed']);
});
