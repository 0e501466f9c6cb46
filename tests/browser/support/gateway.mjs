/** The program under test: a gateway of one's own, and its control API. */

import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';

/** What is built by `cargo build`. */
export const PROGRAM = process.env.TASKLIGHT_PROGRAM ?? path.resolve(import.meta.dirname, '../../../target/debug/tasklight');

/** @param {{flags?: string[], port?: number}} [options] port 0 takes a free one */
export async function startGateway({ flags = [], port = 0 } = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), 'tasklight-'));
  const socket = path.join(folder, 'control.sock');
  const all = ['serve', '--listen', `127.0.0.1:${port}`, '--control', `unix:${socket}`, '--max-live-tasks', '200', ...flags];
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TASKLIGHT_')));
  const child = spawn(PROGRAM, all, { env: { ...env, NO_COLOR: '1' }, stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise((resolve) => child.once('close', resolve));
  const log = [];
  const [address, control] = await new Promise((resolve, reject) => {
    child.once('error', reject);
    ended.then(() => reject(new Error(`the gateway did not start: ${log.join('\n')}`)));
    createInterface({ input: child.stderr }).on('line', (line) => {
      log.push(line);
      const [, listen, control] = / listen=(\S+) control=(\S+)/.exec(line) ?? [];
      if (listen) resolve([listen, control.split(',')]);
    });
  });
  return new Gateway(child, ended, folder, socket, address, control);
}

class Gateway {
  #child;
  #ended;
  #folder;

  constructor(child, ended, folder, socket, address, control) {
    this.#child = child;
    this.#ended = ended;
    this.#folder = folder;
    this.socket = socket;
    this.port = Number(address.split(':').at(-1));
    /** Where browsers connect, without a slash at the end. */
    this.base = `http://${address}`;
    /** Where the control API is, in the order of the flags. */
    this.controls = control;
  }

  /** One request to the control API. @returns {Promise<{status: number, body: any}>} */
  control(method, pathname, body) {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const headers = text === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    return new Promise((resolve, reject) => {
      const request = http.request({ socketPath: this.socket, method, path: pathname, headers, agent: false }, async (answer) => {
        let whole = '';
        for await (const part of answer.setEncoding('utf8')) whole += part;
        resolve({ status: answer.statusCode, body: whole === '' ? null : JSON.parse(whole) });
      });
      request.on('error', reject).end(text);
    });
  }

  /** Starts a command in a session. @returns {Promise<string>} the task's id */
  async run(session, command, more = {}) {
    const { status, body } = await this.control('POST', `${tasksOf(session)}`, { command, ...more });
    if (status !== 201) throw new Error(JSON.stringify(body));
    return body.id;
  }

  kill(session, id) {
    return this.control('POST', `${tasksOf(session)}/${id}/kill`);
  }

  dispose(session) {
    return this.control('DELETE', `/sessions/${encodeURIComponent(session)}`);
  }

  /** Waits for a task's end. */
  async ended(session, id) {
    for (;;) {
      const { body } = await this.control('GET', `${tasksOf(session)}/${id}`);
      if (body.finishedAt !== undefined) return body;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  /** Connections to the browsers' listener that both ends hold open, as the kernel counts them. */
  async connections() {
    const port = this.port.toString(16).toUpperCase().padStart(4, '0');
    const table = await readFile(`/proc/${this.#child.pid}/net/tcp`, 'utf8');
    const established = '01';
    return table.split('\n').filter((line) => {
      const [, local, , state] = line.trim().split(/\s+/);
      return local?.endsWith(`:${port}`) && state === established;
    }).length;
  }

  /** Ends it and its children. */
  async stop() {
    this.#child.kill('SIGTERM');
    await this.#ended;
    await rm(this.#folder, { recursive: true, force: true });
  }
}

function tasksOf(session) {
  return `/sessions/${encodeURIComponent(session)}/tasks`;
}
