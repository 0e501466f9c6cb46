/**
 * Somebody else's web site: pages that embed the widget, under a policy of their own. It also has a stream
 * of its own at the gateway's path, which says what a test wants said and a real gateway would not.
 */

import { readFile } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';

const STATIC = path.resolve(import.meta.dirname, '../../../static');
const TYPES = { '.js': 'text/javascript', '.svg': 'image/svg+xml', '.css': 'text/css' };
const STRICT = "default-src 'self'";

export async function startSite() {
  const site = new Site();
  await new Promise((resolve) => site.server.listen(0, '127.0.0.1', resolve));
  site.base = `http://127.0.0.1:${site.server.address().port}`;
  return site;
}

class Site {
  #pages = new Map();
  #streams = new Set();
  /** Streams opened so far. */
  opened = 0;
  /** What a new stream is told first. */
  list = [];
  server = http.createServer((request, answer) => this.#answer(request, answer));

  /**
   * Makes a page. @param {string} body HTML @param {{policy?: string, script?: string, lang?: string}} [options]
   * `script`: where the module comes from, by default this site @returns {string} its address
   */
  page(body, { policy = STRICT, script = '/widget/session-tasks.js', lang = 'en' } = {}) {
    const address = `/page-${this.#pages.size}`;
    const html = `<!doctype html><html lang="${lang}"><meta charset="utf-8"><title>A product</title>
      <script type="module" src="${script}"></script><main>${body}</main></html>`;
    this.#pages.set(address, { html, policy });
    return `${this.base}${address}`;
  }

  /** Tells every open stream a list. */
  send(list) {
    this.list = list;
    this.say(frame(list));
  }

  /** Writes these bytes to every open stream. */
  say(bytes) {
    for (const stream of this.#streams) stream.write(bytes);
  }

  get streams() {
    return this.#streams.size;
  }

  stop() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }

  async #answer(request, answer) {
    const { pathname } = new URL(request.url, this.base);
    const page = this.#pages.get(pathname);
    if (page) {
      answer.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': page.policy });
      answer.end(page.html);
    } else if (/^\/sessions\/[^/]+\/tasks$/.test(pathname)) {
      answer.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
      answer.write(`retry: 100\n: hello\n\n${this.list.length > 0 ? frame(this.list) : ''}`);
      this.opened += 1;
      this.#streams.add(answer);
      answer.on('close', () => this.#streams.delete(answer));
    } else if (pathname.startsWith('/widget/')) {
      const name = path.basename(pathname);
      answer.writeHead(200, { 'content-type': TYPES[path.extname(name)] }).end(await readFile(path.join(STATIC, name)));
    } else {
      answer.writeHead(pathname === '/favicon.ico' ? 204 : 404).end();
    }
  }
}

function frame(list) {
  return list.length > 0 ? `id: ${Date.now()}\ndata: ${JSON.stringify(list)}\n\n` : 'id:\ndata: []\n\n';
}
