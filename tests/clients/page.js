// In Chromium: the browser's own EventSource, or @microsoft/fetch-event-source, tells the test what it sees.

import { fetchEventSource } from '/fetch-event-source/index.js';

const url = '/sessions/demo/tasks';

window.follow = {
  EventSource() {
    new EventSource(url).onmessage = ({ data }) => window.seen(data);
  },
  fetchEventSource() {
    void fetchEventSource(url, {
      onmessage: ({ data }) => {
        // It dispatches what has no data too: the `retry:` and the comment that open a stream.
        if (data) window.seen(data);
      },
      // A clean end is no end of interest: thrown, it makes the library come back after `retry:`.
      onclose: () => {
        throw new Error('the stream ended');
      },
    });
  },
};
