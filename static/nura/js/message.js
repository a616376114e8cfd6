// An answer of the thread as elements.

import { isBound, scopeChip } from "./answer_scope.js";
import { sourceCards } from "./cards.js";
import { el, icon, iconButton } from "./dom.js";
import { thumbs } from "./feedback.js";
import { candidateButtons, partBar } from "./offers.js";
import { StreamedMarkdown } from "./stream.js";
import { has, locale, longTime, pageLabel, shortTime, t, tn } from "./strings.js";
import { Switcher } from "./switcher.js";
import { copyText } from "./toast.js";

const BROKEN = new Set(["FAILED", "INTERRUPTED", "STOPPED"]);

/** An answer: whole from the start, or growing while events arrive. */
export class AnswerView {
  /**
   * `hooks`: openSource(message, source, opener, claim), regenerate(message, topic), step(message, by),
   * send(content, documents), put(text), explain(message, opener), busy(), before(message), titleOf(id).
   */
  constructor(message, hooks) {
    this.message = message;
    this.hooks = hooks;
    this.switcher = new Switcher((by) => hooks.step(this.message, by));
    this.step = el("p", { class: "msg-step" });
    this.notice = el("div", { class: "msg-notice" });
    this.body = el("div", { class: "prose" });
    this.foot = el("div", { class: "msg-end" });
    this.root = el(
      "article",
      { class: "msg msg-answer", data: { messageId: message.id } },
      el("h3", { class: "visually-hidden", text: t("answer") }),
      this.notice,
      this.step,
      this.body,
      this.foot,
    );
    this.stream = new StreamedMarkdown(this.body, () => this.message.sources);
    if (message.status === "STREAMING") this.begin();
    else this.complete(message);
  }

  begin() {
    this.root.setAttribute("aria-busy", "true");
    this.foot.replaceChildren(this.switcher.root);
    this.notice.replaceChildren();
    this.showStep(t("step.thinking"));
  }

  /** Start over: the log will be played again from its beginning. */
  restart() {
    this.message.sources = null;
    this.stream.reset();
    this.begin();
  }

  showStep(text) {
    this.step.replaceChildren(el("span", { class: "pulse" }), el("span", { text }));
    this.step.hidden = false;
  }

  status(data) {
    const key = `step.${data.step}`;
    if (data.step === "fallback") this.warn(t(key));
    else if (data.step === "filter") this.message.scope = { ...this.message.scope, ...data.detail };
    else if (data.step === "scope") this.searching(data.detail ?? {});
    else if (has(key)) this.showStep(t(key));
  }

  /** The search is bound to some documents, or left them. */
  searching({ reason, documents, widened }) {
    const key = `step.scope.${widened ? "widened" : reason}`;
    if (has(key)) this.showStep(tn(key, documents ?? 0));
  }

  /** Something that the reader must know of this answer, while it is written and after. */
  warn(text) {
    this.notice.replaceChildren(
      el("p", { class: "note note-warning", role: "status" }, icon("triangle-alert"), el("span", { text })),
    );
  }

  sources(sources) {
    this.message.sources = sources;
    const documents = new Set(sources.map((source) => source.document_id)).size;
    this.showStep(tn("step.found", documents));
  }

  append(text) {
    if (!this.stream.text) this.showStep(t("step.generate"));
    this.stream.append(text);
  }

  replace(text) {
    this.stream.reset();
    this.stream.append(text);
  }

  /** The message as it stays: text, label, sources, actions. */
  complete(message) {
    this.message = message;
    this.root.removeAttribute("aria-busy");
    this.root.classList.toggle("msg-broken", message.status === "FAILED");
    this.step.hidden = true;
    this.stream.finish(message.content);
    const parts = [
      this.brokenNote(),
      filterNote(message),
      candidateButtons(message, this.hooks),
      partBar(message, this.hooks),
      message.mode === "document" ? null : sourceCards(message, this.hooks),
      this.actions() ?? this.switcher.root,
    ];
    this.foot.replaceChildren(...parts.filter(Boolean));
  }

