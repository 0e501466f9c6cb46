// A gateway of one's own for each test, and the story that every client is to follow.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

const program = new URL('../../target/debug/tasklight', import.meta.url).pathname;

// The longest that any one thing may take: far more than it needs, and an end to a hang.
const PATIENCE = 30_000;

export class Gateway {
  static async start() {
    const gateway = new Gateway();
    gateway.folder = await mkdtemp(join(tmpdir(), 'tasklight-'));
    gateway.control = `unix:${gateway.folder}/control.sock`;
    await gateway.serve('127.0.0.1:0');
    return gateway;
  }

  async serve(listen) {
    this.address = undefined;
    const flags = ['--control', this.control, 'serve', '--listen', listen];
    this.child = spawn(program, flags, { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, NO_COLOR: '1' } });
    const lines = createInterface(this.child.stderr);
    for await (const line of lines) {
      const address = / listen=(\S+)/.exec(line)?.[1];
      if (address) {
        this.address = address;
        break;
      }
    }
    assert(this.address, 'the gateway starts');
    this.child.stderr.resume();
  }

  url(session) {
    return `http://${this.address}/sessions/${session}/tasks`;
  }

  // One command of the program itself; returns what it printed.
  async command(...words) {
    const { stdout } = await promisify(execFile)(program, ['--control', this.control, ...words]);
    return stdout.trim();
  }

  // Starts a task that fails with exit code 3 as soon as `finish` is called.
  async startTask(session) {
    const gate = join(this.folder, `gate-${Math.random()}`);
    const label = 'a build\r\ndata: []\n\n of 构建 🦀 \u2028\u0085';
    const line = `until test -e ${gate}; do sleep 0.05; done; exit 3`;
    const id = await this.command('start', '--session', session, '--label', label, line);
    return { id, label, finish: () => writeFile(gate, '') };
  }

  // SIGTERM, and its planned end.
  async end() {
    const ended = once(this.child, 'exit');
    this.child.kill('SIGTERM');
    assert.deepEqual(await ended, [0, null]);
  }

  // Another gateway at the same address, which knows nothing of what this one held.
  async restart() {
    await this.end();
    await this.serve(this.address);
  }

  async close() {
    if (this.child.exitCode === null) await this.end();
    await rm(this.folder, { recursive: true });
  }
}

// What a client saw, in order.
export class Seen {
  #lists = [];
  #wake = () => {};

  push(list) {
    this.#lists.push(list);
    this.#wake();
  }

  // Takes lists until one fits. They may be skipped, since each is whole.
  async until(what, fits) {
    const deadline = Date.now() + PATIENCE;
    for (;;) {
      while (this.#lists.length) {
        const list = this.#lists.shift();
        if (fits(list)) return list;
      }
      const left = deadline - Date.now();
      assert(left > 0, `it never came that ${what}`);
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, left).unref();
      });
    }
  }
}

export const statuses = (list) => list.map((task) => [task.id, task.status]);

const is = (expected) => (list) => JSON.stringify(statuses(list)) === JSON.stringify(expected);

// A session from its start to its end.
export async function startAndEnd(gateway, seen) {
  const task = await gateway.startTask('demo');
  await seen.until('it runs', is([[task.id, 'running']]));
  await task.finish();
  const [ended] = await seen.until('it ends', is([[task.id, 'failed']]));
  assert.equal(ended.label, task.label);
  assert.equal(ended.detail, 'exit code: 3');
  await gateway.command('dispose', '--session', 'demo');
  await seen.until('the list is empty', is([]));
}

// The stream ends under a client that holds rows. It comes back by itself, with its Last-Event-ID, and
// only for that is it told that the session is empty now.
export async function reconnect(gateway, seen) {
  const old = await gateway.startTask('demo');
  await seen.until('it runs', is([[old.id, 'running']]));
  await gateway.restart();
  await seen.until('it is killed by the end of the gateway', is([[old.id, 'killed']]));
  await seen.until('the old rows are gone', is([]));
  const task = await gateway.startTask('demo');
  await seen.until('the new one runs', is([[task.id, 'running']]));
}
