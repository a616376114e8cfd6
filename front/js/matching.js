// Finds stretches of a text in the elements that show it, by their letters: these are the same before and after Markdown.

import { el } from "./dom.js";

const SKIPPED = "pre, .cite, .doubt-sign";
const ANCHOR_LETTERS = 10;
const MAX_GAP_LETTERS = 40; // letters between two sentences that belong to neither, such as numbers of a list
const LETTER = /[\p{L}\p{N}]/gu;
const AFTER = /^[^\s\p{L}\p{N}]+/u;

/** All letters below `root` as one string, with the place of each; what matches `skipped` is passed over. */
export function mapLetters(root, skipped = SKIPPED) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT, {
    acceptNode: (node) => (skipped && node.parentElement.closest(skipped) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT),
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
export function findSentences(text, sentences) {
  let end = 0;
  let missed = 0; // letters of sentences that were looked for since: the next may stand that much further on
  return sentences.map((letters) => {
    const found = findSentence(text, letters, end, end + missed + MAX_GAP_LETTERS);
    if (found) [end, missed] = [found[1], 0];
    else missed += letters.length;
    return found;
  });
}

/** The first place of `letters` that begins in [from, latest]; where only its middle differs, by its beginning and end. */
function findSentence(text, letters, from, latest) {
  if (!letters) return null;
  const whole = text.indexOf(letters, from);
  if (whole >= 0 && whole <= latest) return [whole, whole + letters.length];
  if (letters.length < 3 * ANCHOR_LETTERS) return null;
  const first = text.indexOf(letters.slice(0, ANCHOR_LETTERS), from);
  if (first < 0 || first > latest) return null;
  const last = text.indexOf(letters.slice(-ANCHOR_LETTERS), first + ANCHOR_LETTERS);
  const isFar = last - first > letters.length * 1.5;
  return last < 0 || isFar ? null : [first, last + ANCHOR_LETTERS];
}

/** The stretches of text nodes from the letter `from` to before the letter `to`: {node, start, end}, in order. */
export function findStretches(places, from, to) {
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

/**
 * The places [from, to) in `text` where `letters` stand, whatever their case; one where only their beginning and their end
 * do. Empty where they are not there.
 */
export function findLetters(text, letters) {
  const [within, wanted] = [text.toLowerCase(), letters.toLowerCase()];
  const found = [];
  if (!wanted || within.length !== text.length || wanted.length !== letters.length) return found;
  for (let at = within.indexOf(wanted); at >= 0; at = within.indexOf(wanted, at + 1)) found.push([at, at + wanted.length]);
  const near = found.length ? null : findSentence(within, wanted, 0, within.length);
  return near ? [near] : found;
}

/** Wrap the letters [from, to) of `places` in marks of this class; the marks, in order. */
export function wrapLetters(places, from, to, className) {
  const marks = findStretches(places, from, to).reverse().map(({ node, start, end }) => wrapInMark(node, start, end, className));
  return marks.filter(Boolean).reverse();
}

function wrapInMark(node, start, end, className) {
  if (start >= end || end > node.length) return null;
  node.splitText(end);
  const words = node.splitText(start);
  const mark = el("mark", { class: className });
  words.replaceWith(mark);
  mark.append(words);
  return mark;
}

/** Letters and figures alone: they are the same before and after Markdown. */
export function toLetters(text) {
  return text.replace(/[^\p{L}\p{N}]+/gu, "");
}

/** Offsets of Python count code points, those of the page UTF-16 units: both ways between them. */
export function toUnitConverter(text) {
  const wide = []; // of each character of two units, where it begins
  for (const { index } of text.matchAll(/[\u{10000}-\u{10ffff}]/gu)) wide.push(index);
  if (!wide.length) return { fromPoints: (at) => at, toPoints: (at) => at };
  const countBefore = (at, shift) => {
    let [low, high] = [0, wide.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (wide[middle] - (shift ? middle : 0) < at) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return { fromPoints: (at) => at + countBefore(at, true), toPoints: (at) => at - countBefore(at, false) };
}
