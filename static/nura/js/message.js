// One message of the thread as elements.

import { post } from "./api.js";
import { el, icon, iconButton } from "./dom.js";
import { sourceCards } from "./cards.js";
import { StreamedMarkdown } from "./stream.js";
import { fileSize, has, locale, longTime, pageLabel, shortTime, t, tn } from "./strings.js";
import { copyText, toast } from "./toast.js";

const LONG_QUESTION = 1400;
const BROKEN = new Set(["FAILED", "INTERRUPTED", "STOPPED"]);

/** The reader's own message; `documents` are those named for it. */
export function questionView(message, documents = []) {
  const text = el("div", { class: "bubble", text: message.content });
  const view = el(
    "article",
    { class: "msg msg-question", data: { messageId: message.id ?? "" } },
    el("h3", { class: "visually-hidden", text: t("your_question") }),
    documents.length ? attachments(documents) : null,
    text,
  );
  if (message.content.length > LONG_QUESTION) view.append(folded(text));
  return view;
}

function attachments(documents) {
  const item = (document) =>
    el(
      "li",
      { class: "attached" },
      icon("file-text", "icon-s"),
      el("span", { text: document.name }),
      document.size ? el("small", { text: fileSize(document.size) }) : null,
    );
  return el("ul", { class: "attached-list", "aria-label": t("attached") }, documents.map(item));
}

function folded(text) {
  text.classList.add("folded");
  const button = el("button", { type: "button", class: "link-button fold", text: t("show_all"), "aria-expanded": "false" });
  button.addEventListener("click", () => {
    const closed = text.classList.toggle("folded");
    button.textContent = t(closed ? "show_all" : "show_less");
    button.setAttribute("aria-expanded", String(!closed));
  });
  return button;
}

/** An answer: whole from the start, or growing while events arrive. */
export class AnswerView {
  /** `hooks`: openSource(message, source, opener, claim), askAgain(message). */
  constructor(message, hooks) {
    this.message = message;
    this.hooks = hooks;
    this.step = el("p", { class: "msg-step" });
    this.body = el("div", { class: "prose" });
    this.foot = el("div", { class: "msg-end" });
    this.root = el(
      "article",
      { class: "msg msg-answer", data: { messageId: message.id } },
      el("h3", { class: "visually-hidden", text: t("answer") }),
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
    if (data.step === "fallback") this.warning = t("step.fallback");
    if (has(key)) this.showStep(t(key));
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
    this.foot.replaceChildren(
      ...[this.warningNote(), this.brokenNote(), sourceCards(message, this.hooks), this.actions()].filter(Boolean),
    );
  }

  warningNote() {
    if (!this.warning) return null;
    return el("p", { class: "note note-warning" }, icon("info"), el("span", { text: this.warning }));
  }

  brokenNote() {
    const { status, error, content } = this.message;
    if (!BROKEN.has(status)) return null;
    const words = [t(content ? `end.${status}.partial` : `end.${status}`), error?.detail].filter(Boolean);
    const again = el(
      "button",
      { type: "button", class: "button", on: { click: () => this.hooks.askAgain(this.message) } },
      icon("rotate-ccw", "icon-s"),
      t("ask_again"),
    );
    const kind = status === "STOPPED" ? "" : "note-error";
    const sign = icon(status === "STOPPED" ? "square" : "circle-alert");
    return el("div", { class: `note msg-note ${kind}` }, sign, el("div", {}, el("p", { text: words.join(" ") }), again));
  }

  actions() {
    if (!this.message.content) return null;
    const copy = iconButton("copy", t("copy_answer"), { data: { action: "copy" } });
    copy.addEventListener("click", () => copyText(this.withSources(), copy));
    return el(
      "div",
      { class: "msg-actions" },
      this.label(),
      el("span", { class: "msg-buttons" }, copy, this.thumb("thumbs-up", 1), this.thumb("thumbs-down", -1)),
    );
  }

  label() {
    const { mode, scope, usage, created_at: time, status } = this.message;
    const parts = [];
    if (mode && status === "COMPLETED") {
      const name = mode === "documents" || mode === "document" ? "badge badge-accent" : "badge";
      parts.push(el("span", { class: name, text: t(`mode.${mode}`) }));
    }
    if (scope?.reason && scope.document_ids?.length && has(`scope.${scope.reason}`)) {
      parts.push(el("span", { class: "msg-scope", text: tn(`scope.${scope.reason}`, scope.document_ids.length) }));
    }
    if (time) parts.push(el("time", { datetime: time, title: usageText(usage, time), text: shortTime(time) }));
    return el("span", { class: "msg-label" }, parts);
  }

  thumb(name, value) {
    const button = iconButton(name, t(value > 0 ? "helpful" : "not_helpful"), { "aria-pressed": "false" });
    button.addEventListener("click", async () => {
      try {
        await post(`/messages/${this.message.id}/feedback`, { value });
      } catch (error) {
        toast(error.message, { kind: "toast-error" });
        return;
      }
      for (const other of button.parentElement.querySelectorAll("[aria-pressed]")) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      if (value < 0) this.askReason();
      else this.foot.querySelector(".feedback")?.remove();
    });
    return button;
  }

  askReason() {
    if (this.foot.querySelector(".feedback")) return;
    const input = el("input", { type: "text", maxlength: "1000", placeholder: t("reason"), "aria-label": t("reason") });
    const form = el("form", { class: "feedback" }, input, el("button", { class: "button", type: "submit", text: t("send") }));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const reason = input.value.trim();
      form.remove();
      if (!reason) return;
      await post(`/messages/${this.message.id}/feedback`, { value: -1, reason }).catch((error) => toast(error.message));
      toast(t("thanks"));
    });
    this.foot.append(form);
    input.focus();
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

function usageText(usage, time) {
  const tokens = usage?.total_tokens ?? (usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0);
  const spoken = tokens ? tn("tokens", tokens) : "";
  return [longTime(time, locale), spoken].filter(Boolean).join(" · ");
}
