/** The stream's life in a page: one for each session, never two, and none that nobody looks at. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { becomes, cells, control, openContext, openList, openPage, pause, setHidden } from './support/browser.mjs';
import { startGateway } from './support/gateway.mjs';
import { startNginx } from './support/nginx.mjs';
import { startRelay } from './support/relay.mjs';
import { startSite } from './support/site.mjs';

// The site serves the modules, so that every connection to the gateway is a stream.
let site;
before(async () => (site = await startSite()));
after(() => site.stop());

async function gatewayOf(t) {
  const gateway = await startGateway({ flags: ['--allow-origin', site.base] });
  t.after(() => gateway.stop());
  return gateway;
}

const page = (body) => site.page(body, { policy: "default-src 'self'; connect-src http://127.0.0.1:*" });
const pageOf = (base, session = 'demo') => page(`<session-tasks session="${session}" src="${base}"></session-tasks>`);

test('offline and online twenty times leaves one subscriber and the newest list', async (t) => {
  const gateway = await gatewayOf(t);
  const relay = await startRelay(gateway.port);
  t.after(() => relay.stop());
  await gateway.run('demo', 'sleep 600', { label: 'old' });
  const tab = await openPage(t, pageOf(relay.base));
  await openList(tab);
  for (let flip = 0; flip < 20; flip += 1) {
    await tab.context().setOffline(true);
    relay.cut();
    await pause(40);
    await tab.context().setOffline(false);
    await pause(flip % 5 === 0 ? 1_200 : 40);
  }
  await gateway.dispose('demo');
  await gateway.run('demo', 'sleep 600', { label: 'new' });
  await becomes('the list', () => cells(tab, 'label'), ['new']);
  await becomes('subscribers', () => gateway.connections(), 1);
  // Longer than the longest pause before the browser reconnects by itself.
  await pause(3_500);
  assert.equal(await gateway.connections(), 1);
  assert.ok(relay.accepted > 2, 'it did reconnect');
});

test('what vanished while the line was down is not shown as there', async (t) => {
  const gateway = await gatewayOf(t);
  const relay = await startRelay(gateway.port);
  t.after(() => relay.stop());
  await gateway.run('demo', 'sleep 600');
  const tab = await openPage(t, pageOf(relay.base));
  await openList(tab);
  await tab.context().setOffline(true);
  relay.cut();
  await gateway.dispose('demo');
  assert.equal(await control(tab).innerText(), '1 background task running', 'the last known list stays meanwhile');
  await tab.context().setOffline(false);
  await control(tab).waitFor({ state: 'detached' });
});

test('the gateway gone for 10 s behind nginx, which says 502, and back', async (t) => {
  let gateway = await gatewayOf(t);
  const { port } = gateway;
  const nginx = await startNginx(port);
  t.after(() => nginx.stop());
  await gateway.run('demo', 'sleep 600', { label: 'before' });
  const tab = await openPage(t, `${nginx.base}/?session=demo`);
  const answers = [];
  tab.on('response', (response) => response.url().includes('heartbeat=event') && answers.push(response.status()));
  await openList(tab);
  await gateway.stop();
  await pause(10_000);
  assert.ok(answers.filter((status) => status === 502).length > 1, `it met the 502 and tried again: ${answers}`);
  assert.deepEqual(await cells(tab, 'label'), ['before'], 'the rows stay meanwhile');
  gateway = await startGateway({ port });
  t.after(() => gateway.stop());
  await gateway.run('demo', 'sleep 600', { label: 'after' });
  await becomes('the list', () => cells(tab, 'label'), ['after']);
  assert.equal(await control(tab).getAttribute('aria-expanded'), 'true', 'it stayed open');
  // nginx keeps no connection to the gateway beyond its answer: these are the widget's and the raw view's.
  await becomes('streams', () => gateway.connections(), 2);
});

test('a page kept for going back to holds no stream, and has the newest list when it is back', async (t) => {
  const gateway = await gatewayOf(t);
  await gateway.run('demo', 'sleep 600');
  const tab = await openPage(t, pageOf(gateway.base));
  await control(tab).waitFor();
  await tab.evaluate(() => {
    window.mark = 'the same document';
    addEventListener('pageshow', (event) => (window.persisted = event.persisted));
  });
  await tab.goto(page('<p>elsewhere</p>'));
  await becomes('subscribers', () => gateway.connections(), 0);
  await gateway.run('demo', 'sleep 600');
  await tab.goBack({ waitUntil: 'commit' });
  await becomes('the text', () => control(tab).innerText(), '2 background tasks running');
  assert.deepEqual(await tab.evaluate(() => [window.mark, window.persisted]), ['the same document', true]);
  assert.equal(await gateway.connections(), 1);

  await tab.goto(page('<p>elsewhere</p>'));
  await becomes('subscribers', () => gateway.connections(), 0);
  await gateway.dispose('demo');
  await tab.goBack({ waitUntil: 'commit' });
  await control(tab).waitFor({ state: 'detached' });
  assert.equal(await tab.evaluate(() => window.mark), 'the same document');
});

test('seven tabs: the one looked at is live, since hidden ones let go', async (t) => {
  const gateway = await gatewayOf(t);
  await gateway.run('demo', 'sleep 600');
  const context = await openContext(t);
  const tabs = [];
  for (let number = 0; number < 7; number += 1) {
    // A person who opens a tab hides the one before.
    if (tabs.length > 0) await setHidden(tabs.at(-1), true);
    const tab = await openPage(t, pageOf(gateway.base), { context });
    await control(tab).waitFor();
    tabs.push(tab);
  }
  await becomes('subscribers', () => gateway.connections(), 1);
  await gateway.run('demo', 'sleep 600');
  await becomes('the seventh is live', () => control(tabs[6]).innerText(), '2 background tasks running');
  assert.equal(await control(tabs[0]).innerText(), '1 background task running', 'a hidden one keeps its rows');
  await setHidden(tabs[6], true);
  await setHidden(tabs[0], false);
  await becomes('the first again', () => control(tabs[0]).innerText(), '2 background tasks running');
  await becomes('subscribers', () => gateway.connections(), 1);
});

test('a glance at another tab costs no reconnect', async (t) => {
  const gateway = await gatewayOf(t);
  const relay = await startRelay(gateway.port);
  t.after(() => relay.stop());
  await gateway.run('demo', 'sleep 600');
  const tab = await openPage(t, pageOf(relay.base));
  await control(tab).waitFor();
  await setHidden(tab, true);
  await pause(500);
  await setHidden(tab, false);
  await gateway.run('demo', 'sleep 600');
  await becomes('the text', () => control(tab).innerText(), '2 background tasks running');
  assert.equal(relay.accepted, 1);
});

test('two elements of one session share a stream, which ends with the last of them', async (t) => {
  const gateway = await gatewayOf(t);
  await gateway.run('demo', 'sleep 600');
  const element = `<session-tasks session="demo" src="${gateway.base}"></session-tasks>`;
  const tab = await openPage(t, page(`${element}${element}<div id="place"></div>`));
  const texts = () => tab.locator('session-tasks button').allInnerTexts();
  await becomes('both show it', texts, ['1 background task running', '1 background task running']);
  assert.equal(await gateway.connections(), 1);

  await tab.evaluate(() => document.querySelector('#place').append(document.querySelector('session-tasks')));
  await tab.evaluate(() => document.querySelector('session-tasks').remove());
  await pause(200);
  assert.equal(await gateway.connections(), 1, 'one was moved, the other removed');

  const last = await tab.evaluateHandle(() => {
    const element = document.querySelector('session-tasks');
    element.remove();
    return element;
  });
  await becomes('subscribers', () => gateway.connections(), 0);
  assert.equal(await last.evaluate((element) => element.tasks.length), 0);
  await last.evaluate((element) => document.body.append(element));
  await becomes('subscribers', () => gateway.connections(), 1);
  await control(tab).waitFor();
});

test('session and src may change while it runs', async (t) => {
  const [one, other] = await Promise.all([gatewayOf(t), gatewayOf(t)]);
  await one.run('a', 'sleep 600', { label: 'a of one' });
  await one.run('b', 'sleep 600', { label: 'b of one' });
  await other.run('b', 'sleep 600', { label: 'b of the other' });
  const tab = await openPage(t, pageOf(one.base, 'a'));
  const labels = () => tab.evaluate(() => document.querySelector('session-tasks').tasks.map((task) => task.label));
  await becomes('the list', labels, ['a of one']);
  const set = (name, value) => tab.evaluate(([name, value]) => {
    const element = document.querySelector('session-tasks');
    if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }, [name, value]);
  await set('session', 'b');
  await becomes('the list', labels, ['b of one']);
  await becomes('subscribers', () => one.connections(), 1);
  await set('src', `${other.base}/`);
  await becomes('the list', labels, ['b of the other']);
  await becomes('subscribers', async () => [await one.connections(), await other.connections()], [0, 1]);
  await set('session', null);
  await control(tab).waitFor({ state: 'detached' });
  await becomes('subscribers', () => other.connections(), 0);
});
