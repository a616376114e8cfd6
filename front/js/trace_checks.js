// What became of the finished text, in the steps of an answer: its sentences against the evidence, its style.

import { checkedSentences, reasonsOf, tally } from "./checks.js";
import { el, icon } from "./dom.js";
import { has, t, tn } from "./strings.js";
import { facts, part } from "./trace_parts.js";

const SIGNS = { supported: "circle-check", unsupported: "circle-help", plain: "quote" };

/** Every sentence with its verdict. Null where none was checked. */
export function checksPart(message) {
  const sentences = checkedSentences(message).filter(({ text }) => text);
  if (!sentences.length) return null;
  const { supported, claims } = tally(message);
  const section = part(
    t("checks"),
    el("p", { class: "trace-rest", text: claims ? tn("checks.some", claims, { supported }) : t("checks.none") }),
    el("ol", { class: "trace-checks" }, sentences.map(row)),
  );
  section.dataset.part = "checks";
  section.tabIndex = -1;
  return section;
}

function row(sentence) {
  const { verdict, slots, text } = sentence;
  const markers = (slots ?? []).map((slot) => el("span", { class: "slot", text: String(slot) }));
  const told = verdict === "unsupported" ? reasonsOf(sentence).join(" ") : t(`verdict.${verdict}`);
  return el(
    "li",
    { class: `check-${verdict}` },
    icon(SIGNS[verdict] ?? SIGNS.plain, "icon-s"),
    el("div", {}, el("p", { text }), el("small", {}, el("span", { text: told }), markers)),
  );
}

/** Whether the light model put the answer into other words. Null where it was not asked to. */
export function stylePart(style) {
  if (!style) return null;
  const kept = style.draft_kept;
  const why = has(`style.kept.${kept}`) ? t(`style.kept.${kept}`) : t("style.kept.failed");
  return part(t("style"), facts([[t("style.result"), kept ? why : t("style.done")], [t("style.model"), style.model]]));
}
