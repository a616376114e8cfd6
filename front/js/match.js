// A marker names a document of the answer; this finds the passage of it that the marked sentence was read in.

import { fetchChunk, indexOf } from "./chunks.js";

const SENTENCE = 220;
const BLOCKS = "p, li, td, th, blockquote, h1, h2, h3, h4, h5, h6";
const CLEAR_WIN = 1.05;
const ENOUGH = 0.9;
const SHORT_LINE = 8;

/** What the answer says just before a marker. */
export function claimBefore(marker) {
  const block = marker.closest(BLOCKS);
  if (!block) return "";
  const range = document.createRange();
  range.setStart(block, 0);
  range.setEndBefore(marker);
  const row = marker.closest("tr");
  const text = row ? row.textContent : range.toString();
  return text.slice(-SENTENCE);
}

/** Pairs of neighbouring letters and figures: alike in Korean and English, whatever the endings. */
function pairs(text) {
  const letters = text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");
  const found = new Set();
  for (let at = 0; at < letters.length - 1; at += 1) found.add(letters.slice(at, at + 2));
  return found;
}

function share(claim, text) {
  const there = pairs(text);
  let common = 0;
  for (const pair of claim) if (there.has(pair)) common += 1;
  return claim.size ? common / claim.size : 0;
}

/** How much of a claim a text holds, 0..1. */
export const likeness = (claim, text) => share(pairs(claim), text);

/** Of the passages of one slot, the one that holds most of the claim; the first where none stands out. */
export async function bestPassage(claim, passages) {
  if (passages.length < 2) return passages[0];
  const wanted = pairs(claim);
  const texts = await Promise.all(passages.map(textOf));
  let best = 0;
  let score = share(wanted, texts[0]);
  for (let at = 1; at < passages.length; at += 1) {
    const other = share(wanted, texts[at]);
    if (other > score * CLEAR_WIN) {
      best = at;
      score = other;
    }
  }
  return passages[best];
}

/** Where in a passage the claim stands: the start and end of the line that shares most with it; null if none does. */
export function placeOf(claim, text) {
  const wanted = pairs(claim);
  let best = null;
  let score = ENOUGH;
  for (const match of text.matchAll(/[^\n]+/g)) {
    const line = pairs(match[0]);
    const common = share(line, claim) * Math.min(1, line.size / SHORT_LINE) + share(wanted, match[0]);
    if (common <= score) continue;
    best = { start: match.index, end: match.index + match[0].length };
    score = common;
  }
  return best;
}

/** The box that a place of the text falls into. Boxes follow the text: as wide as their letters are many. */
export function boxAt(place, text, boxes) {
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

async function textOf(source) {
  const chunk = await fetchChunk(source.document_id, indexOf(source));
  return chunk?.text ?? source.content_preview;
}
