/** Contrast as it is painted, for what axe leaves undecided. */

/**
 * Every text, and every status icon, in the list and its button, with the contrast (WCAG 2.2, 1.4.3) of its
 * colour to what is painted under it. Run in the page.
 *
 * @param {Element} host the widget
 * @returns {{what: string, text: boolean, ratio: number}[]}
 */
export function contrasts(host) {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const ancestors = (element) => {
    const all = [];
    for (let node = element; node; node = node.parentElement ?? node.getRootNode().host) all.unshift(node);
    return all;
  };
  /** One pixel of these colours painted over each other. */
  const painted = (colours) => {
    canvas.fillStyle = '#fff';
    canvas.fillRect(0, 0, 1, 1);
    for (const colour of colours) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (pixel) => {
    const [red, green, blue] = pixel.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratio = (element) => {
    const under = ancestors(element).map((node) => getComputedStyle(node).backgroundColor);
    const [light, dark] = [painted(under), painted([...under, getComputedStyle(element).color])].map(luminance).sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const seen = [...host.shadowRoot.querySelectorAll('*')].filter((element) => element.checkVisibility() && !element.closest('.unseen'));
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  return [
    ...seen.filter(hasText).map((element) => ({ what: element.textContent, text: true, ratio: ratio(element) })),
    ...seen.filter((element) => element.matches('.icon')).map((element) => ({ what: element.title, text: false, ratio: ratio(element) })),
  ];
}
