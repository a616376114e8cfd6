// A trial search in one document: what it finds, how relevant that is, and whether it would do for an answer.

import { postJson } from "./api.js";
import { byId, createIcon, el } from "./dom.js";
import { formatScore } from "./format.js";
import { hasString, t } from "./strings.js";

const SCORES = ["relevance", "similarity", "bm25", "share", "coverage", "rerank"];

export function watchTrial({ page }) {
  const form = byId("trial-form");
  const root = byId("trial-found");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { query, strategy } = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(form)));
    if (!query.trim()) return;
    root.setAttribute("aria-busy", "true");
    form.inert = true;
    try {
      const found = await postJson("/search", { query, strategy, document_ids: [page.document.id] });
      root.replaceChildren(...drawResults(found, query));
    } catch (error) {
      root.replaceChildren(el("p", { class: "note note-error" }, createIcon("circle-alert"), el("span", { text: error.message })));
    }
    form.inert = false;
    root.removeAttribute("aria-busy");
  });
}

function drawResults({ hits, relevant, gate, timings_ms: timings }, query) {
  const taken = Object.values(timings ?? {}).reduce((sum, ms) => sum + ms, 0);
  return [createVerdict(relevant, gate), el("ol", { class: "trial-hits" }, hits.map((hit, at) => createHit(hit, at, query))), createSpeed(hits, taken)];
}

/** Whether the results are relevant to the question: the gate's score and the one required. */
function createVerdict(relevant, { score, threshold }) {
  const figures = { score: score.toFixed(2), threshold: threshold.toFixed(2) };
  return el(
    "p",
    { class: `note trial-verdict ${relevant ? "note-success" : "note-warning"}`, data: { relevant: String(relevant) } },
    createIcon(relevant ? "circle-check" : "info"),
    el("span", {}, el("strong", { text: t(relevant ? "trial.bears" : "trial.bears_not") }), " ", t("trial.gate", figures)),
  );
}

function createSpeed(hits, ms) {
  return el("p", { class: "trial-speed", text: t("trial.took", { count: hits.length, ms: Math.round(ms) }) });
}

function createHit(hit, at, query) {
  const scores = [["relevance", hit.score], ...Object.entries(hit.scores)].filter(([name]) => SCORES.includes(name));
  const named = new Map(scores.map(([name, value]) => [hasString(`score.${name}`) ? t(`score.${name}`) : name, value]));
  const score = ([name, value]) => el("span", { class: "trial-score" }, el("span", { text: name }), el("b", { text: formatScore(value) }));
  const index = Number(hit.chunk_id.split("_").pop());
  const button = hit.page
    ? el("button", { type: "button", class: "badge trial-page", data: { showPage: index }, text: t("page", { page: hit.page }) })
    : null;
  const kind = hasString(`chunk.${hit.kind}`) ? el("span", { class: "badge badge-accent", text: t(`chunk.${hit.kind}`) }) : null;
  return el(
    "li",
    { class: "trial-hit", data: { kind: hit.kind } },
    el("p", { class: "trial-where" }, el("b", { text: `${at + 1}` }), button, kind, el("span", { text: hit.section || `#${index}` })),
    hit.header ? el("p", { class: "chunk-header", text: hit.header }) : null,
    el("p", { class: "trial-text" }, markWords(hit.text, query)),
    el("p", { class: "trial-scores" }, [...named].map(score)),
  );
}

const HANGUL = /^\p{N}*\p{Script=Hangul}+$/u; // "77의", too
const MAX_PARTICLE_LETTERS = 2; // letters that a Korean word may lose to its particle
const MIN_WORD_LETTERS = 2;

/** The text as nodes, with the words of `query` as <mark>. */
export function markWords(text, query) {
  const words = listWordForms(query);
  if (!words.length) return [text];
  // Letters and figures only: nothing in them means anything to a pattern.
  const pattern = new RegExp(words.join("|"), "giu");
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(pattern)) {
    parts.push(text.slice(at, found.index), el("mark", { text: found[0] }));
    at = found.index + found[0].length;
  }
  return [...parts, text.slice(at)];
}

/** The words as they may occur in the text, the longest first: "예산은" also as "예산". */
function listWordForms(query) {
  const found = new Set();
  for (const [word] of query.matchAll(/[\p{L}\p{N}]+/gu)) {
    const least = HANGUL.test(word) ? Math.max(MIN_WORD_LETTERS, word.length - MAX_PARTICLE_LETTERS) : word.length;
    for (let length = word.length; length >= least; length -= 1) if (length >= MIN_WORD_LETTERS) found.add(word.slice(0, length));
  }
  return [...found].sort((one, other) => other.length - one.length);
}
