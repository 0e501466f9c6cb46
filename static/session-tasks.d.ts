/**
 * Types of `<session-tasks>`, the live list of a session's background tasks.
 *
 * @module
 */

/** The statuses this version knows. The last three are terminal. A newer server may send others. */
export type TaskStatus = 'running' | 'stopping' | 'completed' | 'killed' | 'failed';

/** One task as it stands on the wire. */
export interface TaskView {
  /** `<kind>-<n>`, unique in the gateway's process. */
  readonly id: string;
  /** An open set: `bash`, `subagent`, `build`, and whatever a producer names. */
  readonly kind: string;
  /** Never empty; for a shell the raw command. */
  readonly label: string;
  readonly status: TaskStatus | (string & {});
  /** How it ended, as `exit code: 1`, or the producer's own words. */
  readonly detail?: string;
  /** Unix milliseconds by the server's clock. */
  readonly startedAt: number;
  /** Unix milliseconds by the server's clock; present exactly when the task is terminal. */
  readonly finishedAt?: number;
}

/** Fired on the element after its list changed. Bubbles; cannot be cancelled. */
export type TasksChangeEvent = CustomEvent<{
  /** The same list as the element's `tasks`. */
  readonly tasks: readonly TaskView[];
}>;

export interface SessionTasksElementEventMap extends HTMLElementEventMap {
  taskschange: TasksChangeEvent;
}

/**
 * The header control of one session: nothing while it has no task, else a button with the live list.
 *
 * Attributes: `session` (the session's id; none, no stream), `src` (the gateway's base URL; default: where
 * this module came from), `announce` (`off` silences the spoken endings).
 */
export class SessionTasksElement extends HTMLElement {
  /** The list in registration order, deeply frozen; empty without tasks, session or connection yet. */
  readonly tasks: readonly TaskView[];

  addEventListener<K extends keyof SessionTasksElementEventMap>(
    type: K,
    listener: (this: SessionTasksElement, event: SessionTasksElementEventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof SessionTasksElementEventMap>(
    type: K,
    listener: (this: SessionTasksElement, event: SessionTasksElementEventMap[K]) => unknown,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | EventListenerOptions,
  ): void;
}

declare global {
  interface HTMLElementTagNameMap {
    'session-tasks': SessionTasksElement;
  }
}
