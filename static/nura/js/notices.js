// What the reader must know of an answer that came about all the same.

import { el, icon } from "./dom.js";

const BEFORE = new Set(["embedder_failed", "retrieval_failed"]);

/** Whether a notice is to be read before the answer; the others stand where the answer ends. */
export function comesFirst({ code }) {
  return BEFORE.has(code);
}

/** Each sentence once, whatever its codes. */
export function notes(notices) {
  const sentences = new Set(notices.map(({ detail }) => detail).filter(Boolean));
  return [...sentences].map((text) =>
    el("p", { class: "note note-warning msg-told", role: "note" }, icon("triangle-alert"), el("span", { text })),
  );
}
