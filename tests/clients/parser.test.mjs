// npm `eventsource-parser` reads the same events wherever a real stream is torn in two: the kind of report
// in fanout/django-eventstream#185 (line ends in labels forge fields) and api7/aisix#111 (torn UTF-8).

import assert from 'node:assert/strict';
import http from 'node:http';
import test from 'node:test';

import { createParser } from 'eventsource-parser';

import { Gateway, Seen, startAndEnd } from './gateway.mjs';

function parse(...pieces) {
  const seen = { events: [], comments: [], retries: [], errors: [] };
  const parser = createParser({
    onEvent: (event) => seen.events.push(event),
    onComment: (comment) => seen.comments.push(comment),
    onRetry: (retry) => seen.retries.push(retry),
    onError: (error) => seen.errors.push(error),
  });
  const decoder = new TextDecoder();
  for (const piece of pieces) parser.feed(decoder.decode(piece, { stream: true }));
  return seen;
}

test('eventsource-parser reads a real stream at every split', async () => {
  const gateway = await Gateway.start();
  const pieces = [];
  try {
    const seen = new Seen();
    const ended = new Promise((resolve) => {
      http.get(gateway.url('demo'), (answer) => {
        const parser = createParser({ onEvent: ({ data }) => seen.push(JSON.parse(data)) });
        const decoder = new TextDecoder();
        answer.on('data', (piece) => {
          pieces.push(piece);
          parser.feed(decoder.decode(piece, { stream: true }));
        });
        answer.on('end', resolve);
      });
    });
    await startAndEnd(gateway, seen);
    await gateway.end();
    await ended;
  } finally {
    await gateway.close();
  }

  const stream = Buffer.concat(pieces);
  const whole = parse(stream);
  assert.equal(whole.events.length, 3, stream.toString());
  assert.deepEqual(whole.comments, ['session demo']);
  assert.equal(whole.retries.length, 1);
  assert.deepEqual(whole.errors, []);
  assert.equal(whole.events.at(-1).data, '[]');
  assert.equal(whole.events.at(-1).id, '');
  for (let at = 0; at <= stream.length; at += 1) {
    assert.deepEqual(parse(stream.subarray(0, at), stream.subarray(at)), whole, `torn at byte ${at}`);
  }
});
