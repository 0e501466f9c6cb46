/**
 * Makes the README's picture, `widget.png`, from the real gateway and real tasks. Takes a minute and a half.
 *
 *     node tests/browser/picture.mjs && pngquant --force --ext .png tests/browser/widget.png
 */

import path from 'node:path';
import { startGateway } from './support/gateway.mjs';
import { launch, pause } from './support/launch.mjs';

const gateway = await startGateway();
const start = (label, command) => gateway.run('demo', command, { label });

await start('cargo build --release --workspace', 'sleep 600');
const training = await start('python train.py --epochs 300', 'sleep 600');
await start('cargo clippy --all-targets -- -D warnings', 'sleep 19; exit 101');
await pause(21_000);
await start('make docs', 'sleep 12');
await pause(14_000);
await start('npm run dev', 'sleep 600');
await gateway.kill('demo', training);
await pause(44_000);
await start('make test', 'sleep 600');
await pause(5_500);

const browser = await launch();
const page = await browser.newPage({ viewport: { width: 860, height: 500 }, deviceScaleFactor: 2, reducedMotion: 'reduce' });
await page.goto(`${gateway.base}/?session=demo`);
await page.locator('session-tasks button').click();
await page.locator('session-tasks li').first().waitFor();
await page.screenshot({ path: path.join(import.meta.dirname, 'widget.png') });
await browser.close();
await gateway.stop();
