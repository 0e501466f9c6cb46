// npm `eventsource`, in the three versions that are in use, follows a session and comes back by itself.

import test from 'node:test';

import EventSource2 from 'eventsource-2';
import { EventSource as EventSource3 } from 'eventsource-3';
import { EventSource as EventSource4 } from 'eventsource-4';

import { Gateway, Seen, reconnect, startAndEnd } from './gateway.mjs';

for (const [version, EventSource] of [[2, EventSource2], [3, EventSource3], [4, EventSource4]]) {
  test(`eventsource ${version} follows a session through start, end and reconnect`, async () => {
    const gateway = await Gateway.start();
    const seen = new Seen();
    const source = new EventSource(gateway.url('demo'));
    source.onmessage = ({ data }) => seen.push(JSON.parse(data));
    try {
      await startAndEnd(gateway, seen);
      await reconnect(gateway, seen);
    } finally {
      source.close();
      await gateway.close();
    }
  });
}
