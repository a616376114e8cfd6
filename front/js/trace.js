// How an answer was made: each step in words, beside the thread.

import { describeFallback } from "./answer.js";
import { describeScope } from "./answer_scope.js";
import { getJson } from "./api.js";
import { createIcon, el, scrollWithin } from "./dom.js";
import { formatDateTime, formatPages, formatScore, formatTimeAgo } from "./format.js";
import { countVerdicts, describeReasons, listCheckedSentences } from "./grounding.js";
import { hasString, locale, t, tn } from "./strings.js";

const MAX_CANDIDATES = 10;
const LAYERS = ["system", "query", "recent", "profile", "long_term", "documents"];
const TIMES = ["understand", "retrieve", "recall", "select", "first_delta", "generate", "check", "revise", "style", "total"];
const SCORES = ["relevance", "similarity", "bm25", "share", "coverage", "rerank"];

/** Open the panel with the steps of an answer, at one of its parts; `hooks` are those of its `AnswerView`. */
export async function explainAnswer(panel, message, opener, hooks, at = "") {
  const root = el("div", { class: "trace", "aria-busy": "true" }, el("div", { class: "skeleton" }));
  panel.openPart(t("why"), root, opener);
  const trace = await getJson(`/messages/${message.id}/trace`).catch((error) => error);
  root.removeAttribute("aria-busy");
  if (trace instanceof Error) {
    root.replaceChildren(el("p", { class: "note note-error" }, createIcon("circle-alert"), el("span", { text: trace.message })));
    return;
  }
  const found = [
    createKeptPart(trace.cache),
    createQuestionPart(trace),
    createSearchPart(trace, describeScope(message, hooks)),
    createGatePart(trace.gate),
    createCandidatesPart(trace.candidates),
    createChecksPart(message),
    createStylePart(trace.style),
    createHistoryPart(trace.history),
    createProfilePart(trace.profile),
    createExplorationPart(trace.exploration),
    createTokensPart(trace.token_plan, Boolean(trace.trimmed)),
    createTimesPart(trace.timings_ms),
  ].filter(Boolean);
  if (!found.length) found.push(el("p", { class: "note" }, createIcon("info"), el("span", { text: t("trace.none") })));
  root.replaceChildren(...found);
  const place = at && root.querySelector(`[data-part="${at}"]`);
  if (place) scrollWithin(place);
}

/** That it is a stored answer, and whether it was made for another wording. Null for other answers. */
function createKeptPart(cache) {
  if (!cache) return null;
  const rows = [
    [t("trace.kept_at"), `${formatDateTime(cache.made_at)} (${formatTimeAgo(cache.made_at)})`],
    [t("trace.kept_for"), t(cache.near ? "trace.kept_near" : "trace.kept_same")],
    [t("trace.kept_question"), cache.question ?? ""],
  ];
  return createPart(t("trace.kept"), createFacts(rows), el("p", { class: "trace-rest", text: t("trace.kept_steps") }));
}

/** How the question was understood, and why. */
function createQuestionPart(trace) {
  const question = trace.question ?? { type: trace.question_type };
  if (!question.type) return null;
  const bond = typeof question.follows === "boolean" ? t(question.follows ? "trace.follows" : "trace.alone") : "";
  const found = Object.entries(question.signals ?? {}).filter(([name, weight]) => weight > 0 && hasString(`signal.${name}`));
  const signs = [...new Set(found.map(([name]) => t(`signal.${name}`)))];
  return createPart(
    t("trace.question"),
    createFacts([
      [t("trace.kind"), describeKnown("kind", question.type)],
      [t("trace.intent"), describeIntent(question)],
      [t("trace.bond"), bond],
      [t("trace.by"), describeKnown("by", question.by)],
      [t("trace.reference"), describeReference(trace.reference)],
    ]),
    signs.length ? createList(signs) : null,
  );
}

/** How it was to be answered, and the reason if that was unusual. */
function describeIntent({ intent, intent_by: by }) {
  if (!intent || !hasString(`intent.${intent}`)) return "";
  const name = t(`intent.${intent}`);
  return hasString(`intent_by.${by}`) ? `${name} (${t(`intent_by.${by}`)})` : name;
}

/** The documents that the question referred to by place. */
function describeReference(reference) {
  if (!reference) return "";
  if (reference.unclear) return describeKnown("unclear", reference.unclear);
  return (reference.documents ?? []).map(({ slot, title }) => `${t("scope.slot_number", { slot })} ${title}`).join(", ");
}

