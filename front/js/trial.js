// A search tried on one document: what it finds, how near, and whether it would be enough for an answer.

import { post } from "./api.js";
import { byId, el, icon } from "./dom.js";
import { marked } from "./marked.js";
import { has, t } from "./strings.js";

const SCORES = ["relevance", "similarity", "bm25", "share", "coverage", "rerank"];

export function watchTrial({ page }) {
  const form = byId("trial-form");
  const root = byId("trial-found");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { query, strategy } = Object.fromEntries(new FormData(form));
    if (!query.trim()) return;
    root.setAttribute("aria-busy", "true");
    form.inert = true;
    try {
      const found = await post("/search", { query, strategy, document_ids: [page.document.id] });
      root.replaceChildren(...drawn(found, query));
    } catch (error) {
      root.replaceChildren(el("p", { class: "note note-error" }, icon("circle-alert"), el("span", { text: error.message })));
    }
    form.inert = false;
    root.removeAttribute("aria-busy");
  });
}

function drawn({ hits, relevant, gate, timings_ms: timings }, query) {
  const taken = Object.values(timings ?? {}).reduce((sum, ms) => sum + ms, 0);
  return [verdict(relevant, gate), el("ol", { class: "trial-hits" }, hits.map((hit, at) => row(hit, at, query))), speed(hits, taken)];
}

/** Whether what was found bears on the question: the gate's figure beside the one that it needs. */
function verdict(relevant, { score, threshold }) {
  const figures = { score: score.toFixed(2), threshold: threshold.toFixed(2) };
  return el(
    "p",
    { class: `note trial-verdict ${relevant ? "note-success" : "note-warning"}`, data: { relevant: String(relevant) } },
    icon(relevant ? "circle-check" : "info"),
    el("span", {}, el("strong", { text: t(relevant ? "trial.bears" : "trial.bears_not") }), " ", t("trial.gate", figures)),
  );
}

function speed(hits, ms) {
  return el("p", { class: "trial-speed", text: t("trial.took", { count: hits.length, ms: Math.round(ms) }) });
}

function row(hit, at, query) {
  const scores = [["relevance", hit.score], ...Object.entries(hit.scores)].filter(([name]) => SCORES.includes(name));
  const named = new Map(scores.map(([name, value]) => [has(`score.${name}`) ? t(`score.${name}`) : name, value]));
  const score = ([name, value]) => el("span", { class: "trial-score" }, el("span", { text: name }), el("b", { text: figure(value) }));
  const index = Number(hit.chunk_id.split("_").pop());
  const button = hit.page
    ? el("button", { type: "button", class: "badge trial-page", data: { showPage: index }, text: t("page", { page: hit.page }) })
    : null;
  const kind = has(`chunk.${hit.kind}`) ? el("span", { class: "badge badge-accent", text: t(`chunk.${hit.kind}`) }) : null;
  return el(
    "li",
    { class: "trial-hit", data: { kind: hit.kind } },
    el("p", { class: "trial-where" }, el("b", { text: `${at + 1}` }), button, kind, el("span", { text: hit.section || `#${index}` })),
    hit.header ? el("p", { class: "chunk-header", text: hit.header }) : null,
    el("p", { class: "trial-text" }, marked(hit.text, query)),
    el("p", { class: "trial-scores" }, [...named].map(score)),
  );
}

function figure(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 3);
}
