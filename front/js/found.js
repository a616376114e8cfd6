// Highlights found words without changing the elements: the browser paints the ranges.

import { scrollWithin } from "./dom.js";

const NAME = "found";
const MAX_MARKS = 500; // nobody looks at more, and each has to be painted

/** Ranges of the words in the text of `root`, whatever their case. */
function findRanges(root, words) {
  const wanted = words.map((word) => word.toLowerCase()).filter(Boolean);
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node && found.length < MAX_MARKS; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    if (text.length !== node.data.length) continue; // a letter that is longer in lower case would shift the offsets
    for (const word of wanted) {
      for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + word.length);
        found.push(range);
      }
    }
  }
  return found;
}

/** Highlight the words in `root` and scroll to the first, or to `root` if there is none. */
export function highlightWords(root, words) {
  const ranges = findRanges(root, words);
  if (globalThis.CSS?.highlights) CSS.highlights.set(NAME, new Highlight(...ranges));
  scrollWithin(ranges[0]?.startContainer.parentElement ?? root, 0.3);
}

/** The words of a search in the address. */
export const readSearchedWords = () => (new URLSearchParams(location.search).get("q") ?? "").split(/\s+/).filter(Boolean);
