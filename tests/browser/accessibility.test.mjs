/** Names, roles and values by the browser's own accessibility tree; contrast; motion; what is announced. */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { becomes, control, drawn, openList, openPage, pause, popover, rows } from './support/browser.mjs';
import { contrasts } from './support/contrast.mjs';
import { startGateway } from './support/gateway.mjs';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let gateway;
before(async () => {
  gateway = await startGateway({ flags: ['--grace', '60s'] });
  await gateway.run('all', 'sleep 600', { label: 'cargo build --release' });
  const stopping = await gateway.run('all', "trap '' TERM; while :; do sleep 0.1; done", { label: 'npm run dev' });
  const killed = await gateway.run('all', 'sleep 600', { label: 'python train.py' });
  await gateway.kill('all', killed);
  await gateway.kill('all', stopping);
  for (const command of ['exit 101', 'true']) await gateway.ended('all', await gateway.run('all', command));
  await gateway.ended('all', killed);
});
after(() => gateway.stop());

const pageOf = (session) => `${gateway.base}/?session=${session}`;

for (const colorScheme of ['light', 'dark']) {
  test(`axe finds nothing in the ${colorScheme} page, closed or open`, async (t) => {
    const page = await openPage(t, pageOf('all'), { colorScheme, reducedMotion: 'reduce', bypassCSP: true });
    await control(page).waitFor();
    await page.evaluate(AXE);
    const scan = () => page.evaluate(async () => {
      const { violations, incomplete, passes } = await window.axe.run(document);
      const told = (rule) => `${rule.id}: ${rule.nodes.map((node) => `${node.target} ${node.failureSummary}`).join('; ')}`;
      return { faults: violations.map(told), undecided: incomplete.map(({ id }) => id), passed: passes.length };
    });
    const check = ({ faults, undecided, passed }) => {
      assert.deepEqual(faults, []);
      // Colours under a popover are beyond it; they are measured below.
      assert.deepEqual(undecided.filter((id) => id !== 'color-contrast'), []);
      assert.ok(passed > 10);
    };
    check(await scan());
    await openList(page);
    check(await scan());
    const all = await page.locator('session-tasks').evaluate(contrasts);
    assert.ok(all.filter(({ text }) => text).length > 15, JSON.stringify(all));
    for (const { what, text, ratio } of all) assert.ok(ratio >= (text ? 4.5 : 3), `${what}: ${ratio}`);
    await popover(page).evaluate((popover) => (popover.scrollTop = popover.scrollHeight));
    check(await scan());
  });
}

test('the accessibility tree has a named button, a named group, and rows that say all', async (t) => {
  const page = await openPage(t, pageOf('all'));
  await control(page).waitFor();
  const devtools = await page.context().newCDPSession(page);
  const tree = async () => {
    const { nodes } = await devtools.send('Accessibility.getFullAXTree');
    return nodes.filter((node) => !node.ignored).map((node) => ({
      role: node.role?.value, name: node.name?.value, states: Object.fromEntries(node.properties.map(({ name, value }) => [name, value.value])),
    }));
  };
  const button = async () => (await tree()).find(({ name }) => name === '2 background tasks running');
  const closed = await button();
  assert.equal(closed.role, 'button');
  assert.equal(closed.states.expanded, false);
  assert.equal(closed.states.focusable, true);
  await openList(page);
  assert.equal((await button()).states.expanded, true);
  assert.ok((await tree()).some(({ role, name }) => role === 'group' && name === 'Background tasks'));

  const spoken = (await page.locator('session-tasks').ariaSnapshot()).replace(/\d+s/g, 'Ns');
  assert.deepEqual(spoken.split('\n').slice(0, 3), ['- button "2 background tasks running" [expanded]', '- group "Background tasks":', '  - list:']);
  for (const row of [
    'bash cargo build --release running Ns', 'bash npm run dev stopping Ns', 'bash python train.py', 'signal: SIGTERM Ns',
    'img "cancelled"', 'img "failed"', 'exit code: 101', 'bash true completed Ns',
  ]) assert.ok(spoken.includes(row), `${row} in\n${spoken}`);
});

test('the end of a task is announced, politely, once, and not what ended before', async (t) => {
  const page = await openPage(t, pageOf('spoken'));
  await gateway.ended('spoken', await gateway.run('spoken', 'true', { label: 'earlier' }));
  const first = await gateway.run('spoken', 'sleep 600', { label: 'make test' });
  await page.reload();
  await control(page).waitFor();
  const region = page.locator('session-tasks').getByRole('status');
  const said = () => region.textContent();
  await pause(1_300);
  assert.equal(await said(), '');
  await gateway.kill('spoken', first);
  await becomes('an end', said, 'make test: cancelled, signal: SIGTERM');

  const more = await Promise.all(['a', 'b', 'c'].map((label) => gateway.run('spoken', 'sleep 600', { label })));
  await Promise.all(more.map((id) => gateway.kill('spoken', id)));
  await becomes('several in one', said, '3 background tasks ended');

  await page.evaluate(() => document.querySelector('session-tasks').setAttribute('announce', 'off'));
  await gateway.ended('spoken', await gateway.run('spoken', 'true'));
  await becomes('it came', () => page.evaluate(() => document.querySelector('session-tasks').tasks.length), 6);
  await pause(1_300);
  assert.equal(await said(), '3 background tasks ended');
});

test('nothing moves for people who asked for less motion', async (t) => {
  for (const [reducedMotion, moves] of [['reduce', false], ['no-preference', true]]) {
    const page = await openPage(t, pageOf('all'), { reducedMotion });
    await openList(page);
    await drawn(page);
    const running = await page.evaluate(() => document.querySelector('session-tasks').shadowRoot.getAnimations().length);
    assert.equal(running > 0, moves, `${reducedMotion}: ${running}`);
    assert.equal(await rows(page).count(), 5);
  }
});
