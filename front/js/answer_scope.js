// Where Nura searched for an answer, as a chip below it; a tap shows more and offers to search elsewhere.

import { createIcon, el, placeBeside } from "./dom.js";
import { hasString, t, tn } from "./strings.js";

const MAX_NAMES = 6;
const TOPICS = ["wider", "same", "new"];
const SIGNS = { wider: "zoom-in", same: "target", new: "sparkles" };

/** The sentence that says where Nura searched, as a button if there is more to show or change; null if there is nothing. */
export function createScopeChip(message, hooks) {
  const words = describeScope(message, hooks);
  if (!words) return null;
  const names = listDocumentNames(message.scope, hooks);
  const tip = names.length ? joinNames(names, countNamed(message.scope)) : null;
  const text = el("span", { class: "scope-words", text: words });
  if (!hasMoreChoices(message, hooks)) return el("span", { class: "msg-scope", title: tip }, text);
  const chip = el(
    "button",
    { type: "button", class: "msg-scope scope-tap", title: tip, "aria-haspopup": "dialog", "aria-expanded": "false" },
    text,
    createIcon("chevron-down", "icon-s"),
  );
  chip.addEventListener("click", () => openScopeMenu(chip, message, names, hooks));
  return chip;
}

/** Whether the documents were taken from the conversation, not chosen by the reader. */
function isBoundScope(scope) {
  return scope.widened || scope.reason === "followup" || scope.reason === "slot";
}

const UNSEARCHED = new Set(["clarify", "document"]);
const IN_VAIN = new Set(["general", "insufficient"]);

/** Where Nura searched, as a sentence; empty if it did not search, or if that is nothing special. */
export function describeScope(message, hooks) {
  const { scope, mode, label, sources } = message;
  if (label === "conversation" && !(scope && isBoundScope(scope))) return t("label.conversation.more");
  if (label === "tools") return t("label.tools.more");
  if (!scope?.reason || !scope.document_ids?.length || UNSEARCHED.has(mode) || message.question_type === "smalltalk") return "";
  if (scope.widened && sources) return t("scope.widened");
  const libraries = isBoundScope(scope) ? [] : (scope.library_ids ?? []);
  const names = sources && !isBoundScope(scope) ? describeFilters(scope.filters) : "";
  if (names) return t("filter.kept", { names });
  if (IN_VAIN.has(label) && !sources) return tn("scope.in_vain", scope.document_ids.length);
  if (scope.reason === "slot") return describeSlots(message, hooks);
  if (libraries.length) return describeLibraries(libraries, hooks);
  const key = `scope.${scope.reason}`;
  return hasString(key) ? tn(key, scope.document_ids.length) : "";
}

/** The name of one library and the number of others; only their number if the reader may no longer read any. */
function describeLibraries(ids, hooks) {
  const names = ids.map((id) => hooks.getDocumentName(id)).filter(Boolean);
  if (!names.length) return tn("scope.libraries_unnamed", ids.length);
  return t("scope.libraries", { names: joinNames(names.slice(0, 1), ids.length) });
}

/** Filters named in the question, in words: field -> "one | another". */
export function describeFilters(filters) {
  return Object.values(filters ?? {})
    .flatMap((names) => names.split(" | "))
    .map((name) => t("filter.name", { name }))
    .join(", ");
}

/** "in document 1", as numbered in the answer before; if that did not show them, their name or number. */
function describeSlots(message, hooks) {
  const ids = message.scope.document_ids;
  const shown = hooks.listEarlier(message).findLast((one) => one.sources?.length)?.sources ?? [];
  const slots = ids.map((id) => shown.find((source) => source.document_id === id)?.slot);
  const name = ids.length === 1 ? hooks.getDocumentName(ids[0]) : "";
  if (!slots.every(Boolean)) return name ? t("scope.slot_named", { name }) : tn("scope.slot", ids.length);
  const numbers = slots.map((slot) => t("scope.slot_number", { slot }));
  return t("scope.slots", { slots: numbers.join(", ") });
}

