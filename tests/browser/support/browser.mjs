/** Chromium, and the widget as a person or a script finds it in a page. */

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { launch, pause } from './launch.mjs';

export { pause };

/** The longest that any one thing may take, ms: far more than it needs, and an end to a hang. */
const PATIENCE = 30_000;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A browser profile of its own, for pages that belong together; closed with the test. */
export async function openContext(t, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(PATIENCE);
  t.after(() => context.close());
  return context;
}

/** A page, in a profile of its own unless one is given. An error or dialog in it fails the test. */
export async function openPage(t, url, { context, initScript, ...options } = {}) {
  const page = await (context ?? (await openContext(t, options))).newPage();
  const faults = [];
  page.on('pageerror', (error) => faults.push(error));
  page.on('dialog', (dialog) => {
    faults.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  t.after(() => assert.deepEqual(faults, []));
  if (initScript) await page.addInitScript(initScript);
  await page.goto(url);
  return page;
}

/** Console warnings and errors of a page, as they come. */
export function complaints(page) {
  const texts = [];
  page.on('console', (message) => ['warning', 'error'].includes(message.type()) && texts.push(message.text()));
  return texts;
}

/** The header's button. */
export const control = (page) => page.locator('session-tasks').first().locator('button');
export const popover = (page) => page.locator('session-tasks').first().locator('[popover]');
export const rows = (page) => page.locator('session-tasks').first().getByRole('listitem');
/** One cell of each row. */
export const cells = (page, part) => page.locator('session-tasks').first().locator(`[part="${part}"]`).allTextContents();

export async function openList(page) {
  await control(page).click();
  await rows(page).first().waitFor();
}

/** What has the focus: the element's id or name, and the same inside a shadow root. */
export function focus(page) {
  return page.evaluate(() => {
    const name = (element) => element && (element.id || element.localName);
    const { activeElement } = document;
    return [name(activeElement), name(activeElement?.shadowRoot?.activeElement)].filter(Boolean).join(' ');
  });
}

/** Two frames later: what a change asked for has been drawn. */
export function drawn(page) {
  return page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
}

/** Says to a page that it is hidden, or seen again. A headless browser shows every tab, so this is played. */
export function setHidden(page, hidden) {
  return page.evaluate((hidden) => {
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => (hidden ? 'hidden' : 'visible') });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
}

/** Asks again and again until the answer is `expected`. */
export async function becomes(what, ask, expected) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const answer = await ask();
    try {
      assert.deepEqual(answer, expected, what);
      return;
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
    await pause(20);
  }
}
