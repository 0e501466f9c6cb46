/** What the open list says, in which order, and that it keeps still under the reader's eye. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { becomes, cells, control, drawn, openList, openPage, popover, rows } from './support/browser.mjs';
import { startGateway } from './support/gateway.mjs';
import { startSite } from './support/site.mjs';

let gateway, site;
before(async () => [gateway, site] = await Promise.all([startGateway({ flags: ['--allow-origin', '*'] }), startSite()]));
after(() => Promise.all([gateway.stop(), site.stop()]));

/** A page of the site that shows a session of the gateway. */
const pageOf = (session, options) => site.page(`<session-tasks session="${session}" src="${gateway.base}"></session-tasks>`,
  { policy: `default-src 'self'; connect-src 'self' ${gateway.base}`, ...options });

test('live tasks come first, the longest running on top; then ended ones, the latest on top', async (t) => {
  const first = await gateway.run('order', 'sleep 601');
  for (const code of [1, 2]) await gateway.ended('order', await gateway.run('order', `exit ${code}`));
  await gateway.run('order', 'sleep 602');
  const page = await openPage(t, pageOf('order'));
  await openList(page);
  assert.deepEqual(await cells(page, 'label'), ['sleep 601', 'sleep 602', 'exit 2', 'exit 1']);
  await gateway.kill('order', first);
  await becomes('the order', () => cells(page, 'label'), ['sleep 602', 'sleep 601', 'exit 2', 'exit 1']);
});

for (const [words, offset] of [['an hour ahead', 3_600_000], ['an hour behind', -3_600_000]]) {
  test(`durations are right in a browser whose clock is ${words}`, async (t) => {
    const session = `clock ${words}`;
    const id = await gateway.run(session, 'sleep 600');
    const initScript = `{ const now = Date.now; Date.now = () => now() + ${offset}; }`;
    const page = await openPage(t, pageOf(session), { initScript });
    await openList(page);
    const seconds = async () => Number(/^(\d+)s$/.exec((await cells(page, 'duration'))[0])?.[1]);
    const first = await seconds();
    assert.ok(first >= 0 && first < 30, `${first} s`);
    assert.match(await rows(page).locator('[part="duration"]').getAttribute('title'), /^Running for \d+s$/);
    await becomes('it ticks', async () => (await seconds()) > first, true);
    await gateway.kill(session, id);
    await becomes('it ends', async () => (await rows(page).locator('[part="duration"]').getAttribute('title')).replace(/\d+/, 'N'), 'Took Ns');
    const took = await seconds();
    assert.ok(took >= first && took < 60, `${took} s`);
  });
}

test('a label with markup in it is text, on the page as in the list', async (t) => {
  const label = '<img src=x onerror=alert(1)>';
  await gateway.run('markup', 'sleep 600', { label });
  for (const url of [pageOf('markup'), `${gateway.base}/?session=markup`]) {
    const page = await openPage(t, url);
    await openList(page);
    assert.deepEqual(await cells(page, 'label'), [label]);
    assert.equal(await page.locator('img[src="x"]').count(), 0);
    await drawn(page);
  }
});

test('a label cannot pass for another by turning its direction', async (t) => {
  await gateway.run('bidi', 'sleep 600', { label: 'echo \u202eevil' });
  const page = await openPage(t, pageOf('bidi'));
  await openList(page);
  assert.deepEqual(await cells(page, 'label'), ['echo \\u{202e}evil']);
  assert.equal(await page.evaluate(() => document.querySelector('session-tasks').tasks[0].label), 'echo \u202eevil');
});

