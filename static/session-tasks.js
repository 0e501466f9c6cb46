/**
 * Defines `<session-tasks>`. This is the module that a page loads; definition is its only effect.
 */

import { SessionTasksElement } from './session-tasks-element.js';

// Two products on one page may each bring the widget; the first one serves both.
if (!customElements.get('session-tasks')) customElements.define('session-tasks', SessionTasksElement);

export { SessionTasksElement };
