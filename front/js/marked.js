// The words of a question, marked in a text.

import { el } from "./dom.js";

const HANGUL = /^\p{N}*\p{Script=Hangul}+$/u; // "77의", too
const ENDING = 2; // letters that a Korean word may lose to its particle
const SHORTEST = 2;

/** The text as nodes, with what stands in `query` as <mark>. */
export function marked(text, query) {
  const words = forms(query);
  if (!words.length) return [text];
  // Letters and figures only: nothing in them means anything to a pattern.
  const pattern = new RegExp(words.join("|"), "giu");
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(pattern)) {
    parts.push(text.slice(at, found.index), el("mark", { text: found[0] }));
    at = found.index + found[0].length;
  }
  return [...parts, text.slice(at)];
}

/** Words as they may stand in the text, the longest first: "예산은" also as "예산". */
function forms(query) {
  const found = new Set();
  for (const [word] of query.matchAll(/[\p{L}\p{N}]+/gu)) {
    const least = HANGUL.test(word) ? Math.max(SHORTEST, word.length - ENDING) : word.length;
    for (let length = word.length; length >= least; length -= 1) if (length >= SHORTEST) found.add(word.slice(0, length));
  }
  return [...found].sort((one, other) => other.length - one.length);
}
