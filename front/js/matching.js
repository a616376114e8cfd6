// Finds what an answer says in the texts that it rests on, and in the elements that show them.

import { fetchChunk, readChunkIndex } from "./api.js";
import { el } from "./dom.js";

const MAX_CLAIM_CHARACTERS = 220;
const BLOCKS = "p, li, td, th, blockquote, h1, h2, h3, h4, h5, h6";
const CLEAR_WIN = 1.05;
const MIN_LIKENESS = 0.9;
const SHORT_LINE = 8;

/** What the answer says just before a marker. */
export function readClaimBefore(marker) {
  const block = marker.closest(BLOCKS);
  if (!block) return "";
  const range = document.createRange();
  range.setStart(block, 0);
  range.setEndBefore(marker);
  const row = marker.closest("tr");
  const text = row ? row.textContent : range.toString();
  return text.slice(-MAX_CLAIM_CHARACTERS);
}

/** Pairs of neighbouring letters and figures: alike in Korean and English, whatever the endings. */
function collectLetterPairs(text) {
  const letters = text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");
  const found = new Set();
  for (let at = 0; at < letters.length - 1; at += 1) found.add(letters.slice(at, at + 2));
  return found;
}

function measureShare(claim, text) {
  const there = collectLetterPairs(text);
  let common = 0;
  for (const pair of claim) if (there.has(pair)) common += 1;
  return claim.size ? common / claim.size : 0;
}

/** How much of a claim a text holds, 0..1. */
export const measureLikeness = (claim, text) => measureShare(collectLetterPairs(claim), text);

/** Of the passages of one slot, the one that holds most of the claim; the first where none stands out. */
export async function selectBestPassage(claim, passages) {
  if (passages.length < 2) return passages[0];
  const wanted = collectLetterPairs(claim);
  const texts = await Promise.all(passages.map(readPassageText));
  let best = 0;
  let score = measureShare(wanted, texts[0]);
  for (let at = 1; at < passages.length; at += 1) {
    const other = measureShare(wanted, texts[at]);
    if (other > score * CLEAR_WIN) {
      best = at;
      score = other;
    }
  }
  return passages[best];
}

/** Where in a passage the claim stands: the start and end of the line that shares most with it; null if none does. */
export function findClaim(claim, text) {
  const wanted = collectLetterPairs(claim);
  let best = null;
  let score = MIN_LIKENESS;
  for (const match of text.matchAll(/[^\n]+/g)) {
    const line = collectLetterPairs(match[0]);
    const common = measureShare(line, claim) * Math.min(1, line.size / SHORT_LINE) + measureShare(wanted, match[0]);
    if (common <= score) continue;
    best = { start: match.index, end: match.index + match[0].length };
    score = common;
  }
  return best;
}

/** The box that a place of the text falls into. Boxes follow the text: as wide as their letters are many. */
export function findBoxAt(place, text, boxes) {
  if (!place) return 0;
  const lines = text.split("\n").filter((line) => line.trim());
  if (lines.length === boxes.length) {
    return text.slice(0, place.start).split("\n").filter((line) => line.trim()).length;
  }
  const widths = boxes.map((box) => box.x1 - box.x0);
  const total = widths.reduce((sum, width) => sum + width, 0);
  let left = (total * (place.start + place.end)) / 2 / text.length;
  const found = widths.findIndex((width) => (left -= width) <= 0);
  return Math.max(found, 0);
}

async function readPassageText(source) {
  const chunk = await fetchChunk(source.document_id, readChunkIndex(source));
  return chunk?.text ?? source.content_preview;
}

const SKIPPED = "pre, .cite, .doubt-sign";
const ANCHOR_LETTERS = 10;
const MAX_GAP_LETTERS = 40; // letters between two sentences that belong to neither, such as numbers of a list
const LETTER = /[\p{L}\p{N}]/gu;
const AFTER = /^[^\s\p{L}\p{N}]+/u;

/** All letters below `root` as one string, with the place of each. */
export function mapLetters(root) {
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

/** Of these sources the one whose sentence is closest to `claim`: {source, span}; no span where none has any. */
export function selectCitedSpan(claim, sources) {
  let best = { source: sources[0], span: null };
  let score = -1;
  for (const source of sources) {
    for (const span of source.spans ?? []) {
      const found = measureLikeness(claim, span.text);
      if (found <= score) continue;
      best = { source, span };
      score = found;
    }
  }
  return best;
}

/** Boxes to draw for a source, and the number of the one to bring into sight: those of its sentences, where it has any. */
export function selectBoxes(source, claim) {
  const { span } = selectCitedSpan(claim, [source]);
  const boxes = (source.spans ?? []).flatMap((one) => one.boxes);
  if (!span?.boxes.length) return null;
  return { boxes, here: boxes.indexOf(span.boxes[0]) };
}

/** Mark the sentences of a source below `root`, however they are drawn there; whether any was found. */
export function markSpans(root, spans = []) {
  const { text, places } = mapLetters(root);
  let after = 0; // in their order, so that a sentence said twice is found at both its places
  const found = [...spans].sort((one, other) => one.start - other.start).map((span) => {
    const letters = toLetters(span.text);
    const next = letters ? text.indexOf(letters, after) : -1;
    const at = next < 0 && letters ? text.indexOf(letters) : next;
    after = Math.max(after, at + letters.length);
    return [at, at + letters.length];
  });
  const apart = found.filter(([from]) => from >= 0).sort(([one], [other]) => one - other);
  let next = Infinity;
  for (const [from, to] of apart.reverse()) {
    for (const { node, start, end } of findStretches(places, from, Math.min(to, next)).reverse()) wrapInMark(node, start, end);
    next = from;
  }
  return apart.length > 0;
}

function wrapInMark(node, start, end) {
  if (start >= end || end > node.length) return;
  node.splitText(end);
  const words = node.splitText(start);
  const mark = el("mark", { class: "cited" });
  words.replaceWith(mark);
  mark.append(words);
}

/** Letters and figures alone: they are the same before and after Markdown. */
export function toLetters(text) {
  return text.replace(/[^\p{L}\p{N}]+/gu, "");
}