/** What was searched, and with which words. */
function createSearchPart(trace, where) {
  const { text, by } = trace.standalone ?? {};
  const names = Object.values({ ...trace.plan?.filters, ...trace.plan?.dropped_filters }).join(", ");
  const rows = [
    [t("trace.where"), where],
    [t("trace.widened"), trace.scope?.widened ? t("scope.widened") : ""],
    [t("trace.words"), trace.plan ? (text ?? trace.plan.standalone_query ?? "") : ""],
    [t("trace.words_by"), trace.plan ? describeKnown("by", by) : ""],
    [t("trace.named"), names],
    [t("trace.strategy"), describeKnown("strategy", trace.plan?.strategy)],
    [t("trace.fallback"), trace.fallback ? describeFallback(trace.fallback.code) : ""],
  ];
  return rows.some(([, value]) => value) ? createPart(t("trace.search"), createFacts(rows)) : null;
}

function describeKnown(group, name) {
  return name && hasString(`${group}.${name}`) ? t(`${group}.${name}`) : "";
}

function createGatePart(gate) {
  if (!Number.isFinite(gate?.score)) return null;
  const words = t(gate.relevant ? "trace.relevant" : "trace.irrelevant", {
    score: gate.score.toFixed(2),
    threshold: gate.threshold.toFixed(2),
  });
  return createPart(t("trace.gate"), createBars([{ label: "", value: gate.score, most: 1, mark: gate.threshold, text: words }]));
}

function createCandidatesPart(found) {
  if (!found?.length) return null;
  const item = ({ document_name: name, page, section, scores }) => {
    const told = SCORES.filter((key) => Number.isFinite(scores?.[key])).map((key) => `${t(`score.${key}`)} ${formatScore(scores[key])}`);
    const where = [formatPages({ page }), section].filter(Boolean).join(" · ");
    return el(
      "li",
      {},
      el("strong", { text: name }),
      where ? el("span", { text: where }) : null,
      told.length ? el("small", { text: told.join(" · ") }) : null,
    );
  };
  const rest = found.length - MAX_CANDIDATES;
  return createPart(
    t("trace.candidates"),
    el("ol", { class: "trace-candidates" }, found.slice(0, MAX_CANDIDATES).map(item)),
    rest > 0 ? el("p", { class: "trace-rest", text: tn("names.rest", rest) }) : null,
  );
}

/** The parts of the conversation that were read. */
function createHistoryPart(history) {
  if (!history) return null;
  const turns = (history.selected ?? []).map((one) => t("trace.turn", { number: one })).join(", ");
  const rows = [
    [t("trace.recent"), history.messages ? tn("trace.messages", history.messages) : t("trace.no_messages")],
    [t("trace.selected"), turns],
    [t("trace.summary"), history.summary_through ? t("trace.summary_through", { number: history.summary_through }) : ""],
  ];
  return createPart(t("trace.history"), createFacts(rows));
}

function createExplorationPart(exploration) {
  if (!exploration?.steps?.length) return null;
  const stopped = describeKnown("stopped", exploration.stopped);
  return createPart(t("trace.exploration"), createSteps(exploration.steps), stopped ? el("p", { class: "trace-rest", text: stopped }) : null);
}

/** What was remembered about the user and used; null if nothing was. */
function createProfilePart(profile) {
  const slots = profile?.known ?? [];
  if (!slots.length) return null;
  const rows = slots.map(({ title, key, value, unit }) => [[title, key === value ? "" : key].filter(Boolean).join(" · "), `${value} ${unit}`.trim()]);
  return createPart(t("trace.profile"), createFacts(rows));
}

function createTokensPart(plan, trimmed) {
  if (!plan?.layers) return null;
  const most = Math.max(1, ...Object.values(plan.layers).flatMap(({ planned, used }) => [planned ?? 0, used ?? 0]));
  const rows = LAYERS.filter((name) => plan.layers[name]).map((name) => {
    const { planned = 0, used = 0 } = plan.layers[name];
    const text = t("trace.used_of", { used: formatAmount(used), planned: formatAmount(planned) });
    return { label: t(`layer.${name}`), value: used, most, mark: planned, text };
  });
  const left = plan.dropped?.passages;
  const dropped = left ? tn("dropped.passages", left) : "";
  const counted = plan.counter ? t(plan.counter === "estimate" ? "trace.estimated" : "trace.counted") : "";
  const total = t("trace.total", { total: formatAmount(plan.total ?? 0) });
  const notes = [total, counted, dropped, trimmed && t("trace.trimmed")].filter(Boolean);
  return createPart(t("trace.tokens"), createBars(rows), el("p", { class: "trace-rest", text: notes.join(" · ") }));
}

