// The sentences of its sources that an answer rests on: told for a marker, marked in a passage, boxed on a page.

import { lettersOf } from "./checks.js";
import { el } from "./dom.js";
import { letterMap, stretches } from "./locate.js";
import { likeness } from "./match.js";

/** Of these sources the one whose sentence is closest to `claim`: {source, span}; no span where none has any. */
export function citedFor(claim, sources) {
  let best = { source: sources[0], span: null };
  let score = -1;
  for (const source of sources) {
    for (const span of source.spans ?? []) {
      const found = likeness(claim, span.text);
      if (found <= score) continue;
      best = { source, span };
      score = found;
    }
  }
  return best;
}

/** Boxes to draw for a source, and the number of the one to bring into sight: those of its sentences, where it has any. */
export function boxesOf(source, claim) {
  const { span } = citedFor(claim, [source]);
  const boxes = (source.spans ?? []).flatMap((one) => one.boxes);
  if (!span?.boxes.length) return null;
  return { boxes, here: boxes.indexOf(span.boxes[0]) };
}

/** Mark the sentences of a source below `root`, however they are drawn there; whether any was found. */
export function markSpans(root, spans = []) {
  const { text, places } = letterMap(root);
  let after = 0; // in their order, so that a sentence said twice is found at both its places
  const found = [...spans].sort((one, other) => one.start - other.start).map((span) => {
    const letters = lettersOf(span.text);
    const next = letters ? text.indexOf(letters, after) : -1;
    const at = next < 0 && letters ? text.indexOf(letters) : next;
    after = Math.max(after, at + letters.length);
    return [at, at + letters.length];
  });
  const apart = found.filter(([from]) => from >= 0).sort(([one], [other]) => one - other);
  let next = Infinity;
  for (const [from, to] of apart.reverse()) {
    for (const { node, start, end } of stretches(places, from, Math.min(to, next)).reverse()) wrap(node, start, end);
    next = from;
  }
  return apart.length > 0;
}

function wrap(node, start, end) {
  if (start >= end || end > node.length) return;
  node.splitText(end);
  const words = node.splitText(start);
  const mark = el("mark", { class: "cited" });
  words.replaceWith(mark);
  mark.append(words);
}
