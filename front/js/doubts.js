// Sentences that the evidence does not confirm: marked softly, with the reason in words.

import { checkedSentences, reasonsOf, tally } from "./checks.js";
import { el, icon } from "./dom.js";
import { hoverCard } from "./hover_card.js";
import { findAll, letterMap, stretches } from "./locate.js";
import { t, tn } from "./strings.js";

const STOPS = /^[.!?。…,;:)\]”’"']+/;
const INLINE = "strong, em, del, a, code";

/** Mark the sentences of `message` below `root` that were not confirmed. */
export function markDoubts(root, message) {
  if (!tally(message).unsupported) return;
  const { text, places } = letterMap(root);
  const sentences = checkedSentences(message);
  const found = findAll(text, sentences.map(({ letters }) => letters)).flatMap((at, number) => {
    if (!at || sentences[number].verdict !== "unsupported") return [];
    return [{ number, why: reasonsOf(sentences[number]), parts: stretches(places, ...at) }];
  });
  for (const doubt of found.reverse()) mark(doubt); // from the end: what comes before keeps its places
}

function mark({ number, why, parts }) {
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
    icon("circle-help"),
  );
  const tail = [...tailOf(marks[0])];
  const tie = el("span", { class: "doubt-tail" }, sign);
  if (tail.length) tail[0].before(tie);
  else marks[0].append(tie);
  tie.prepend(...(tail.length ? tail : [lastLetter(marks[0])]));
}

/** What the sign must not be parted from by the end of a line. */
function lastLetter(marked) {
  const words = marked.firstChild;
  return words.splitText(Math.max(words.length - 2, 0));
}

/** What follows the words of a sentence and belongs to it: its markers and its full stop. */
function* tailOf(marked) {
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

/** Say why while a mark is pointed at, has the focus or was tapped. */
export function watchDoubts(root, messageOf) {
  const fill = (card, target) => {
    const sentence = messageOf(target)?.grounding?.[Number(target.dataset.check)];
    if (!sentence) return false;
    const why = reasonsOf(sentence).map((text) => el("p", { class: "hover-why", text }));
    card.replaceChildren(
      el("div", { class: "hover-head hover-doubt" }, icon("circle-help", "icon-s"), el("strong", { text: t("doubt") })),
      ...why,
    );
    return true;
  };
  hoverCard(root, ".doubt, .doubt-sign", { id: "doubt-card", fill });
}

/** How much of the answer was confirmed, and the way to the whole of it. Null where nothing is in doubt. */
export function checksLine(message, hooks) {
  const { supported, unsupported, claims } = tally(message);
  if (!unsupported) return null;
  const more = el("button", { type: "button", class: "link-button", text: t("checks.more"), "aria-haspopup": "dialog" });
  more.addEventListener("click", () => hooks.explain(message, more, "checks"));
  const words = el("span", { text: tn("checks.some", claims, { supported }) });
  return el("p", { class: "msg-checks" }, icon("circle-help", "icon-s"), words, more);
}
