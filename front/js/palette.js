// Search over everything, opened by Ctrl+K: chats, messages, documents and their text.

import { toAddress } from "./address.js";
import { getJson } from "./api.js";
import { announce, byId, createIcon, el } from "./dom.js";
import { locale, t, tn } from "./strings.js";

const WAIT_MS = 90; // after the last letter
const MAX_RECENT = 8;

const dialog = byId("palette");
const input = byId("palette-input");
const results = byId("palette-list");
let asking = null;
let timer = null;
let active = null;

/** Open or close the search. */
export function togglePalette() {
  if (dialog.open) {
    dialog.close();
    return;
  }
  dialog.showModal();
  input.select();
  search();
}

/** The text with its hits marked; offsets count code points. */
function markText(excerpt, marks) {
  const signs = [...excerpt];
  const parts = [];
  let at = 0;
  for (const [start, end] of marks) {
    parts.push(signs.slice(at, start).join(""), el("mark", { text: signs.slice(start, end).join("") }));
    at = end;
  }
  return [...parts, signs.slice(at).join("")];
}

let optionNumber = 0;

function createOption(path, icon, main, extra = null) {
  optionNumber += 1;
  return el(
    "a",
    { class: "palette-item", href: toAddress(path), role: "option", id: `palette-option-${optionNumber}`, tabindex: "-1", "aria-selected": "false" },
    createIcon(icon, "icon-s"),
    el("span", { class: "palette-text" }, el("span", { class: "palette-main" }, main), extra ? el("small", {}, extra) : null),
  );
}

function createGroup(key, options) {
  if (!options.length) return null;
  const title = t(`palette.${key}`);
  return el("div", { role: "group", "aria-label": title }, el("div", { class: "palette-heading", "aria-hidden": "true", text: title }), options);
}

const toQuery = (values) => new URLSearchParams(values).toString();

function createResults(found, q) {
  const day = (at) => new Date(at).toLocaleDateString(locale, { month: "short", day: "numeric" });
  return [
    createGroup("chats", found.chats.map((one) => createOption(`/c/${one.chat_id}`, "message-square", markText(one.excerpt, one.marks)))),
    createGroup(
      "messages",
      found.messages.map((one) =>
        createOption(
          `/c/${one.chat_id}?${toQuery({ message: one.message_id, q })}`,
          one.role === "user" ? "user" : "sparkles",
          markText(one.excerpt, one.marks),
          [one.chat_title, " · ", day(one.created_at)],
        ),
      ),
    ),
    createGroup("documents", found.documents.map((one) => createOption(`/documents/${one.document_id}`, "file-text", markText(one.excerpt, one.marks)))),
    createGroup(
      "passages",
      found.passages.map((one) =>
        createOption(
          `/documents/${one.document_id}?${toQuery({ chunk: one.chunk_id.split("_").pop(), q })}`,
          "file-search",
          markText(one.excerpt, one.marks),
          [one.document_name, one.page ? ` · ${t("page", { page: one.page })}` : "", one.section ? ` · ${one.section}` : ""],
        ),
      ),
    ),
  ].filter(Boolean);
}

function createActions() {
  const link = (id) => document.querySelector(id).getAttribute("href");
  return createGroup("actions", [
    createOption(link(".side-new"), "square-pen", t("palette.new_chat")),
    createOption(link(".side-documents"), "files", t("palette.all_documents")),
  ]);
}

async function search() {
  const q = input.value.trim();
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    if (!q) {
      const recent = await getJson(`/chats?archived=false&page_size=${MAX_RECENT}`, { signal });
      const chats = recent.results.map((one) => createOption(`/c/${one.id}`, "clock", one.title));
      show([createActions(), createGroup("recent", chats)].filter(Boolean));
      return;
    }
    const found = await getJson(`/find?${toQuery({ q })}`, { signal });
    const groups = createResults(found, q);
    show(groups.length ? groups : [el("p", { class: "palette-none", text: t("no_match") })]);
    announce(tn("palette.found", results.querySelectorAll("[role=option]").length));
  } catch (error) {
    if (error.name !== "AbortError") show([el("p", { class: "palette-none", text: error.message })]);
  }
}

function show(groups) {
  results.replaceChildren(...groups);
  activate(results.querySelector("[role=option]"));
}

function activate(option) {
  active?.setAttribute("aria-selected", "false");
  active = option;
  input.toggleAttribute("aria-activedescendant", false);
  if (!option) return;
  option.setAttribute("aria-selected", "true");
  input.setAttribute("aria-activedescendant", option.id);
  option.scrollIntoView({ block: "nearest" }); // the dialog is fixed: nothing behind it moves
}

input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, WAIT_MS);
});
input.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    const options = [...results.querySelectorAll("[role=option]")];
    if (options.length) activate(options[(options.indexOf(active) + step + options.length) % options.length]);
  } else if (event.key === "Escape") {
    event.preventDefault(); // otherwise it would only clear the field
    dialog.close();
  } else if (event.key === "Enter") {
    event.preventDefault();
    active?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey: event.ctrlKey, metaKey: event.metaKey }));
  }
});
results.addEventListener("mousemove", (event) => {
  const option = event.target.closest("[role=option]");
  if (option && option !== active) activate(option);
});
results.addEventListener("click", (event) => {
  const option = event.target.closest("[role=option]");
  if (option && !event.ctrlKey && !event.metaKey) dialog.close();
});
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
for (const button of document.querySelectorAll("[data-open-palette]")) button.addEventListener("click", togglePalette);
