// Finds text of an answer in its elements, where Markdown and markers are gone.

const SKIPPED = "pre, .cite, .doubt-sign";
const ANCHOR = 10;
const LETTER = /[\p{L}\p{N}]/gu;
const AFTER = /^[^\s\p{L}\p{N}]+/u;

/** All letters below `root` as one string, with the place of each. */
export function letterMap(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT, {
    acceptNode: (node) => (node.parentElement.closest(SKIPPED) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT),
  });
  const places = [];
  let text = "";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (const { 0: letter, index } of node.data.matchAll(LETTER)) {
      text += letter;
      for (let unit = 0; unit < letter.length; unit += 1) places.push({ node, offset: index + unit });
    }
  }
  return { text, places };
}

/** Where `letters` stand in the text: [from, to), the occurrence nearest to `at` (0..1); null where they do not. */
export function find(text, letters, at) {
  if (!letters) return null;
  const hint = at * text.length;
  const whole = nearest(text, letters, hint);
  if (whole >= 0) return [whole, whole + letters.length];
  if (letters.length < 3 * ANCHOR) return null;
  const from = nearest(text, letters.slice(0, ANCHOR), hint);
  const to = from < 0 ? -1 : text.indexOf(letters.slice(-ANCHOR), from + ANCHOR);
  const isFar = to - from > letters.length * 1.5;
  return to < 0 || isFar ? null : [from, to + ANCHOR];
}

function nearest(text, letters, hint) {
  let best = -1;
  for (let at = text.indexOf(letters); at >= 0; at = text.indexOf(letters, at + 1)) {
    if (best < 0 || Math.abs(at - hint) < Math.abs(best - hint)) best = at;
  }
  return best;
}

/** The stretches of text nodes from the letter `from` to before the letter `to`: {node, start, end}, in order. */
export function stretches(places, from, to) {
  const found = [];
  for (const { node, offset } of places.slice(from, to)) {
    const last = found.at(-1);
    if (last?.node === node) last.end = offset + 1;
    else found.push({ node, start: offset, end: offset + 1 });
  }
  found.forEach((one, index) => {
    if (index > 0) one.start = 0;
    if (index < found.length - 1) one.end = one.node.data.length;
    else one.end += AFTER.exec(one.node.data.slice(one.end))?.[0].length ?? 0;
  });
  return found;
}
