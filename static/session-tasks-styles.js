/**
 * The one style sheet that all `<session-tasks>` elements of a page share.
 *
 * It is constructed, not written into the document, so a Content-Security-Policy without `unsafe-inline`
 * lets it pass. Light and dark follow the `color-scheme` that the element inherits from the page; a page
 * that themes itself by other means sets `session-tasks { color-scheme: dark }`.
 *
 * Custom properties, set on the element or any ancestor. Colours may be `light-dark(…, …)`.
 *
 * | property                    | what it is                                   | default (light, dark)              |
 * |-----------------------------|----------------------------------------------|------------------------------------|
 * | `--session-tasks-font`      | font family of all but the labels            | inherited                          |
 * | `--session-tasks-mono`      | font family of the labels                    | `ui-monospace`, Menlo, Consolas, … |
 * | `--session-tasks-width`     | width of the list, at most 400 px            | `336px`                            |
 * | `--session-tasks-radius`    | corner radius of the list                    | `12px`                             |
 * | `--session-tasks-shadow`    | `box-shadow` of the list                     | two soft layers                    |
 * | `--session-tasks-surface`   | background of the list                       | `#ffffff`, `#1d2025`               |
 * | `--session-tasks-text`      | labels of live tasks                         | `#1b1f24`, `#eceef1`               |
 * | `--session-tasks-muted`     | settled labels, kinds, durations             | `#59626d`, `#a4adb8`               |
 * | `--session-tasks-border`    | lines                                        | `#d9dde2`, `#3a3f47`               |
 * | `--session-tasks-focus`     | focus ring                                   | `#0b62d6`, `#7ab6ff`               |
 * | `--session-tasks-running`   | running                                      | `#0b62d6`, `#7ab6ff`               |
 * | `--session-tasks-stopping`  | stopping                                     | `#8f5200`, `#f0b35a`               |
 * | `--session-tasks-completed` | completed                                    | `#1a7340`, `#67cf8f`               |
 * | `--session-tasks-killed`    | cancelled                                    | `#59626d`, `#a4adb8`               |
 * | `--session-tasks-failed`    | failed                                       | `#c0262d`, `#ff8e87`               |
 *
 * The button takes the text colour of where it stands.
 *
 * Parts, for `session-tasks::part(…)`:
 *
 * | part       | what it is                                                                             |
 * |------------|----------------------------------------------------------------------------------------|
 * | `button`   | the control; also `live` while a task runs, and `open`                                 |
 * | `popover`  | the surface of the list, which scrolls                                                 |
 * | `list`     | the list in it                                                                         |
 * | `task`     | a row; also its status where known, as in `::part(task failed)`, and `live` or `settled` |
 * | `icon`     | the status icon, in the button and in a row                                            |
 * | `kind`     | a row's kind                                                                           |
 * | `label`    | a row's label                                                                          |
 * | `status`   | a row's detail, or its status in words                                                 |
 * | `duration` | a row's duration                                                                       |
 */

