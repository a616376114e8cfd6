// The composer: grows with its text, keeps a draft per chat, and waits for documents and for the running answer.

import { byId, setIcon } from "./dom.js";
import { sendOnEnter } from "./ime.js";
import { locale, t } from "./strings.js";

const MAX_HEIGHT_SHARE = 0.4;
const WARN_AT_SHARE = 0.9;
const LONG_PASTE_CHARACTERS = 4000;
const MAX_FIRST_LINE_CHARACTERS = 40;

/** Events: `send` (detail: the text), `stop`, `paste` (detail: {file, text}: a long text as a file). `blockers()` says why a question must wait: "", "documents" or "answer". */
export class Composer extends EventTarget {
  constructor({ chatId, limit, blockers }) {
    super();
    this.form = byId("composer");
    this.input = byId("composer-input");
    this.button = byId("composer-send");
    this.note = byId("composer-note");
    this.counter = byId("composer-count");
    this.limit = limit;
    this.blockers = blockers;
    this.busy = false;
    this.sent = null;
    this.queued = null;
    this.openChat(chatId);
    this.restoreDraft();
    this.input.addEventListener("input", () => this.handleInput());
    this.input.addEventListener("paste", (event) => this.handlePaste(event));
    sendOnEnter(this.input, () => this.submit());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.busy && !this.input.value.trim()) this.dispatchEvent(new Event("stop"));
      else this.submit();
    });
    addEventListener("pagehide", () => this.saveDraft());
    byId("queue-cancel").addEventListener("click", () => this.cancelQueued());
    this.render();
  }

  get draftKey() {
    return `nura.draft.${this.chatId ?? "new"}`;
  }

  openChat(chatId) {
    this.chatId = chatId;
  }

  restoreDraft() {
    this.input.value = localStorage.getItem(this.draftKey) ?? "";
    this.fitHeight();
  }

  handleInput() {
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.saveDraft(), 150);
    this.showNote("");
    this.fitHeight();
    this.render();
  }

  /** A long pasted text becomes a file. */
  handlePaste(event) {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (text.length < LONG_PASTE_CHARACTERS || event.clipboardData.files.length) return;
    event.preventDefault();
    this.dispatchEvent(new CustomEvent("paste", { detail: { file: toTextFile(text), text } }));
  }

  /** Insert at the caret. */
  insertAtCaret(text) {
    this.input.setRangeText(text, this.input.selectionStart, this.input.selectionEnd, "end");
    this.handleInput();
    this.input.focus();
  }

  /** Keep for a reload what the server does not have yet: a question being sent or waiting, and the draft. */
  saveDraft() {
    clearTimeout(this.saving);
    const text = joinLines(this.sent, this.queued, this.input.value);
    if (text) localStorage.setItem(this.draftKey, text);
    else localStorage.removeItem(this.draftKey);
  }

  fitHeight() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * MAX_HEIGHT_SHARE)}px`;
  }

  setText(text) {
    this.input.value = text;
    this.handleInput();
    this.input.focus();
    this.input.setSelectionRange(text.length, text.length);
  }

  /** Send the text, now or as soon as nothing blocks it. */
  submit() {
    const text = this.input.value.trim();
    if (!text || text.length > this.limit) return;
    if (this.queued !== null) return;
    this.input.value = "";
    this.fitHeight();
    if (this.blockers()) {
      this.queued = text;
      this.saveDraft();
      this.render();
      return;
    }
    this.send(text);
  }

  send(text) {
    this.sent = text;
    this.saveDraft();
    this.render();
    this.dispatchEvent(new CustomEvent("send", { detail: text }));
  }

  /** Check again whether a waiting question can be sent. */
  sendQueued() {
    if (this.queued !== null && !this.blockers()) {
      const text = this.queued;
      this.queued = null;
      this.send(text);
    }
    this.render();
  }

  cancelQueued() {
    const text = this.queued;
    this.queued = null;
    this.setText(joinLines(text, this.input.value));
    this.render();
  }

  /** The server has the question. */
  markSent() {
    this.sent = null;
    this.saveDraft();
  }

  /** The server refused the question: put it back, with the reason. */
  restoreRefused(text, reason) {
    this.sent = null;
    this.setText(joinLines(text, this.input.value));
    this.showNote(reason);
  }

  showNote(text) {
    this.note.hidden = !text;
    this.note.querySelector("[data-words]").textContent = text;
  }

  setBusy(busy) {
    this.busy = busy;
    this.sendQueued();
  }

  render() {
    const length = this.input.value.trim().length;
    const stops = this.busy && !length;
    const tooLong = length > this.limit;
    setIcon(this.button, stops ? "square" : "arrow-up");
    this.button.classList.toggle("send-stop", stops);
    const label = t(stops ? "stop" : "send");
    this.button.setAttribute("aria-label", label);
    this.button.title = label;
    this.button.disabled = !stops && (!length || tooLong || this.queued !== null);
    this.counter.hidden = length < this.limit * WARN_AT_SHARE;
    this.counter.classList.toggle("over", tooLong);
    this.counter.textContent = `${length.toLocaleString(locale)} / ${this.limit.toLocaleString(locale)}`;
    const queue = byId("queue");
    queue.hidden = this.queued === null;
    if (this.queued !== null) {
      byId("queue-reason").textContent = t(`queue.${this.blockers() || "documents"}`);
      byId("queue-text").textContent = this.queued;
    }
  }
}

const joinLines = (...texts) => texts.filter(Boolean).join("\n");

const NOT_IN_NAMES = /[\p{Cc}\\/:*?"<>|#[\]]+/gu;

/** A text file named after its first line. */
function toTextFile(text) {
  const line = text.trim().split("\n", 1)[0].replace(NOT_IN_NAMES, " ").replace(/\s+/g, " ").trim();
  const name = t("pasted.name", { line: [...line].slice(0, MAX_FIRST_LINE_CHARACTERS).join("").trim() });
  return new File([text], `${name}.txt`, { type: "text/plain" });
}
