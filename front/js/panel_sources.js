// The sources of an answer above the one shown: those it cites, then those only looked at.

import { el } from "./dom.js";
import { pageLabel, t } from "./strings.js";

/** Both groups as rows of buttons; `go(step)` moves from the source shown. Nothing where there is but one. */
export function sourceTabs(list, shown, go) {
  if (list.length < 2) return [];
  const at = list.indexOf(shown);
  const button = (source) => tab(source, source === shown, () => go(list.indexOf(source) - at));
  const group = (name, sources) =>
    sources.length
      ? el(
          "div",
          { class: "panel-group", role: "group", "aria-label": t(name) },
          el("span", { class: "panel-group-name", "aria-hidden": "true", text: t(name) }),
          sources.map(button),
        )
      : null;
  const cited = list.filter((one) => one.cited !== false);
  const reviewed = list.filter((one) => one.cited === false);
  return [group("cited", cited), group("looked_at", reviewed)].filter(Boolean);
}

function tab(source, isShown, run) {
  const page = pageLabel(source);
  const where = [source.document_name, page].filter(Boolean).join(", ");
  return el(
    "button",
    {
      type: "button",
      class: "panel-tab",
      title: where,
      "aria-label": t("source_label", { slot: source.slot, where }),
      "aria-current": isShown ? "true" : null,
      on: { click: run },
    },
    el("span", { class: "slot", text: String(source.slot) }),
    page ? el("span", { text: page }) : null,
  );
}
