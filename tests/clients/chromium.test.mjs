// A page in Chromium follows a session and comes back by itself: with the browser's own EventSource, and
// with @microsoft/fetch-event-source.

import { readFile } from 'node:fs/promises';
import http from 'node:http';
import test from 'node:test';

import { chromium } from 'playwright-core';

import { Gateway, Seen, reconnect, startAndEnd } from './gateway.mjs';

const library = new URL('node_modules/@microsoft/fetch-event-source/lib/esm/', import.meta.url);

// The page's site: its own files, and before the gateway a proxy that waits while the gateway is away.
async function site(gateway) {
  const files = {
    '/': () => '<!doctype html><title>tasks</title><script type="module" src="/page.js"></script>',
    '/page.js': () => readFile(new URL('page.js', import.meta.url)),
  };
  for (const name of ['index', 'fetch', 'parse']) {
    // The library imports its own files without their endings.
    for (const ending of ['', '.js']) {
      files[`/fetch-event-source/${name}${ending}`] = () => readFile(new URL(`${name}.js`, library));
    }
  }
  const server = http.createServer(async (request, response) => {
    const file = files[request.url];
    if (file) {
      const type = request.url === '/' ? 'text/html' : 'text/javascript';
      response.writeHead(200, { 'content-type': type }).end(await file());
    } else if (request.url.startsWith('/sessions/')) {
      forward(gateway, request, response);
    } else {
      response.writeHead(404).end();
    }
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return server;
}

function forward(gateway, request, response) {
  const ahead = http.get(`http://${gateway.address}${request.url}`, { headers: request.headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  response.on('close', () => ahead.destroy());
  ahead.on('error', () => {
    if (!response.destroyed && !response.headersSent) setTimeout(() => forward(gateway, request, response), 50);
  });
}

for (const client of ['EventSource', 'fetchEventSource']) {
  test(`${client} in Chromium follows a session through start, end and reconnect`, async () => {
    const gateway = await Gateway.start();
    const server = await site(gateway);
    const browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'],
    });
    try {
      const seen = new Seen();
      const page = await browser.newPage();
      await page.exposeFunction('seen', (data) => seen.push(JSON.parse(data)));
      await page.goto(`http://127.0.0.1:${server.address().port}/`);
      await page.evaluate((name) => window.follow[name](), client);
      await startAndEnd(gateway, seen);
      await reconnect(gateway, seen);
    } finally {
      await browser.close();
      server.closeAllConnections();
      server.close();
      await gateway.close();
    }
  });
}
