/** How Chromium is started here: without a window, and without what would ask the internet for anything. */

import { chromium } from 'playwright-core';

/** @returns {Promise<import('playwright-core').Browser>} */
export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync',
    ],
    // Off by default under automation, and a thing to be tested.
    ignoreDefaultArgs: ['--disable-back-forward-cache'],
  });
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