  brokenNote() {
    const { status, error, content } = this.message;
    if (!BROKEN.has(status)) return null;
    const words = [t(content ? `end.${status}.partial` : `end.${status}`), error?.detail].filter(Boolean);
    const again = el(
      "button",
      { type: "button", class: "button branching", on: { click: () => this.hooks.regenerate(this.message) } },
      icon("rotate-ccw", "icon-s"),
      t("regenerate"),
    );
    const kind = status === "STOPPED" ? "" : "note-error";
    const sign = icon(status === "STOPPED" ? "square" : "circle-alert");
    return el("div", { class: `note msg-note ${kind}` }, sign, el("div", {}, el("p", { text: words.join(" ") }), again));
  }

  actions() {
    if (!this.message.content) return null;
    const copy = iconButton("copy", t("copy_answer"), { data: { action: "copy" } });
    copy.addEventListener("click", () => copyText(this.withSources(), copy));
    const again = iconButton("rotate-ccw", t("regenerate"), {
      class: "icon-button branching",
      data: { action: "regenerate" },
      on: { click: () => this.hooks.regenerate(this.message) },
    });
    const complete = !BROKEN.has(this.message.status);
    const why = iconButton("circle-help", t("why"), { data: { action: "why" }, "aria-haspopup": "dialog" });
    why.addEventListener("click", () => this.hooks.explain(this.message, why));
    const buttons = [this.switcher.root, copy, complete && again, complete && why, ...thumbs(this.message)];
    return el("div", { class: "msg-actions" }, this.label(), el("span", { class: "msg-buttons" }, buttons));
  }

  label() {
    const { mode, scope, usage, created_at: time, status } = this.message;
    const parts = [];
    if (mode && status === "COMPLETED") {
      const name = mode === "documents" || mode === "document" ? "badge badge-accent" : "badge";
      parts.push(el("span", { class: name, text: t(`mode.${mode}`) }));
    }
    const names = this.message.sources ? namesOf(scope?.filters) : "";
    if (names) {
      const text = t("filter.kept", { names });
      parts.push(el("span", { class: "badge msg-kept", title: text }, icon("list-filter", "icon-s"), el("span", { text })));
    }
    const chip = names && !isBound(scope) ? null : scopeChip(this.message, this.hooks);
    if (chip) parts.push(chip);
    if (time) parts.push(el("time", { datetime: time, title: usageText(usage, time), text: shortTime(time) }));
    return el("span", { class: "msg-label" }, parts);
  }

  /** The answer as text, with what its markers stand for. */
  withSources() {
    const lines = (this.message.sources ?? [])
      .filter((source) => source.cited !== false)
      .map((source) => {
        const page = source.page ? `, ${pageLabel(source)}` : "";
        return `[${source.slot}] ${source.document_name}${page}`;
      });
    return lines.length ? `${this.message.content}\n\n${t("sources")}\n${lines.join("\n")}` : this.message.content;
  }
}

/** Names that the question gave, as they are read: field -> "one | another". */
function namesOf(filters) {
  return Object.values(filters ?? {})
    .flatMap((names) => names.split(" | "))
    .map((name) => t("filter.name", { name }))
    .join(", ");
}

/** Says that the document named holds nothing and others were searched. */
function filterNote({ scope, sources }) {
  const names = namesOf(scope?.dropped_filters);
  if (!names || !sources) return null;
  return el("p", { class: "msg-dropped" }, icon("info", "icon-s"), el("span", { text: t("filter.dropped", { names }) }));
}

function usageText(usage, time) {
  const tokens = usage?.total_tokens ?? (usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0);
  const spoken = tokens ? tn("tokens", tokens) : "";
  return [longTime(time, locale), spoken].filter(Boolean).join(" · ");
}