const css = `
:host {
  --_surface: var(--session-tasks-surface, light-dark(#ffffff, #1d2025));
  --_text: var(--session-tasks-text, light-dark(#1b1f24, #eceef1));
  --_muted: var(--session-tasks-muted, light-dark(#59626d, #a4adb8));
  --_border: var(--session-tasks-border, light-dark(#d9dde2, #3a3f47));
  --_focus: var(--session-tasks-focus, light-dark(#0b62d6, #7ab6ff));
  --_running: var(--session-tasks-running, light-dark(#0b62d6, #7ab6ff));
  --_stopping: var(--session-tasks-stopping, light-dark(#8f5200, #f0b35a));
  --_completed: var(--session-tasks-completed, light-dark(#1a7340, #67cf8f));
  --_killed: var(--session-tasks-killed, light-dark(#59626d, #a4adb8));
  --_failed: var(--session-tasks-failed, light-dark(#c0262d, #ff8e87));
  display: inline-block;
  /* In a crowded flex row the text is cut before the row overflows. */
  min-width: 0;
  max-width: 100%;
  vertical-align: middle;
}
:host([hidden]) { display: none; }
:host(:state(empty)) { display: none; }
/* Out of flow, so that a page's flex gap closes although the focus rests here. */
:host(:state(resting)) { position: absolute; }

.button, .popover {
  box-sizing: border-box;
  font: 500 13px/20px sans-serif;
  /* Apart from the shorthand, which takes no inherit. */
  font-family: var(--session-tasks-font, inherit);
  letter-spacing: normal;
  word-spacing: normal;
  text-align: start;
  text-indent: 0;
  text-transform: none;
  text-shadow: none;
  white-space: nowrap;
}
:focus-visible { outline: 2px solid var(--_focus); outline-offset: 2px; }

.button {
  display: flex;
  align-items: center;
  gap: 6px;
  max-width: 100%;
  min-height: 32px;
  margin: 0;
  padding: 5px 10px;
  border: 1px solid color-mix(in srgb, currentColor 22%, transparent);
  border-radius: 8px;
  background: transparent;
  color: inherit;
  cursor: pointer;
  user-select: none;
  -webkit-user-select: none;
}
.button:hover, .button[aria-expanded="true"] { background: color-mix(in srgb, currentColor 7%, transparent); }
.button:active { background: color-mix(in srgb, currentColor 11%, transparent); }
.summary { overflow: hidden; text-overflow: ellipsis; font-variant-numeric: tabular-nums; }
.chevron { flex: none; width: 12px; height: 12px; opacity: 0.7; }
.button[aria-expanded="true"] .chevron { rotate: 180deg; }

.icon { position: relative; flex: none; display: block; width: 16px; height: 16px; color: var(--_muted); }
.icon[hidden] { display: none; }
.icon svg { display: block; width: 100%; height: 100%; }
.icon path, .chevron path {
  fill: none; stroke: currentColor; stroke-width: 1.75; stroke-linecap: round; stroke-linejoin: round;
}
.icon[data-status="running"] { color: var(--_running); }
.icon[data-status="stopping"] { color: var(--_stopping); }
.icon[data-status="completed"] { color: var(--_completed); }
.icon[data-status="killed"] { color: var(--_killed); }
.icon[data-status="failed"] { color: var(--_failed); }
.icon[data-status="running"] path { fill: currentColor; stroke: none; }
.icon[data-status="running"]::after {
  content: "";
  position: absolute;
  inset: 4.5px;
  border-radius: 50%;
  background: currentColor;
  opacity: 0;
}

.popover {
  position: fixed;
  inset: auto;
  margin: 0;
  padding: 4px 0;
  width: var(--session-tasks-width, 336px);
  max-width: min(400px, 100vw - 32px);
  max-height: min(420px, 100vh - 140px, var(--_room, 100vh));
  overflow: hidden auto;
  overscroll-behavior: contain;
  scrollbar-width: thin;
  border: 1px solid var(--_border);
  border-radius: var(--session-tasks-radius, 12px);
  background: var(--_surface);
  color: var(--_text);
  box-shadow: var(--session-tasks-shadow,
    0 1px 3px light-dark(rgb(18 24 32 / 0.10), rgb(0 0 0 / 0.4)),
    0 10px 32px light-dark(rgb(18 24 32 / 0.14), rgb(0 0 0 / 0.5)));
  cursor: auto;
  user-select: text;
  -webkit-user-select: text;
}

.list { margin: 0; padding: 0; list-style: none; }
.task {
  display: grid;
  grid-template:
    "icon label label duration" minmax(20px, auto) "icon kind status status" minmax(18px, auto)
    / 16px auto minmax(0, 1fr) auto;
  align-items: start;
  column-gap: 8px;
  padding: 8px 14px;
}
.task:focus-visible { outline-offset: -2px; }
/* What is cut, whole: where the keyboard is, and where somebody pressed. */
.task:is(:focus-visible, .whole) :is(.label, .kind, .status) { white-space: pre-wrap; overflow-wrap: anywhere; }
.task + .task { border-block-start: 1px solid color-mix(in srgb, var(--_border) 55%, transparent); }
.task .icon { grid-area: icon; margin-block-start: 2px; }
/* As wide as its text: a right-to-left label keeps its own order, yet begins where the column does. */
.label, .kind, .status { justify-self: start; max-width: 100%; overflow: hidden; text-overflow: ellipsis; }
.label {
  grid-area: label;
  font-family: var(--session-tasks-mono,
    ui-monospace, SFMono-Regular, "Cascadia Mono", Menlo, Consolas, "Liberation Mono", "Noto Sans Mono", monospace);
  font-size: 12.5px;
  font-weight: 500;
}
.duration {
  grid-area: duration;
  padding-inline-start: 6px;
  color: var(--_muted);
  font-size: 12px;
  font-weight: 400;
  font-variant-numeric: tabular-nums;
}
.kind, .status { font-size: 12px; font-weight: 400; line-height: 18px; }
.kind { grid-area: kind; max-width: 10em; color: var(--_muted); }
.status { grid-area: status; color: var(--_muted); }
.task[data-status="running"] .status { color: var(--_running); }
.task[data-status="stopping"] .status { color: var(--_stopping); }
.task[data-status="failed"] .status { color: var(--_failed); }
.task.settled .label { color: var(--_muted); font-weight: 400; }

.unseen {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}

@media (prefers-reduced-motion: no-preference) {
  .icon[data-status="running"]::after { animation: pulse 2s cubic-bezier(0, 0, 0.2, 1) infinite; }
  .chevron { transition: rotate 0.15s; }
  .popover { transition: opacity 0.12s, translate 0.12s; }
  @starting-style { .popover:popover-open { opacity: 0; translate: 0 -4px; } }
}
@keyframes pulse {
  from { transform: scale(1); opacity: 0.6; }
  75%, to { transform: scale(2.5); opacity: 0; }
}

@media (forced-colors: active) {
  .button { border-color: ButtonText; }
  .icon[data-status="running"]::after { forced-color-adjust: none; background: CanvasText; }
}
`;

/** Shared by every element of the document: one parse, one copy. */
export const styles = new CSSStyleSheet();
styles.replaceSync(css);
