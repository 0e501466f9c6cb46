/** The widget in somebody else's page: policies, origins, events. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { becomes, complaints, control, openList, openPage, rows } from './support/browser.mjs';
import { startGateway } from './support/gateway.mjs';
import { startSite } from './support/site.mjs';

let site, open, closed;
before(async () => {
  site = await startSite();
  [open, closed] = await Promise.all([startGateway({ flags: ['--allow-origin', site.base] }), startGateway()]);
});
after(() => Promise.all([site.stop(), open.stop(), closed.stop()]));

/** A page of the site whose one script tag and policy name a gateway. */
const pageOf = (gateway, session) => site.page(`<session-tasks session="${session}"></session-tasks>`, {
  script: `${gateway.base}/widget/session-tasks.js`,
  policy: `default-src 'self'; script-src 'self' ${gateway.base}; connect-src 'self' ${gateway.base}; require-trusted-types-for 'script'`,
});

test('one script tag of an allowing gateway is enough on a page of another origin', async (t) => {
  await open.run('cross', 'sleep 600');
  const page = await openPage(t, 'about:blank');
  const said = complaints(page);
  await page.goto(pageOf(open, 'cross'));
  await openList(page);
  assert.equal(await rows(page).count(), 1);
  assert.deepEqual(said, []);
});

test('a gateway that does not allow the page tells it nothing', async (t) => {
  await closed.run('cross', 'sleep 600');
  const page = await openPage(t, 'about:blank');
  const said = complaints(page);
  await page.goto(pageOf(closed, 'cross'));
  await becomes('the browser says why', () => said.some((text) => text.includes('Access-Control-Allow-Origin')), true);
  assert.equal(await control(page).count(), 0);
});

test("a page with the policy default-src 'self' shows it without a complaint", async (t) => {
  const page = await openPage(t, 'about:blank');
  const said = complaints(page);
  site.list = [task('bash-1')];
  await page.goto(site.page('<session-tasks session="demo"></session-tasks>', { policy: "default-src 'self'" }));
  await openList(page);
  assert.equal(await rows(page).evaluateAll(([row]) => getComputedStyle(row).display), 'grid', 'its style sheet applies');
  assert.deepEqual(said, []);
});

test('a script of an allowed page reads the stream from where it was, and reads what is wrong', async (t) => {
  await open.run('fetch', 'sleep 600');
  const page = await openPage(t, pageOf(open, 'fetch'));
  const read = (path) => page.evaluate(async (url) => {
    const answer = await fetch(url, { headers: { 'last-event-id': '1' } });
    const { value } = await answer.body.getReader().read();
    return [answer.status, new TextDecoder().decode(value)];
  }, open.base + path);
  const [status, text] = await read('/sessions/fetch/tasks');
  assert.equal(status, 200);
  assert.match(text, /data: \[\{"id":/);
  const [refused, problem] = await read('/sessions/%00/tasks');
  assert.equal(refused, 400);
  assert.match(JSON.parse(problem).title, /session id/);
});

test('taskschange tells of each new list, and tasks is that list, frozen', async (t) => {
  const page = await openPage(t, pageOf(open, 'events'));
  await page.evaluate(() => {
    window.told = [];
    document.addEventListener('taskschange', (event) => window.told.push([
      event.target.localName, event.detail.tasks.map((task) => task.status), event.detail.tasks === event.target.tasks,
      Object.isFrozen(event.detail.tasks) && event.detail.tasks.every(Object.isFrozen),
    ]));
  });
  const told = () => page.evaluate(() => window.told);
  const event = (...statuses) => ['session-tasks', statuses, true, true];
  const id = await open.run('events', 'sleep 600');
  await becomes('a start', told, [event('running')]);
  await open.kill('events', id);
  await becomes('an end', async () => (await told()).at(-1), event('killed'));
  await open.dispose('events');
  await becomes('nothing left', async () => (await told()).at(-1), event());
});

test('frames that are not lists of tasks are ignored with one warning', async (t) => {
  const page = await openPage(t, 'about:blank');
  const said = complaints(page);
  site.list = [task('bash-1')];
  await page.goto(site.page('<session-tasks session="demo"></session-tasks>'));
  await openList(page);
  const { status, ...lacking } = task('bash-2');
  for (const bad of ['{oops', '{}', JSON.stringify([lacking]), JSON.stringify([{ ...task('bash-2'), startedAt: 'now' }])]) {
    site.say(`data: ${bad}\n\n`);
  }
  site.send([task('bash-1'), task('bash-3')]);
  await becomes('a good one is heeded', () => rows(page).count(), 2);
  site.say('data: also bad\n\n');
  site.send([task('bash-1')]);
  await becomes('and the next', () => rows(page).count(), 1);
  assert.equal(said.length, 1, said.join('\n'));
  assert.match(said[0], /ignored a frame/);
});

function task(id) {
  return { id, kind: 'bash', label: `label of ${id}`, status: 'running', startedAt: Date.now() };
}
