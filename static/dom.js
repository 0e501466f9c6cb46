/**
 * Small steps on the document, shared by all that draws.
 *
 * Promise: what is already so is not touched, so that drawing again costs no style or layout, and a text
 * selection keeps its text node. Everything goes in as text, never as HTML.
 */

export function drawing(shape) {
  const namespace = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(namespace, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  const path = document.createElementNS(namespace, 'path');
  path.setAttribute('d', shape);
  svg.append(path);
  return svg;
}

export function element(name, className, attributes = {}) {
  const made = document.createElement(name);
  made.className = className;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

/** An equal value is left alone, so that drawing again costs no style or layout; null takes it away. */
export function setAttribute(target, name, value) {
  if (target.getAttribute(name) === value) return;
  if (value === null) target.removeAttribute(name);
  else target.setAttribute(name, value);
}

/** The text node is kept: one that is replaced takes a selection with it. */
export function setText(target, text) {
  if (target.firstChild === null) target.append(text);
  else if (target.firstChild.data !== text) target.firstChild.data = text;
}

/** A text that may be cut at the row's end, and whole in its title. */
export function setTitled(target, text) {
  setText(target, text);
  setAttribute(target, 'title', text);
}

/**
 * Puts `wanted` in order into `list` with as few moves as matter: elements known to be `restless` give way,
 * all others keep still, and `pinned` is never touched, whatever must move around it.
 */
export function arrange(list, wanted, restless, pinned) {
  let cursor = list.firstElementChild;
  for (const item of wanted) {
    while (cursor && cursor !== item && cursor !== pinned && (item === pinned || restless.has(cursor))) {
      const next = cursor.nextElementSibling;
      cursor.remove();
      cursor = next;
    }
    if (cursor === item) cursor = item.nextElementSibling;
    else list.insertBefore(item, cursor);
  }
}

/** The `lang` that applies to an element, across the shadow roots it stands in; empty when none does. */
export function nearestLanguage(start) {
  for (let node = start; node; node = node.getRootNode().host) {
    const holder = node.closest('[lang]');
    if (holder) return holder.getAttribute('lang');
  }
  return '';
}
