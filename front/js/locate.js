// Finds text of an answer in its elements, where Markdown and markers are gone.

const SKIPPED = "pre, .cite, .doubt-sign";
const ANCHOR = 10;
const GAP = 40; // letters between two sentences that belong to neither, such as numbers of a list
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

/**
 * Where sentences stand in the text: [from, to) of each, null of those that are not there. They are given as letters, in
 * the order of the text, so that one said twice is found at both its places; no two places overlap.
 */
export function findAll(text, sentences) {
  let end = 0;
  let missed = 0; // letters of sentences that were looked for since: the next may stand that much further on
  return sentences.map((letters) => {
    const found = find(text, letters, end, end + missed + GAP);
    if (found) [end, missed] = [found[1], 0];
    else missed += letters.length;
    return found;
  });
}

/** The first place of `letters` that begins in [from, latest]; where only its middle differs, by its beginning and end. */
function find(text, letters, from, latest) {
  if (!letters) return null;
  const whole = text.indexOf(letters, from);
  if (whole >= 0 && whole <= latest) return [whole, whole + letters.length];
  if (letters.length < 3 * ANCHOR) return null;
  const first = text.indexOf(letters.slice(0, ANCHOR), from);
  if (first < 0 || first > latest) return null;
  const last = text.indexOf(letters.slice(-ANCHOR), first + ANCHOR);
  const isFar = last - first > letters.length * 1.5;
  return last < 0 || isFar ? null : [first, last + ANCHOR];
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
