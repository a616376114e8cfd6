// The quiet line under an answer: how it came about, where it looked, when.

import { isBound, scopeChip } from "./answer_scope.js";
import { el, icon } from "./dom.js";
import { longTime, shortTime, t, tn } from "./strings.js";

const BADGES = {
  documents: "badge badge-accent",
  document: "badge badge-accent",
  passages: "badge badge-accent",
  partial: "badge badge-warn",
  insufficient: "badge badge-warn",
};
const FIXED = new Set(["document", "clarify"]); // no sentence of ours is in them

export function label(message, hooks) {
  const { scope, usage, created_at: time, status } = message;
  const parts = [];
  if (message.mode && status === "COMPLETED") parts.push(groundsOf(message));
  const names = message.sources ? namesOf(scope?.filters) : "";
  if (names) {
    const text = t("filter.kept", { names });
    parts.push(el("span", { class: "badge msg-kept", title: text }, icon("list-filter", "icon-s"), el("span", { text })));
  }
  const chip = names && !isBound(scope) ? null : scopeChip(message, hooks);
  if (chip) parts.push(chip);
  if (time) parts.push(el("time", { datetime: time, title: usageText(usage, time), text: shortTime(time) }));
  return el("span", { class: "msg-label" }, parts);
}

/** What an answer rests on, in a word; how it came about, where it was not checked. */
function groundsOf({ mode, label: grounds }) {
  const told = grounds && !FIXED.has(mode);
  const name = told ? BADGES[grounds] : BADGES[mode];
  return el("span", {
    class: name ?? "badge",
    text: t(told ? `label.${grounds}` : `mode.${mode}`),
    title: told ? t(`label.${grounds}.more`) : null,
    data: { label: grounds ?? "" },
  });
}

/** Names that the question gave, as they are read: field -> "one | another". */
function namesOf(filters) {
  return Object.values(filters ?? {})
    .flatMap((names) => names.split(" | "))
    .map((name) => t("filter.name", { name }))
    .join(", ");
}

/** Says that the document named holds nothing and others were searched. */
export function filterNote({ scope, sources }) {
  const names = namesOf(scope?.dropped_filters);
  if (!names || !sources) return null;
  return el("p", { class: "msg-dropped" }, icon("info", "icon-s"), el("span", { text: t("filter.dropped", { names }) }));
}

function usageText(usage, time) {
  const tokens = usage?.total_tokens ?? (usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0);
  const spoken = tokens ? tn("tokens", tokens) : "";
  return [longTime(time), spoken].filter(Boolean).join(" · ");
}
