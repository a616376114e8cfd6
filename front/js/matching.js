// Finds parts of a text in the elements that show it, by their letters, which are the same before and after Markdown.

import { el } from "./dom.js";

const SKIPPED = "pre, .cite, .doubt-sign";
const ANCHOR_LETTERS = 10;
const MAX_GAP_LETTERS = 40; // letters between two sentences that belong to neither, such as list numbers
const LETTER = /[\p{L}\p{N}]/gu;
const AFTER = /^[^\s\p{L}\p{N}]+/u;

/** All letters below `root` as one string, with the place of each; elements that match `skipped` are left out. */
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
 * The ranges [from, to) of sentences in the text, null for those not found. Sentences are given as letters, in the order of
 * the text, so that a repeated one is found at each of its places; ranges do not overlap.
 */
export function findSentences(text, sentences) {
  let end = 0;
  let missed = 0; // letters of sentences not found since the last match: the next may be that much further on
  return sentences.map((letters) => {
    const found = findSentence(text, letters, end, end + missed + MAX_GAP_LETTERS);
    if (found) [end, missed] = [found[1], 0];
    else missed += letters.length;
    return found;
  });
}

/** The first range of `letters` that begins in [from, latest]; if only the middle differs, by the beginning and end. */
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

/** The parts of text nodes with the letters [from, to): {node, start, end}, in order. */
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
 * All ranges [from, to) of `letters` in `text`, ignoring case; if there is none, one that has their beginning and end. Empty
 * if they are not found.
 */
export function findLetters(text, letters) {
  const [within, wanted] = [text.toLowerCase(), letters.toLowerCase()];
  const found = [];
  if (!wanted || within.length !== text.length || wanted.length !== letters.length) return found;
  for (let at = within.indexOf(wanted); at >= 0; at = within.indexOf(wanted, at + 1)) found.push([at, at + wanted.length]);
  const near = found.length ? null : findSentence(within, wanted, 0, within.length);
  return near ? [near] : found;
}

/** Wrap the letters [from, to) of `places` in marks of this class; returns the marks, in order. */
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

/** The letters and digits of a text, which are the same before and after Markdown. */
export function toLetters(text) {
  return text.replace(/[^\p{L}\p{N}]+/gu, "");
}

/** Converts between offsets of the server, in code points, and of the page, in UTF-16 units. */
export function toUnitConverter(text) {
  const wide = []; // the offset of each character of two units
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
