/** A session with work going on: what a measurement shows the widget. */

import { pause } from './launch.mjs';

/** Of each ten changes one starts a task and one ends the oldest; the others rewrite a detail. */
const TURNOVER = 10;

/** External tasks of the session `demo`. */
export class Work {
  #gateway;
  #live = [];
  #changes = 0;
  #pacing = true;

  constructor(gateway) {
    this.#gateway = gateway;
  }

  /** Registers so many tasks at work, and so many that have ended. */
  async fill({ live, settled }) {
    for (let task = 0; task < live; task += 1) await this.#start();
    for (let task = 0; task < settled; task += 1) {
      await this.#start();
      await this.#end();
    }
  }

  /** Makes so many changes a second until `stop`; after a delay it catches up. */
  async pace(rate) {
    const started = performance.now();
    for (let made = 0; this.#pacing; made += 1) {
      const early = started + (made * 1_000) / rate - performance.now();
      if (early > 0) await pause(early);
      await this.#change();
    }
  }

  stop() {
    this.#pacing = false;
  }

  /** Changes made so far. */
  get changes() {
    return this.#changes;
  }

  #change() {
    const turn = this.#changes % TURNOVER;
    if (turn === TURNOVER - 2) return this.#start();
    if (turn === TURNOVER - 1) return this.#end();
    const id = this.#live[this.#changes % this.#live.length];
    return this.#ask('PATCH', `/${id}`, { detail: `step ${this.#changes}: linking the tests of the workspace` });
  }

  async #start() {
    const label = `cargo test --package part-${this.#changes} --all-features`;
    const { id } = await this.#ask('POST', '', { kind: 'build', label, leaseMs: 3_600_000 });
    this.#live.push(id);
  }

  #end() {
    const failed = this.#changes % 4 === 0;
    return this.#ask('PATCH', `/${this.#live.shift()}`, failed ? { status: 'failed', detail: 'exit code: 101' } : { status: 'completed' });
  }

  async #ask(method, path, body) {
    this.#changes += 1;
    const answer = await this.#gateway.control(method, `/sessions/demo/tasks${path}`, body);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }
}