test('a label of 4,000 characters is one line until the keyboard comes to it, then whole', async (t) => {
  const label = `echo ${'abcdefghi '.repeat(399)}the end`;
  await gateway.run('long', 'sleep 600');
  await gateway.run('long', 'sleep 600', { label });
  await gateway.run('long', 'sleep 600');
  const page = await openPage(t, pageOf('long'));
  await control(page).focus();
  await page.keyboard.press('Enter');
  await rows(page).first().waitFor();
  const long = rows(page).nth(1);
  const height = async () => (await long.boundingBox()).height;
  const view = await popover(page).boundingBox();
  assert.equal(await rows(page).nth(1).locator('[part="label"]').getAttribute('title'), label);
  assert.ok((await height()) < 60);
  await page.keyboard.press('Tab');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  assert.ok((await height()) > view.height, 'it is whole, and taller than the list');
  assert.equal(await long.evaluate((row) => row.matches(':focus-visible')), true);
  assert.ok(Math.abs((await long.boundingBox()).y - view.y) < 8, 'it is read from its start');
  const end = async () => {
    const box = await long.boundingBox();
    return box.y + box.height <= view.y + view.height + 1;
  };
  await becomes('the arrow key scrolls to its end', async () => {
    if (!(await end())) await page.keyboard.press('ArrowDown');
    return end();
  }, true);
  await page.keyboard.press('ArrowDown');
  assert.equal(await rows(page).nth(2).evaluate((row) => row.matches(':focus-visible')), true);
  assert.ok((await height()) < 60, 'one line again');

  await long.locator('[part="label"]').click();
  assert.ok((await height()) > view.height, 'a press shows it whole as well');
});

test('a row keeps focus, selection and scroll while the list changes under it', async (t) => {
  const ids = [];
  for (let count = 0; count < 14; count += 1) ids.push(await gateway.run('still', 'sleep 600', { label: `task number ${count}` }));
  const page = await openPage(t, pageOf('still'));
  await openList(page);

  const label = rows(page).nth(3).locator('[part="label"]');
  await label.evaluate((label) => {
    window.label = label;
    getSelection().setBaseAndExtent(label.firstChild, 0, label.firstChild, 11);
  });
  await gateway.kill('still', ids[3]);
  await becomes('the row went down', async () => (await cells(page, 'label')).indexOf('task number 3'), 13);
  assert.equal(await page.evaluate(() => getSelection().toString()), 'task number');
  assert.equal(await page.evaluate(() => window.label.textContent), 'task number 3');
  await page.evaluate(() => getSelection().removeAllRanges());

  await popover(page).evaluate((popover) => (popover.scrollTop = 150));
  await gateway.kill('still', ids[13]);
  await becomes('the change came', async () => (await cells(page, 'status')).filter((word) => word === 'running').length, 12);
  assert.equal(await popover(page).evaluate((popover) => popover.scrollTop), 150);

  const focused = rows(page).nth(1);
  await focused.evaluate((row) => row.focus());
  await gateway.kill('still', ids[1]);
  await becomes('the focused row settled', async () => (await cells(page, 'label')).indexOf('task number 1') > 10, true);
  const holder = await page.evaluate(() => document.querySelector('session-tasks').shadowRoot.activeElement.textContent);
  assert.match(holder, /task number 1signal/);
});

test('Chinese by the nearest lang, at run time too', async (t) => {
  await gateway.run('words', 'sleep 600');
  const page = await openPage(t, pageOf('words', { lang: 'zh-CN' }));
  await control(page).waitFor();
  assert.equal(await control(page).innerText(), '1 个后台任务运行中');
  await control(page).click();
  assert.deepEqual(await cells(page, 'status'), ['运行中']);
  await page.evaluate(() => (document.documentElement.lang = 'fr'));
  await becomes('English stands in', () => control(page).innerText(), '1 background task running');
});

test('110 tasks fit a small screen, in a list that scrolls and a page that does not', async (t) => {
  await Promise.all(Array.from({ length: 100 }, async () => gateway.ended('many', await gateway.run('many', 'true'))));
  for (let count = 0; count < 10; count += 1) await gateway.run('many', 'sleep 600');
  for (const viewport of [{ width: 360, height: 640 }, { width: 1280, height: 800 }, { width: 320, height: 300 }]) {
    const page = await openPage(t, pageOf('many'), { viewport });
    await openList(page);
    assert.equal(await rows(page).count(), 110);
    const box = await popover(page).boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= viewport.width, JSON.stringify(box));
    assert.ok(box.y >= 0 && box.y + box.height <= viewport.height, JSON.stringify(box));
    assert.ok(box.width <= Math.min(400, viewport.width - 32), JSON.stringify(box));
    assert.ok(box.height <= Math.min(420, viewport.height - 140) + 0.5, JSON.stringify(box));
    const scrolls = (element) => element.scrollHeight > element.clientHeight;
    assert.equal(await popover(page).evaluate(scrolls), true);
    assert.equal(await page.evaluate('document.documentElement.scrollWidth > innerWidth'), false);
  }
});
