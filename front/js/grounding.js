// The checked sentences of an answer: which its sources confirm, and why others are doubtful.

import { createIcon, el, watchHoverCard } from "./dom.js";
import { renderMarkdown } from "./markdown.js";
import { findSentences, findStretches, mapLetters, toLetters } from "./matching.js";
import { hasString, t } from "./strings.js";

const MARKER = /\[\d{1,3}\]/g;
const BARS = /\s*\|\s*/g;

/**
 * The checked sentences, in order: {text, letters, verdict, slots, reasons}. `text` is the sentence as shown, without its
 * markers.
 */
export function listCheckedSentences({ content, grounding }) {
  if (!grounding?.length) return [];
  const characters = Array.from(content); // offsets count code points, strings count UTF-16
  return grounding.map((found) => {
    const shown = renderMarkdown(characters.slice(found.start, found.end).join("")).textContent;
    const bare = shown.replace(MARKER, "").replace(BARS, " ").replace(/\s+/g, " ");
    const text = bare.replace(/ (?=[.,!?])/g, "").trim();
    return { ...found, text, letters: toLetters(text) };
  });
}

/** The number of sentences that claim something, and of those that the evidence confirms. */
export function countVerdicts({ grounding }) {
  const count = (verdict) => (grounding ?? []).filter((one) => one.verdict === verdict).length;
  const [supported, unsupported] = [count("supported"), count("unsupported")];
  return { supported, unsupported, claims: supported + unsupported };
}

/** The reasons why a sentence was not confirmed, in words. */
export function describeReasons({ reasons }) {
  const told = (reasons ?? []).map((reason) => `doubt.${reason}`).filter(hasString);
  return told.length ? told.map((key) => t(key)) : [t("doubt.overlap")];
}

const STOPS = /^[.!?。…,;:)\]”’"']+/;
const INLINE = "strong, em, del, a, code";

/** Mark the sentences of `message` below `root` that were not confirmed. */
export function markDoubts(root, message) {
  if (!countVerdicts(message).unsupported) return;
  const { text, places } = mapLetters(root);
  const sentences = listCheckedSentences(message);
  const found = findSentences(text, sentences.map(({ letters }) => letters)).flatMap((at, number) => {
    if (!at || sentences[number].verdict !== "unsupported") return [];
    return [{ number, why: describeReasons(sentences[number]), parts: findStretches(places, ...at) }];
  });
  for (const doubt of found.reverse()) insertDoubt(doubt); // from the end, so that earlier offsets stay valid
}

function insertDoubt({ number, why, parts }) {
  const marks = parts.reverse().map(({ node, start, end }) => {
    node.splitText(end);
    const words = node.splitText(start);
    const marked = el("span", { class: "doubt", data: { check: number } });
    words.replaceWith(marked);
    marked.append(words);
    return marked;
  });
  const label = [t("doubt"), ...why].join(" ");
  const sign = el(
    "button",
    { type: "button", class: "doubt-sign", data: { check: number }, "aria-label": label },
    createIcon("circle-help"),
  );
  const tail = [...walkTail(marks[0])];
  const tie = el("span", { class: "doubt-tail" }, sign);
  if (tail.length) tail[0].before(tie);
  else marks[0].append(tie);
  tie.prepend(...(tail.length ? tail : [splitLastLetter(marks[0])]));
}

/** Split off the last letter, which must stay on one line with the sign. */
function splitLastLetter(marked) {
  const words = marked.firstChild;
  return words.splitText(Math.max(words.length - 2, 0));
}

/** What follows the words of a sentence and belongs to it: its markers and its full stop. */
function* walkTail(marked) {
  let first = marked;
  while (!first.nextSibling?.textContent && first.parentElement.matches(INLINE)) first = first.parentElement;
  let between = [];
  for (let node = first.nextSibling; node; node = node.nextSibling) {
    if (node.nodeType === Node.TEXT_NODE) {
      const stop = STOPS.exec(node.data);
      if (stop) node.splitText(stop[0].length);
      if (!stop && node.data.trim()) return;
      between.push(node);
      if (!stop) continue;
    } else if (node.matches?.(".cite")) between.push(node);
    else return;
    yield* between;
    between = [];
  }
}

/** Show the reason while a mark is hovered, focused or tapped. */
export function watchDoubts(root, getMessage) {
  const fill = (card, target) => {
    const sentence = getMessage(target)?.grounding?.[Number(target.dataset.check)];
    if (!sentence) return false;
    const why = describeReasons(sentence).map((text) => el("p", { class: "hover-why", text }));
    card.replaceChildren(
      el("div", { class: "hover-head hover-doubt" }, createIcon("circle-help", "icon-s"), el("strong", { text: t("doubt") })),
      ...why,
    );
    return true;
  };
  watchHoverCard(root, ".doubt, .doubt-sign", { id: "doubt-card", fill });
}
