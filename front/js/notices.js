// What the reader must know of an answer that came about all the same.

import { el, icon } from "./dom.js";
import { has, t } from "./strings.js";

const AT_THE_END = new Set(["answer_cut"]);

/** Whether a notice is to be read before the answer, or where the answer ends. */
export function comesFirst({ code }) {
  return !AT_THE_END.has(code);
}

/** What went wrong with the search of an answer. */
export function fallbackWords(code) {
  const key = `step.${code}`;
  return t(has(key) ? key : "step.fallback");
}

/** Each sentence once, whatever its codes. */
export function notes(notices) {
  const sentences = new Set(notices.map(({ detail }) => detail).filter(Boolean));
  return [...sentences].map((text) =>
    el("p", { class: "note note-warning msg-told", role: "note" }, icon("triangle-alert"), el("span", { text })),
  );
}
