// What an answer has beyond Markdown: source markers as buttons, copy buttons and colours on code.

import { el, icon } from "./dom.js";
import { pageLabel, t } from "./strings.js";

const MARKER = /\[(\d{1,3})\]/g;

/** Work on a fragment that is not in the page yet. `final`: its blocks will not change any more. */
export function decorate(fragment, sources, { final }) {
  wrapTables(fragment);
  for (const pre of fragment.querySelectorAll("pre")) dressCode(pre, final);
  if (sources?.length) markSources(fragment, new Map(sources.map((source) => [source.slot, source])));
}

/** Tables that are wider than their place can be moved within it. */
export function wrapTables(fragment) {
  for (const table of fragment.querySelectorAll("table")) {
    const wrap = el("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": t("table") });
    table.replaceWith(wrap);
    wrap.append(table);
  }
}

function dressCode(pre, final) {
  const code = pre.querySelector("code");
  if (!code) return;
  const language = /language-([\w+#.-]+)/.exec(code.className)?.[1] ?? "";
  const copy = el(
    "button",
    { type: "button", class: "code-copy", data: { copyCode: "" }, "aria-label": t("copy_code") },
    icon("copy", "icon-s"),
    el("span", { text: t("copy") }),
  );
  const box = el("div", { class: "code-box" }, el("div", { class: "code-head" }, el("span", { text: language }), copy));
  pre.replaceWith(box);
  pre.tabIndex = 0;
  box.append(pre);
  if (final && language) colourCode(code, language);
}

function markSources(fragment, bySlot) {
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT, {
    acceptNode: (node) =>
      node.parentElement?.closest("code, a, button") || !node.data.includes("[")
        ? NodeFilter.FILTER_REJECT
        : NodeFilter.FILTER_ACCEPT,
  });
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    const parts = partsOf(node.data, bySlot);
    if (parts.length > 1 || typeof parts[0] !== "string") node.replaceWith(...parts);
  }
}

function partsOf(text, bySlot) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(MARKER)) {
    const source = bySlot.get(Number(match[1]));
    if (!source) continue;
    if (match.index > from) parts.push(text.slice(from, match.index));
    parts.push(citation(source));
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

function citation(source) {
  const where = source.page ? `${source.document_name}, ${pageLabel(source)}` : source.document_name;
  return el("button", {
    type: "button",
    class: "cite",
    data: { slot: source.slot },
    text: String(source.slot),
    "aria-label": t("source_label", { slot: source.slot, where }),
  });
}

/** Without its colours, code stays as it is. */
async function colourCode(code, language) {
  const { highlightElement } = await import("./highlight.js");
  highlightElement(code, language);
}
