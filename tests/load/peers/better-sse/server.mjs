// A peer: Node's http with better-sse, one channel a session.
//
// node server.mjs PORT SOCKET; lists come in by POST /sessions/NAME on a Unix socket.

import { createServer } from 'node:http';
import { createChannel, createSession } from 'better-sse';

const [port, socket] = process.argv.slice(2);
const lists = new Map();

function listOf(name) {
  let list = lists.get(name);
  if (!list) lists.set(name, (list = { channel: createChannel(), json: undefined }));
  return list;
}

// The list is JSON already.
const serializer = (json) => json;

createServer(async (request, response) => {
  const { channel, json } = listOf(request.url.split('/')[2]);
  const session = await createSession(request, response, { serializer });
  if (json) session.push(json, 'message', String(Date.now()));
  channel.register(session);
}).listen(Number(port), '127.0.0.1', 4096);

createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const list = listOf(request.url.split('/')[2]);
    list.json = Buffer.concat(parts).toString();
    response.writeHead(204).end();
    list.channel.broadcast(list.json, 'message', { eventId: String(Date.now()) });
  });
}).listen(socket);
