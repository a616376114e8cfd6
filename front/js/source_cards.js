// The sources under an answer: a card for each document.

import { isCited } from "./citations.js";
import { createIcon, el } from "./dom.js";
import { t, tn } from "./strings.js";

/** Sources grouped by slot: a group for each document, as the markers count them. */
function groupBySlot(sources) {
  const groups = new Map();
  for (const source of sources) groups.set(source.slot, [...(groups.get(source.slot) ?? []), source]);
  return [...groups.values()];
}

/** The pages of the passages. */
function listPages(group) {
  const pages = group.flatMap((one) => [one.page, ...(one.boxes ?? []).map((box) => box.page)]);
  return [...new Set(pages.filter(Boolean))].sort((one, other) => one - other);
}

/** Cards of the cited documents, and a button that shows those only read. Null if the answer has no sources. */
export function createSourceCards(message, hooks) {
  const all = groupBySlot(message.sources ?? []);
  if (!all.length) return null;
  const hasCited = (group) => group.some((source) => isCited(source, message));
  const cited = all.filter(hasCited);
  const reviewed = all.filter((group) => !hasCited(group));
  const shown = cited.length ? cited : reviewed;
  const section = el(
    "section",
    { class: "cards", "aria-label": t("sources") },
    cited.length || message.status !== "COMPLETED" ? null : el("p", { class: "cards-none", text: t("none_cited") }),
    el("ul", { class: "card-list" }, shown.map((group) => createSourceCard(group, message, hooks))),
  );
  if (cited.length && reviewed.length) section.append(createReviewedList(reviewed, message, hooks));
  return section;
}

function createReviewedList(reviewed, message, hooks) {
  const list = el("ul", { class: "card-list", hidden: true }, reviewed.map((group) => createSourceCard(group, message, hooks)));
  const button = el("button", { type: "button", class: "cards-more", "aria-expanded": "false" }, tn("reviewed", reviewed.length));
  button.addEventListener("click", () => {
    list.hidden = !list.hidden;
    button.setAttribute("aria-expanded", String(!list.hidden));
  });
  return el("div", {}, button, list);
}

function createSourceCard(group, message, hooks) {
  const [source] = group;
  const pages = listPages(group);
  const section = group.length === 1 ? source.section : "";
  const facts = [pages.length ? t("page", { page: pages.join(", ") }) : "", section].filter(Boolean);
  if (!facts.length) facts.push(tn("passages", group.length));
  if (source.unreadable) facts.splice(0, facts.length, t("unreadable"));
  const button = el(
    "button",
    { type: "button", class: `source-card ${source.unreadable ? "source-closed" : ""}`, title: source.document_name, data: { source: source.chunk_id } },
    source.unreadable ? createIcon("lock", "icon-s") : el("span", { class: "slot", text: String(source.slot) }),
    el(
      "span",
      { class: "source-text" },
      el("span", { class: "source-name", text: source.document_name }),
      el("span", { class: "source-facts", text: facts.join(" · ") }),
    ),
  );
  button.addEventListener("click", () => hooks.openSource(message, source, button));
  return el("li", {}, button);
}
