// curl follows a session to a clean end, over HTTP/1.1 and HTTP/1.0, and resumes with Last-Event-ID.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import test from 'node:test';
import { createInterface } from 'node:readline';

import { Gateway, Seen, startAndEnd } from './gateway.mjs';

function follow(seen, ...words) {
  const curl = spawn('curl', ['-sSN', '--max-time', '60', ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
  createInterface(curl.stdout).on('line', (line) => {
    if (line.startsWith('data: ')) seen.push(JSON.parse(line.slice(6)));
  });
  return once(curl, 'exit');
}

for (const version of ['--http1.1', '--http1.0']) {
  test(`curl ${version} follows a session through start and end, and resumes`, async () => {
    const gateway = await Gateway.start();
    try {
      const seen = new Seen();
      const ends = [follow(seen, version, gateway.url('demo'))];
      await startAndEnd(gateway, seen);

      const resumed = new Seen();
      ends.push(follow(resumed, version, '-H', 'Last-Event-ID: 1', gateway.url('demo')));
      await resumed.until('it is told that there is nothing', (list) => list.length === 0);

      await gateway.end();
      assert.deepEqual(await Promise.all(ends), [[0, null], [0, null]]);
    } finally {
      await gateway.close();
    }
  });
}