function listDocumentNames(scope, hooks) {
  if (scope.reason === "all") return [];
  if (scope.library_ids?.length) return scope.library_ids.slice(0, MAX_NAMES).map((id) => hooks.getDocumentName(id)).filter(Boolean);
  return scope.document_ids.slice(0, MAX_NAMES).map((id) => hooks.getDocumentName(id)).filter(Boolean);
}

/** The number of libraries searched, else that of documents. */
function countNamed(scope) {
  return scope.library_ids?.length || scope.document_ids.length;
}

function joinNames(names, count) {
  const rest = count - names.length;
  return rest > 0 ? tn("names.more", rest, { name: names.join(", ") }) : names.join(", ");
}

/** The query if it differs from the question; whole documents and clarifying questions have none. */
function readRewrittenQuery(message, hooks) {
  if (message.mode === "document" || message.mode === "clarify") return "";
  const query = message.scope.standalone_query?.trim() ?? "";
  const asked = hooks.listEarlier(message).at(-1)?.content.trim() ?? "";
  return query && query !== asked ? query : "";
}

/** Only a question with earlier answers can be related to them differently. */
function hasMoreChoices(message, hooks) {
  const earlier = hooks.listEarlier(message).some((one) => one.sources?.length);
  return earlier || isBoundScope(message.scope) || Boolean(readRewrittenQuery(message, hooks));
}

/** What the search was limited to, as one of the choices; none if the question referred to sources by number. */
function readTopic({ reason, widened, follows }) {
  if (reason === "slot") return "";
  if (reason === "followup" && !widened) return "same";
  return follows || widened ? "wider" : "new";
}

function openScopeMenu(chip, message, names, hooks) {
  const query = readRewrittenQuery(message, hooks);
  const menu = el(
    "div",
    { class: "menu scope-menu", popover: "auto", role: "dialog", "aria-label": t("scope.menu") },
    names.length ? createNameList(names, message.scope) : null,
    query ? createQueryPart(query, () => close(() => hooks.setText(query))) : null,
    el("div", { role: "group", "aria-label": t("regenerate") }, TOPICS.map((topic) => choice(topic))),
  );
  function choice(topic) {
    const chosen = readTopic(message.scope) === topic;
    const key = topic === "same" && message.scope.reason !== "followup" ? "topic.same_previous" : `topic.${topic}`;
    const item = el(
      "button",
      { type: "button", class: "menu-item", data: { topic }, "aria-pressed": String(chosen), disabled: hooks.isBusy() },
      createIcon(chosen ? "check" : SIGNS[topic]),
      t(key),
    );
    item.addEventListener("click", () => close(chosen ? () => chip.focus() : () => hooks.regenerate(message, topic)));
    return item;
  }
  function close(then) {
    menu.hidePopover();
    then();
  }
  menu.addEventListener("toggle", ({ newState }) => {
    chip.setAttribute("aria-expanded", String(newState === "open"));
    if (newState === "open") return;
    if (menu.contains(document.activeElement)) chip.focus({ preventScroll: true });
    menu.remove();
  });
  document.body.append(menu);
  menu.showPopover();
  placeBeside(menu, chip);
  menu.querySelector("button:not(:disabled)")?.focus({ preventScroll: true });
}

function createNameList(names, scope) {
  const rest = countNamed(scope) - names.length;
  const icon = scope.library_ids?.length ? "folder" : "file-text";
  const items = names.map((name) => el("li", {}, createIcon(icon, "icon-s"), el("span", { text: name })));
  if (rest > 0) items.push(el("li", { class: "scope-rest", text: tn("names.rest", rest) }));
  return el("ul", { class: "scope-names" }, items);
}

function createQueryPart(query, edit) {
  return el(
    "div",
    { class: "scope-query" },
    el("small", { text: t("scope.query") }),
    el("p", { text: query }),
    el("button", { type: "button", class: "link-button", data: { action: "edit-query" }, on: { click: edit } }, t("scope.edit_query")),
  );
}
