// The sources under an answer, and the small card that a marker shows when pointed at.

import { el, icon } from "./dom.js";
import { hoverCard } from "./hover_card.js";
import { claimBefore } from "./match.js";
import { citedFor } from "./spans.js";
import { pageLabel, t, tn } from "./strings.js";

/** Passages by their slot: one group a document, as the markers count them. */
function bySlot(sources) {
  const groups = new Map();
  for (const source of sources) groups.set(source.slot, [...(groups.get(source.slot) ?? []), source]);
  return [...groups.values()];
}

/** Every page that the passages touch. */
function pagesOf(group) {
  const pages = group.flatMap((one) => [one.page, ...(one.boxes ?? []).map((box) => box.page)]);
  return [...new Set(pages.filter(Boolean))].sort((one, other) => one - other);
}

/** Cited documents as cards; those only looked at behind a button. Null when the answer has none. */
export function sourceCards(message, hooks) {
  const all = bySlot(message.sources ?? []);
  if (!all.length) return null;
  const isCited = (group) => group.some((source) => source.cited !== false);
  const cited = all.filter(isCited);
  const reviewed = all.filter((group) => !isCited(group));
  const shown = cited.length ? cited : reviewed;
  const section = el(
    "section",
    { class: "cards", "aria-label": t("sources") },
    cited.length ? null : el("p", { class: "cards-none", text: t("none_cited") }),
    el("ul", { class: "card-list" }, shown.map((group) => card(group, message, hooks))),
  );
  if (cited.length && reviewed.length) section.append(more(reviewed, message, hooks));
  return section;
}

function more(reviewed, message, hooks) {
  const list = el("ul", { class: "card-list", hidden: true }, reviewed.map((group) => card(group, message, hooks)));
  const button = el("button", { type: "button", class: "cards-more", "aria-expanded": "false" }, tn("reviewed", reviewed.length));
  button.addEventListener("click", () => {
    list.hidden = !list.hidden;
    button.setAttribute("aria-expanded", String(!list.hidden));
  });
  return el("div", {}, button, list);
}

function card(group, message, hooks) {
  const [source] = group;
  const pages = pagesOf(group);
  const section = group.length === 1 ? source.section : "";
  const facts = [pages.length ? t("page", { page: pages.join(", ") }) : "", section].filter(Boolean);
  if (!facts.length) facts.push(tn("passages", group.length));
  const button = el(
    "button",
    { type: "button", class: "source-card", title: source.document_name, data: { source: source.chunk_id } },
    el("span", { class: "slot", text: String(source.slot) }),
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

/** Show what a marker stands for while it is pointed at or has the focus. */
export function watchMarkers(root, sourcesOf) {
  const show = (card, marker) => {
    const sources = sourcesOf(marker)?.filter((one) => one.slot === Number(marker.dataset.slot));
    if (!sources?.length) return false;
    fill(card, citedFor(claimBefore(marker), sources));
    marker.setAttribute("aria-describedby", card.id);
    return true;
  };
  const { hide } = hoverCard(root, ".cite", { id: "hover-card", fill: show });
  root.addEventListener("click", (event) => event.target.closest(".cite") && hide());
}

function fill(card, { source, span }) {
  const facts = [pageLabel(span?.page ? { page: span.page } : source), source.section].filter(Boolean).join(" · ");
  card.replaceChildren(
    el("div", { class: "hover-head" }, icon("file-text", "icon-s"), el("strong", { text: source.document_name })),
    facts ? el("p", { class: "hover-facts", text: facts }) : "",
    el("p", { class: "hover-text", text: span?.text ?? source.content_preview }),
  );
}
