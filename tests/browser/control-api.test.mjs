/** What a page can do to the control API: nothing, whatever it tries, also over TCP and with the token in its hands. */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { openPage } from './support/browser.mjs';
import { startGateway } from './support/gateway.mjs';
import { startSite } from './support/site.mjs';

const TOKEN = 'a-token-of-more-than-16-bytes';

let folder, gateway, site;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tasklight-page-'));
  const token = path.join(folder, 'token');
  await writeFile(token, TOKEN, { mode: 0o600 });
  // '*' is the most that a gateway can be told to let pages read.
  const flags = ['--control', '127.0.0.1:0', '--control-token-file', token, '--allow-origin', '*'];
  [gateway, site] = await Promise.all([startGateway({ flags }), startSite()]);
});
after(() => Promise.all([gateway.stop(), site.stop(), rm(folder, { recursive: true })]));

/** Runs in the page: every way that a page has to send something, each for itself. Returns what each came to. */
async function attack({ base, token, command }) {
  const settled = (promise) => promise.then((value) => value, (error) => `refused: ${error.name}`);
  const read = async (answer) => `${answer.type} ${answer.status} ${await answer.text()}`;
  const json = JSON.stringify({ command });
  const tasks = `${base}/sessions/demo/tasks`;
  const type = { 'content-type': 'application/json' };
  const bearer = { authorization: `Bearer ${token}` };
  const form = (action, enctype, name, value) =>
    new Promise((resolve) => {
      const frame = document.createElement('iframe');
      frame.name = `frame-${Math.random()}`;
      const form = document.createElement('form');
      Object.assign(form, { action, enctype, method: 'post', target: frame.name });
      const field = document.createElement('input');
      Object.assign(field, { name, value, type: 'hidden' });
      form.append(field);
      document.body.append(frame, form);
      frame.addEventListener('load', () => frame.contentWindow !== null && resolve('sent'), { once: true });
      // A policy that forbids it says so, and nothing is loaded.
      document.addEventListener('securitypolicyviolation', () => resolve('an error'));
      form.submit();
    });
  const events = (url) =>
    new Promise((resolve) => {
      const source = new EventSource(url);
      source.onmessage = ({ data }) => resolve(`told: ${data}`);
      source.onerror = () => {
        source.close();
        resolve('an error');
      };
    });
  const element = (name, url) =>
    new Promise((resolve) => {
      const element = document.createElement(name);
      element.onload = () => resolve('loaded');
      element.onerror = () => resolve('an error');
      try {
        element.src = url;
      } catch {
        resolve('an error');
      }
      document.body.append(element);
    });
  const attempts = {
    list: settled(fetch(tasks).then(read)),
    listWithToken: settled(fetch(tasks, { headers: bearer }).then(read)),
    start: settled(fetch(tasks, { method: 'POST', body: json, headers: type }).then(read)),
    startWithToken: settled(fetch(tasks, { method: 'POST', body: json, headers: { ...type, ...bearer } }).then(read)),
    startUnread: settled(fetch(tasks, { method: 'POST', mode: 'no-cors', body: json }).then(read)),
    startUnreadWithCookies: settled(
      fetch(tasks, { method: 'POST', mode: 'no-cors', credentials: 'include', body: json }).then(read),
    ),
    kill: settled(fetch(`${tasks}/bash-1/kill`, { method: 'POST', mode: 'no-cors' }).then(read)),
    output: settled(fetch(`${tasks}/bash-1/output`, { mode: 'no-cors' }).then(read)),
    dispose: settled(fetch(`${base}/sessions/demo`, { method: 'DELETE' }).then(read)),
    disposeWithToken: settled(fetch(`${base}/sessions/demo`, { method: 'DELETE', headers: bearer }).then(read)),
    beacon: navigator.sendBeacon(tasks, new Blob([json], { type: 'text/plain' })),
    plainForm: form(tasks, 'text/plain', `{"command":${JSON.stringify(command)},"label":"`, '"}'),
    urlForm: form(tasks, 'application/x-www-form-urlencoded', 'command', command),
    partsForm: form(`${tasks}/bash-1/kill`, 'multipart/form-data', 'reason', 'x'),
    mux: events(`${base}/mux`),
    done: events(`${base}/sessions/demo/done`),
    stream: events(tasks),
    image: element('img', `${tasks}/bash-1/output`),
    script: element('script', `${base}/openapi.json`),
  };
  const results = await Promise.all(Object.entries(attempts).map(async ([name, result]) => [name, await result]));
  return Object.fromEntries(results);
}

for (const [whose, address] of [
  ['of another origin', () => site.page('<p>a page</p>', { policy: "script-src * 'unsafe-inline' 'unsafe-eval'" })],
  ['of the gateway itself', () => `${gateway.base}/?session=none`],
]) {
  test(`a page ${whose} can do nothing to the control API`, async (t) => {
    const id = await gateway.run('demo', 'echo for the model alone; sleep 600');
    const mark = path.join(folder, `run-${id}`);
    const base = `http://${gateway.controls[1]}`;
    const page = await openPage(t, address());
    const came = await page.evaluate(attack, { base, token: TOKEN, command: `touch ${mark}` });

    for (const [name, result] of Object.entries(came)) {
      const nothing = /^(refused: TypeError|opaque 0 |an error|sent|true|false)$/;
      assert.match(String(result), nothing, `${name} came to ${result}`);
    }
    assert.ok(!existsSync(mark), 'a command ran');
    const { body: list } = await gateway.control('GET', '/sessions/demo/tasks');
    assert.deepEqual(list.filter((task) => task.finishedAt === undefined).map((task) => task.id), [id]);
    const { body: read } = await gateway.control('GET', `/sessions/demo/tasks/${id}/output?wait=30s`);
    assert.equal(read.text, 'for the model alone\n', 'the one cursor stands where it stood');
    await gateway.dispose('demo');
  });
}

test('the same requests from a program with the token do what they say', async () => {
  const mark = path.join(folder, 'run-by-a-program');
  const answer = await fetch(`http://${gateway.controls[1]}/sessions/other/tasks`, {
    method: 'POST',
    body: JSON.stringify({ command: `touch ${mark}` }),
    headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKEN}` },
  });
  assert.equal(answer.status, 201);
  await gateway.ended('other', (await answer.json()).id);
  assert.ok(existsSync(mark));
});
