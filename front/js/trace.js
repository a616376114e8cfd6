// Why an answer is as it is: every step of it in words, beside the thread.

import { get } from "./api.js";
import { scopeWords } from "./answer_scope.js";
import { el, icon } from "./dom.js";
import { fallbackWords } from "./notices.js";
import { scrollWithin } from "./scrolling.js";
import { has, locale, pageLabel, t, tn } from "./strings.js";
import { checksPart, stylePart } from "./trace_checks.js";
import { amount, bars, facts, list, part, steps, time } from "./trace_parts.js";

const CANDIDATES = 10;
const LAYERS = ["system", "query", "recent", "long_term", "documents"];
const TIMES = ["understand", "retrieve", "recall", "select", "first_delta", "generate", "check", "revise", "style", "total"];
const SCORES = ["relevance", "similarity", "bm25", "share", "coverage", "rerank"];

/** Open the panel with the steps of a message, at one of its parts; `hooks` are those of its `AnswerView`. */
export async function explain(panel, message, opener, hooks, at = "") {
  const root = el("div", { class: "trace", "aria-busy": "true" }, el("div", { class: "skeleton" }));
  panel.openPart(t("why"), root, opener);
  const trace = await get(`/messages/${message.id}/trace`).catch((error) => error);
  root.removeAttribute("aria-busy");
  if (trace instanceof Error) {
    root.replaceChildren(el("p", { class: "note note-error" }, icon("circle-alert"), el("span", { text: trace.message })));
    return;
  }
  const found = [
    asked(trace),
    searched(trace, scopeWords(message, hooks)),
    verdict(trace.gate),
    candidates(trace.candidates),
    checksPart(message),
    stylePart(trace.style),
    recalled(trace.history),
    explored(trace.exploration),
    tokens(trace.token_plan, Boolean(trace.trimmed)),
    times(trace.timings_ms),
  ].filter(Boolean);
  if (!found.length) found.push(el("p", { class: "note" }, icon("info"), el("span", { text: t("trace.none") })));
  root.replaceChildren(...found);
  const place = at && root.querySelector(`[data-part="${at}"]`);
  if (place) scrollWithin(place);
}

/** What kind of question it was taken for, and why. */
function asked(trace) {
  const question = trace.question ?? { type: trace.question_type };
  if (!question.type) return null;
  const bond = typeof question.follows === "boolean" ? t(question.follows ? "trace.follows" : "trace.alone") : "";
  const found = Object.entries(question.signals ?? {}).filter(([name, weight]) => weight > 0 && has(`signal.${name}`));
  const signs = [...new Set(found.map(([name]) => t(`signal.${name}`)))];
  return part(
    t("trace.question"),
    facts([
      [t("trace.kind"), known("kind", question.type)],
      [t("trace.bond"), bond],
      [t("trace.by"), known("by", question.by)],
      [t("trace.reference"), referred(trace.reference)],
    ]),
    signs.length ? list(signs) : null,
  );
}

/** The documents that the question named by their place. */
function referred(reference) {
  if (!reference) return "";
  if (reference.unclear) return known("unclear", reference.unclear);
  return (reference.documents ?? []).map(({ slot, title }) => `${t("scope.slot_number", { slot })} ${title}`).join(", ");
}

/** Where was looked, and in which words. */
function searched(trace, where) {
  const { text, by } = trace.standalone ?? {};
  const names = Object.values({ ...trace.plan?.filters, ...trace.plan?.dropped_filters }).join(", ");
  const rows = [
    [t("trace.where"), where],
    [t("trace.widened"), trace.scope?.widened ? t("scope.widened") : ""],
    [t("trace.words"), trace.plan ? (text ?? trace.plan.standalone_query ?? "") : ""],
    [t("trace.words_by"), trace.plan ? known("by", by) : ""],
    [t("trace.named"), names],
    [t("trace.strategy"), known("strategy", trace.plan?.strategy)],
    [t("trace.fallback"), trace.fallback ? fallbackWords(trace.fallback.code) : ""],
  ];
  return rows.some(([, value]) => value) ? part(t("trace.search"), facts(rows)) : null;
}

function known(group, name) {
  return name && has(`${group}.${name}`) ? t(`${group}.${name}`) : "";
}

function verdict(gate) {
  if (!Number.isFinite(gate?.score)) return null;
  const words = t(gate.relevant ? "trace.relevant" : "trace.irrelevant", {
    score: gate.score.toFixed(2),
    threshold: gate.threshold.toFixed(2),
  });
  return part(t("trace.gate"), bars([{ label: "", value: gate.score, most: 1, mark: gate.threshold, text: words }]));
}

function candidates(found) {
  if (!found?.length) return null;
  const item = ({ document_name: name, page, section, scores }) => {
    const told = SCORES.filter((key) => Number.isFinite(scores?.[key])).map((key) => `${t(`score.${key}`)} ${number(scores[key])}`);
    const where = [pageLabel({ page }), section].filter(Boolean).join(" · ");
    return el(
      "li",
      {},
      el("strong", { text: name }),
      where ? el("span", { text: where }) : null,
      told.length ? el("small", { text: told.join(" · ") }) : null,
    );
  };
  const rest = found.length - CANDIDATES;
  return part(
    t("trace.candidates"),
    el("ol", { class: "trace-candidates" }, found.slice(0, CANDIDATES).map(item)),
    rest > 0 ? el("p", { class: "trace-rest", text: tn("names.rest", rest) }) : null,
  );
}

function number(value) {
  return value.toLocaleString(locale, { maximumFractionDigits: value < 10 ? 2 : 0 });
}

/** What of the conversation was read. */
function recalled(history) {
  if (!history) return null;
  const turns = (history.selected ?? []).map((one) => t("trace.turn", { number: one })).join(", ");
  const rows = [
    [t("trace.recent"), history.messages ? tn("trace.messages", history.messages) : t("trace.no_messages")],
    [t("trace.selected"), turns],
    [t("trace.summary"), history.summary_through ? t("trace.summary_through", { number: history.summary_through }) : ""],
  ];
  return part(t("trace.history"), facts(rows));
}

function explored(exploration) {
  if (!exploration?.steps?.length) return null;
  const stopped = known("stopped", exploration.stopped);
  return part(t("trace.exploration"), steps(exploration.steps), stopped ? el("p", { class: "trace-rest", text: stopped }) : null);
}

function tokens(plan, trimmed) {
  if (!plan?.layers) return null;
  const most = Math.max(1, ...Object.values(plan.layers).flatMap(({ planned, used }) => [planned ?? 0, used ?? 0]));
  const rows = LAYERS.filter((name) => plan.layers[name]).map((name) => {
    const { planned = 0, used = 0 } = plan.layers[name];
    const text = t("trace.used_of", { used: amount(used), planned: amount(planned) });
    return { label: t(`layer.${name}`), value: used, most, mark: planned, text };
  });
  const left = plan.dropped?.passages;
  const dropped = left ? tn("dropped.passages", left) : "";
  const counted = plan.counter ? t(plan.counter === "estimate" ? "trace.estimated" : "trace.counted") : "";
  const total = t("trace.total", { total: amount(plan.total ?? 0) });
  const notes = [total, counted, dropped, trimmed && t("trace.trimmed")].filter(Boolean);
  return part(t("trace.tokens"), bars(rows), el("p", { class: "trace-rest", text: notes.join(" · ") }));
}

function times(timings) {
  const rows = TIMES.filter((name) => Number.isFinite(timings?.[name])).map((name) => [t(`time.${name}`), time(timings[name])]);
  return rows.length ? part(t("trace.times"), facts(rows)) : null;
}
