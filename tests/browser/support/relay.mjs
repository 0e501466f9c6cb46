/** A wire between the browser and a gateway that a test can cut. */

import net from 'node:net';

export async function startRelay(port) {
  const relay = new Relay(port);
  await new Promise((resolve) => relay.server.listen(0, '127.0.0.1', resolve));
  relay.base = `http://127.0.0.1:${relay.server.address().port}`;
  return relay;
}

class Relay {
  #sockets = new Set();
  #upstream;
  /** Connections accepted so far. */
  accepted = 0;
  server = net.createServer((near) => {
    this.accepted += 1;
    const far = net.connect(this.#upstream, '127.0.0.1');
    for (const [one, other] of [[near, far], [far, near]]) {
      this.#sockets.add(one);
      one.pipe(other);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
  });

  constructor(upstream) {
    this.#upstream = upstream;
  }

  /** Cuts every connection. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  stop() {
    this.cut();
    return new Promise((resolve) => this.server.close(resolve));
  }
}