function createTimesPart(timings) {
  const rows = TIMES.filter((name) => Number.isFinite(timings?.[name])).map((name) => [t(`time.${name}`), formatDuration(timings[name])]);
  return rows.length ? createPart(t("trace.times"), createFacts(rows)) : null;
}

const SIGNS = { supported: "circle-check", unsupported: "circle-help", plain: "quote" };

/** Each sentence with its verdict; null if none was checked. */
export function createChecksPart(message) {
  const sentences = listCheckedSentences(message).filter(({ text }) => text);
  if (!sentences.length) return null;
  const { supported, claims } = countVerdicts(message);
  const section = createPart(
    t("checks"),
    el("p", { class: "trace-rest", text: claims ? tn("checks.some", claims, { supported }) : t("checks.none") }),
    el("ol", { class: "trace-checks" }, sentences.map(createCheckRow)),
  );
  section.dataset.part = "checks";
  section.tabIndex = -1;
  return section;
}

function createCheckRow(sentence) {
  const { verdict, slots, text } = sentence;
  const markers = (slots ?? []).map((slot) => el("span", { class: "slot", text: String(slot) }));
  const told = verdict === "unsupported" ? describeReasons(sentence).join(" ") : t(`verdict.${verdict}`);
  return el(
    "li",
    { class: `check-${verdict}` },
    createIcon(SIGNS[verdict] ?? SIGNS.plain, "icon-s"),
    el("div", {}, el("p", { text }), el("small", {}, el("span", { text: told }), markers)),
  );
}

/** Whether the light model rephrased the answer; null if it was not asked to. */
export function createStylePart(style) {
  if (!style) return null;
  const kept = style.draft_kept;
  const why = hasString(`style.kept.${kept}`) ? t(`style.kept.${kept}`) : t("style.kept.failed");
  return createPart(t("style"), createFacts([[t("style.result"), kept ? why : t("style.done")], [t("style.model"), style.model]]));
}

/** A section with its heading. */
export function createPart(title, ...children) {
  return el("section", { class: "trace-part" }, el("h3", { text: title }), children);
}

/** Names and values; rows without a value are left out. */
export function createFacts(rows) {
  const told = rows.filter(([, value]) => value);
  return el("dl", { class: "trace-facts" }, told.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
}

export function createList(texts) {
  return el("ul", { class: "trace-list" }, texts.map((text) => el("li", { text })));
}

/** A small bar: `value` of `most`, with a line at `mark`; `text` says the same in words. */
export function createBars(rows) {
  const share = (value, most) => `${Math.min(100, (100 * value) / most)}%`;
  return el(
    "ul",
    { class: "trace-bars" },
    rows.map(({ label, value, most, mark, text }) => {
      const filled = el("span", { class: "trace-fill" });
      filled.style.width = share(value, most);
      const line = el("span", { class: "trace-mark" });
      line.style.left = share(mark, most);
      const words = el("span", { class: "trace-words" }, label ? el("span", { text: label }) : null, el("small", { text }));
      return el("li", {}, words, el("span", { class: "trace-bar", "aria-hidden": "true" }, filled, line));
    }),
  );
}

/** The steps of a search through the conversation, in order. */
export function createSteps(found) {
  return el(
    "ol",
    { class: "trace-list" },
    found.map(({ tool, ms }) => {
      const name = hasString(`tool.${tool}`) ? t(`tool.${tool}`) : t("tool.other");
      return el("li", {}, el("span", { text: name }), Number.isFinite(ms) ? el("small", { text: ` ${formatDuration(ms)}` }) : null);
    }),
  );
}

export function formatAmount(count) {
  return Math.round(count).toLocaleString(locale);
}

export function formatDuration(ms) {
  if (ms < 1) return t("trace.under_ms");
  return ms < 1000 ? t("trace.ms", { ms: Math.round(ms) }) : t("trace.seconds", { seconds: (ms / 1000).toFixed(1) });
}
