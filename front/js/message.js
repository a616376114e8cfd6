// An answer of the thread as elements.

import { sourceCards } from "./cards.js";
import { el, icon, iconButton } from "./dom.js";
import { checksLine, markDoubts } from "./doubts.js";
import { thumbs } from "./feedback.js";
import { filterNote, label } from "./label.js";
import { comesFirst, fallbackWords, notes } from "./notices.js";
import { candidateButtons, partBar } from "./offers.js";
import { plainNote, plainText, report } from "./plain.js";
import { readAloud } from "./read_aloud.js";
import { Reasoning } from "./reasoning.js";
import { StreamedMarkdown } from "./stream.js";
import { has, pageLabel, t, tn } from "./strings.js";
import { Switcher } from "./switcher.js";
import { copyText } from "./toast.js";

const BROKEN = new Set(["FAILED", "INTERRUPTED", "STOPPED"]);

/** An answer: whole from the start, or growing while events arrive. */
export class AnswerView {
  /**
   * `hooks`: openSource(message, source, opener, claim), regenerate(message, topic), step(message, by),
   * send(content, documents), put(text), explain(message, opener, part), busy(), before(message), titleOf(id),
   * hold(anchor, change), administration (where an administrator sees messages, else empty).
   */
  constructor(message, hooks) {
    this.message = message;
    this.hooks = hooks;
    this.switcher = new Switcher((by) => hooks.step(this.message, by));
    this.reasoning = new Reasoning(hooks.hold);
    this.step = el("p", { class: "msg-step" });
    this.notice = el("div", { class: "msg-notice" });
    this.body = el("div", { class: "prose" });
    this.foot = el("div", { class: "msg-end" });
    this.root = el(
      "article",
      { class: "msg msg-answer", data: { messageId: message.id } },
      el("h3", { class: "visually-hidden", text: t("answer") }),
      this.notice,
      this.reasoning.root,
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
    this.clear();
    this.reasoning.reset();
    this.begin();
  }

  showStep(text) {
    this.step.replaceChildren(el("span", { class: "pulse" }), el("span", { text }));
    this.step.hidden = false;
  }

  status(data) {
    const key = `step.${data.step}`;
    if (data.step === "fallback") this.tell([{ ...data.detail, detail: fallbackWords(data.detail?.code) }]);
    else if (data.step === "filter") this.message.scope = { ...this.message.scope, ...data.detail };
    else if (data.step === "scope") this.searching(data.detail ?? {});
    else if (has(key)) this.showStep(t(key, data.detail));
  }

  /** The search is bound to some documents, or left them. */
  searching({ reason, documents, widened }) {
    const key = `step.scope.${widened ? "widened" : reason}`;
    if (has(key)) this.showStep(tn(key, documents ?? 0));
  }

  /** Something that the reader must know of this answer, while it is written and after. */
  tell(notices) {
    this.notice.replaceChildren(...notes(notices));
  }

  sources(sources) {
    this.message.sources = sources;
    const documents = new Set(sources.map((source) => source.document_id)).size;
    this.showStep(tn("step.found", documents));
  }

  /** More of what the model thinks; its line takes the place of the step. */
  think(text) {
    const live = !this.stream.text;
    this.reasoning.append(text, live);
    if (live && !this.reasoning.root.hidden) this.step.hidden = true;
  }

  append(text) {
    if (!this.stream.text) {
      this.reasoning.settle();
      this.showStep(t("step.generate"));
    }
    this.stream.append(text);
  }

  /** Other words for the answer so far, drawn at once: nothing in sight goes away in between. */
  replace(text) {
    this.clear();
    this.stream.append(text);
    this.stream.cancel();
    this.stream.draw();
    this.body.classList.add("replaced");
    this.showStep(t("step.styled"));
  }

  clear() {
    this.stream.reset();
  }

  /** The message as it stays: text, label, sources, actions. The view itself. */
  complete(message) {
    this.message = message;
    this.root.removeAttribute("aria-busy");
    this.root.classList.toggle("msg-broken", message.status === "FAILED");
    this.step.hidden = true;
    this.reasoning.complete(message.reasoning ?? "");
    const note = this.drawText(message);
    const notices = message.notices ?? [];
    this.tell(notices.filter(comesFirst));
    const parts = [
      note,
      ...notes(notices.filter((one) => !comesFirst(one))),
      this.brokenNote(),
      checksLine(message, this.hooks),
      filterNote(message),
      candidateButtons(message, this.hooks),
      partBar(message, this.hooks),
      message.mode === "document" ? null : sourceCards(message, this.hooks),
      this.actions() ?? this.switcher.root,
    ];
    this.foot.replaceChildren(...parts.filter(Boolean));
    return this;
  }

  /** The text as it stays. One that cannot be drawn is shown as it was written; a note that says so is returned. */
  drawText(message) {
    try {
      this.stream.finish(message.content);
      markDoubts(this.body, message);
      return null;
    } catch (error) {
      report(error, message);
      this.body.replaceChildren(plainText(message));
      return plainNote();
    }
  }

  brokenNote() {
    const { id, status, error, content } = this.message;
    const { hooks } = this;
    if (!BROKEN.has(status)) return null;
    const words = [t(content ? `end.${status}.partial` : `end.${status}`), error?.detail].filter(Boolean);
    const again = el(
      "button",
      { type: "button", class: "button branching", on: { click: () => hooks.regenerate(this.message) } },
      icon("rotate-ccw", "icon-s"),
      t("regenerate"),
    );
    const look = status === "FAILED" && hooks.administration;
    const reasons = look
      ? el("a", { class: "button button-plain", href: `${look}${id}/change/` }, icon("external-link", "icon-s"), t("end.look"))
      : null;
    const kind = status === "STOPPED" ? "" : "note-error";
    const sign = icon(status === "STOPPED" ? "square" : "circle-alert");
    return el("div", { class: `note msg-note ${kind}` }, sign, el("div", {}, el("p", { text: words.join(" ") }), again, reasons));
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
    const aloud = readAloud(this.message);
    const buttons = [this.switcher.root, copy, aloud, complete && again, complete && why, ...thumbs(this.message)];
    return el("div", { class: "msg-actions" }, label(this.message, this.hooks), el("span", { class: "msg-buttons" }, buttons));
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
