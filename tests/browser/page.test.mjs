/** The gateway's own page: its header, the session field, what to type, and the raw events. */

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { becomes, cells, complaints, control, openPage } from './support/browser.mjs';
import { PROGRAM, startGateway } from './support/gateway.mjs';

let gateway;
before(async () => (gateway = await startGateway()));
after(() => gateway.stop());

const pageOf = (session) => `${gateway.base}/?session=${encodeURIComponent(session)}`;
const snippet = (page, id) => page.locator(`#${id}`).textContent();

test('the page runs under its own policy without a complaint, and names its state', async (t) => {
  const page = await openPage(t, 'about:blank');
  const said = complaints(page);
  const answer = await page.goto(gateway.base);
  assert.match(answer.headers()['content-security-policy'], /default-src 'self'/);
  assert.equal(await page.locator('#session').inputValue(), 'demo');
  await page.getByText('Session demo has no background task.').waitFor();
  await gateway.run('demo', 'sleep 600');
  await page.getByText('Session demo: 1 running.').waitFor();
  assert.equal(await page.title(), '(1) demo · Tasklight');
  assert.equal(await page.locator('header').locator('session-tasks button').innerText(), '1 background task running');
  await becomes('the stream is open', () => page.locator('#link').textContent(), 'open');
  assert.deepEqual(said, []);
});

test('the session field goes to another session, whatever it is called', async (t) => {
  const session = `it's "a" <b> 构建`;
  await gateway.run(session, 'sleep 600', { label: 'found' });
  const page = await openPage(t, gateway.base);
  await page.getByLabel('Session').fill(session);
  await page.getByRole('button', { name: 'Watch' }).click();
  await control(page).click();
  assert.deepEqual(await cells(page, 'label'), ['found']);
  assert.equal(await page.locator('#session').inputValue(), session);
});

test('what the page says to type does what it says', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tasklight-page-'));
  t.after(() => rm(folder, { recursive: true }));
  for (const session of ['typed', `it's $HOME "here"`]) {
    const page = await openPage(t, pageOf(session));
    const env = { ...process.env, PATH: `${path.dirname(PROGRAM)}:${process.env.PATH}`, TASKLIGHT_CONTROL: gateway.socket };
    const { stdout } = await promisify(execFile)('bash', ['-c', await snippet(page, 'start')], { env });
    await control(page).waitFor();
    const [task] = await page.evaluate(() => document.querySelector('session-tasks').tasks);
    assert.equal(task.id, stdout.trim());
    assert.equal(task.label, 'make test');

    const curl = spawn('bash', ['-c', await snippet(page, 'curl')], { stdio: ['ignore', 'pipe', 'ignore'], detached: true });
    t.after(() => {
      try {
        process.kill(-curl.pid);
      } catch {
        // Nobody reads it any more, so it may have ended at the next event.
      }
    });
    let text = '';
    for await (const part of curl.stdout.setEncoding('utf8')) {
      text += part;
      if (text.includes('data: ')) break;
    }
    assert.match(text, /"label":"make test"/);

    // What it runs stands in for the real cargo.
    await writeFile(path.join(folder, 'cargo'), '#!/bin/sh\necho "$@"\n', { mode: 0o755 });
    const here = { ...env, PATH: `${folder}:${env.PATH}` };
    const ran = await promisify(execFile)('bash', ['-c', await snippet(page, 'run')], { env: here });
    assert.equal(ran.stdout, 'build\n');
    await becomes('it shows as a task that has ended', () => page.evaluate(() => {
      const { tasks } = document.querySelector('session-tasks');
      return tasks.filter(({ label, status }) => label === 'cargo build' && status === 'completed').length;
    }), 1);
  }
});

test('the page says how to embed, and that is enough', async (t) => {
  await gateway.run(`"quoted"`, 'sleep 600');
  const page = await openPage(t, pageOf(`"quoted"`));
  const html = await snippet(page, 'embed');
  await page.route('**/embedding', (route) => route.fulfill({ contentType: 'text/html', body: `<!doctype html>${html}` }));
  await page.goto(`${gateway.base}/embedding`);
  await control(page).waitFor();
});

test('a press copies what there is to copy', async (t) => {
  const page = await openPage(t, pageOf('copied'), { permissions: ['clipboard-read', 'clipboard-write'] });
  for (const id of ['start', 'run', 'embed', 'curl']) {
    const button = page.locator(`button[aria-describedby="${id}"]`);
    await button.click();
    await becomes('it says so', () => button.textContent(), 'Copied');
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await snippet(page, id));
  }
});

test('the raw view shows the bytes as they come, and can be paused and cleared', async (t) => {
  const page = await openPage(t, pageOf('raw'));
  const log = page.locator('#log');
  await log.getByText('session raw').waitFor();
  await gateway.run('raw', 'sleep 600', { label: '<b>bold</b>\u202e' });
  const event = log.locator('summary').first();
  await event.click();
  const whole = await log.locator('pre').first().textContent();
  assert.match(whole, /^id: \d+\ndata: \[\n/);
  assert.match(whole, /"label": "<b>bold<\/b>\\u\{202e\}"/);

  const held = await gateway.connections();
  await page.getByRole('button', { name: 'Pause' }).click();
  await becomes('the view lets go of its stream', () => page.locator('#link').textContent(), 'paused');
  await becomes('connections', async () => (await gateway.connections()) < held, true);
  await page.getByRole('button', { name: 'Clear' }).click();
  assert.equal(await log.locator('li').count(), 0);
  await page.getByRole('button', { name: 'Pause' }).click();
  await becomes('and goes on', async () => (await log.locator('summary').count()) > 0, true);
});
