/** The list by keyboard and pointer: opening, closing, and where the focus is at each step. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { becomes, cells, control, drawn, focus, openList, openPage, popover, rows } from './support/browser.mjs';
import { startGateway } from './support/gateway.mjs';
import { startSite } from './support/site.mjs';

let gateway, site;
before(async () => [gateway, site] = await Promise.all([startGateway({ flags: ['--allow-origin', '*'] }), startSite()]));
after(() => Promise.all([gateway.stop(), site.stop()]));

const pageOf = (session) => site.page(
  `<button id="before">before</button><session-tasks session="${session}" src="${gateway.base}"></session-tasks>
   <button id="after">after</button><p id="text">text</p>`,
  { policy: `default-src 'self'; connect-src 'self' ${gateway.base}` },
);
const expanded = (page) => control(page).getAttribute('aria-expanded');

test('the keyboard opens the list, walks through it, and Escape gives the focus back', async (t) => {
  for (const label of ['first', 'second']) await gateway.run('keys', 'sleep 600', { label });
  const page = await openPage(t, pageOf('keys'));
  await control(page).waitFor();
  await page.locator('#before').focus();
  await page.keyboard.press('Tab');
  assert.equal(await focus(page), 'session-tasks button');
  assert.equal(await expanded(page), 'false');
  await page.keyboard.press('Space');
  assert.equal(await expanded(page), 'true');
  await page.keyboard.press('Tab');
  assert.equal(await focus(page), 'session-tasks popover');
  const current = () => page.evaluate(() => document.querySelector('session-tasks').shadowRoot.activeElement.textContent);
  for (const [key, text] of [['ArrowDown', /first/], ['ArrowDown', /second/], ['ArrowDown', /second/], ['ArrowUp', /first/]]) {
    await page.keyboard.press(key);
    assert.match(await current(), text);
  }
  await page.keyboard.press('Escape');
  assert.equal(await expanded(page), 'false');
  assert.equal(await popover(page).isVisible(), false);
  assert.equal(await focus(page), 'session-tasks button');
  await page.keyboard.press('Tab');
  assert.equal(await focus(page), 'after');
});

test('Escape elsewhere is not for the list, and Escape in it is for nothing else', async (t) => {
  await gateway.run('escape', 'sleep 600');
  const page = await openPage(t, pageOf('escape'));
  await page.evaluate(() => {
    window.escapes = 0;
    document.addEventListener('keydown', (event) => event.key === 'Escape' && (window.escapes += 1));
  });
  await openList(page);
  await page.locator('#before').focus();
  await page.keyboard.press('Escape');
  assert.equal(await expanded(page), 'true');
  await control(page).focus();
  await page.keyboard.press('Escape');
  assert.equal(await expanded(page), 'false');
  assert.equal(await page.evaluate(() => window.escapes), 1);
});

test('a press outside closes the list, a press inside does not', async (t) => {
  await gateway.run('press', 'sleep 600');
  const page = await openPage(t, pageOf('press'));
  await openList(page);
  await rows(page).first().click();
  assert.equal(await expanded(page), 'true');
  await page.locator('#text').click();
  assert.equal(await expanded(page), 'false');
  await control(page).click();
  assert.equal(await expanded(page), 'true');
  await control(page).click();
  assert.equal(await expanded(page), 'false');
});

test('when the last task goes, the focus rests where it was and a new task takes it back', async (t) => {
  await gateway.run('rest', 'true');
  const page = await openPage(t, pageOf('rest'));
  await openList(page);
  await page.keyboard.press('Tab');
  await page.keyboard.press('ArrowDown');
  await gateway.dispose('rest');
  await control(page).waitFor({ state: 'detached' });
  const resting = () => page.evaluate(() => document.querySelector('session-tasks').shadowRoot.activeElement?.textContent);
  assert.equal(await resting(), 'No background tasks');
  await gateway.run('rest', 'true');
  await control(page).waitFor();
  await drawn(page);
  assert.equal(await focus(page), 'session-tasks button');
  assert.equal(await expanded(page), 'false');
  await gateway.dispose('rest');
  await becomes('at rest again', resting, 'No background tasks');
  await page.keyboard.press('Tab');
  assert.equal(await focus(page), 'after');
  assert.equal(await page.evaluate(() => document.querySelector('session-tasks').shadowRoot.childNodes.length), 0);
});

test('a row that goes leaves the focus in the list', async (t) => {
  const limited = await startGateway({ flags: ['--allow-origin', '*', '--max-settled-tasks', '1'] });
  t.after(() => limited.stop());
  await limited.ended('gone', await limited.run('gone', 'true', { label: 'old' }));
  await limited.run('gone', 'sleep 600', { label: 'live' });
  const page = await openPage(t, site.page(`<session-tasks session="gone" src="${limited.base}"></session-tasks>`,
    { policy: `default-src 'self'; connect-src ${limited.base}` }));
  await openList(page);
  await rows(page).nth(1).evaluate((row) => row.focus());
  await limited.ended('gone', await limited.run('gone', 'true', { label: 'new' }));
  await becomes('the old one went', () => cells(page, 'label'), ['live', 'new']);
  assert.equal(await focus(page), 'session-tasks popover');
});
