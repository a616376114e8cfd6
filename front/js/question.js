// The reader's own message: shown, folded if it is long, and edited.

import { createIcon, createIconButton, el } from "./dom.js";
import { formatFileSize } from "./format.js";
import { sendOnEnter } from "./ime.js";
import { writeQuestion } from "./markdown.js";
import { BranchSwitcher, createMessageMenu } from "./message.js";
import { copyText, showError } from "./notify.js";
import { t } from "./strings.js";

const MAX_UNFOLDED_CHARACTERS = 1400;

/**
 * `documents` are those chosen for the message; `hooks`: limit, edit and reword(message, content), switchBranch(message, by), fork and remove(message).
 */
export class QuestionView {
  constructor(message, documents, hooks) {
    this.message = message;
    this.hooks = hooks;
    this.text = el("div", { class: "bubble" });
    writeQuestion(this.text, message.content);
    this.fold = message.content.length > MAX_UNFOLDED_CHARACTERS ? createFold(this.text) : null;
    this.switcher = new BranchSwitcher((by) => hooks.switchBranch(this.message, by));
    this.tools = this.createActions();
    this.root = el(
      "article",
      { class: "msg msg-question", data: { messageId: message.id ?? "" } },
      el("h3", { class: "visually-hidden", text: t("your_question") }),
      documents.length ? createAttachments(documents) : null,
      this.text,
      this.fold,
      this.tools,
    );
    this.setWaiting(!message.id);
  }

  /** A message that the server does not have yet can neither be edited nor has it branches. */
  setWaiting(waiting) {
    this.root.classList.toggle("msg-sending", waiting);
    this.tools.hidden = waiting;
  }

  /** The server has it. */
  markStored(message) {
    this.message = message;
    this.root.dataset.messageId = message.id;
    this.setWaiting(false);
  }

  createActions() {
    const copy = createIconButton("copy", t("copy"), { data: { action: "copy" } });
    copy.addEventListener("click", () => copyText(this.message.content, copy));
    this.pencil = createIconButton("pencil", t("edit"), { class: "icon-button branching", data: { action: "edit" } });
    this.pencil.addEventListener("click", () => this.openEditor());
    const buttons = el("span", { class: "msg-buttons" }, copy, this.pencil, createMessageMenu(() => this.message, this.hooks));
    return el("div", { class: "question-tools" }, buttons, this.switcher.root);
  }

  openEditor() {
    if (this.editor) return;
    this.editor = new QuestionEditor(this.message.content, this.hooks.limit, {
      ask: (content) => this.save(content, (text) => this.hooks.edit(this.message, text)),
      keep: (content) => this.save(content, (text) => this.saveWording(text)),
      cancel: () => this.closeEditor(),
    });
    this.text.after(this.editor.root);
    this.showText(false);
    this.editor.open();
  }

  showText(shown) {
    for (const part of [this.text, this.fold, this.tools]) if (part) part.hidden = !shown;
  }

  closeEditor() {
    this.editor?.root.remove();
    this.editor = null;
    this.showText(true);
    this.pencil.focus();
  }

  /** Other words in the same place: the answers stay as they are. */
  async saveWording(content) {
    this.message = await this.hooks.reword(this.message, content);
    writeQuestion(this.text, this.message.content);
  }

  async save(content, send) {
    this.editor.setWaiting(true);
    try {
      await send(content);
    } catch (error) {
      showError(error);
      this.editor.setWaiting(false);
      return;
    }
    this.closeEditor();
  }
}

/** The form for editing a question. */
class QuestionEditor {
  constructor(content, limit, { ask, keep, cancel }) {
    this.before = content;
    this.input = el("textarea", { rows: 1, maxlength: limit, "aria-label": t("edit"), spellcheck: "false" });
    this.input.value = content;
    this.button = el("button", { type: "submit", class: "button button-primary", text: t("save_and_ask") });
    const leave = el("button", { type: "button", class: "button button-plain", text: t("cancel"), on: { click: cancel } });
    this.keep = el("button", { type: "button", class: "button", data: { action: "keep" }, text: t("save_only"), title: t("save_only.more") });
    this.keep.addEventListener("click", () => this.ready && keep(this.input.value.trim()));
    const bar = el("div", { class: "editor-bar" }, leave, this.keep, this.button);
    this.root = el("form", { class: "question-editor" }, this.input, bar);
    const submit = () => this.ready && ask(this.input.value.trim());
    this.root.addEventListener("submit", (event) => {
      event.preventDefault();
      submit();
    });
    this.input.addEventListener("input", () => this.render());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.isComposing) return;
      event.preventDefault();
      event.stopPropagation();
      cancel();
    });
    sendOnEnter(this.input, submit);
  }

  get ready() {
    const text = this.input.value.trim();
    return text && text !== this.before.trim() && !this.waiting;
  }

  open() {
    this.render();
    this.input.focus();
    this.input.setSelectionRange(this.input.value.length, this.input.value.length);
  }

  setWaiting(waiting) {
    this.waiting = waiting;
    this.input.readOnly = waiting;
    this.render();
  }

  render() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, innerHeight * 0.5)}px`;
    this.button.disabled = !this.ready;
    this.keep.disabled = !this.ready;
  }
}

function createAttachments(documents) {
  const item = (document) =>
    el(
      "li",
      { class: "attached" },
      createIcon(document.is_library ? "folder" : "file-text", "icon-s"),
      el("span", { text: document.name }),
      document.size ? el("small", { text: formatFileSize(document.size) }) : null,
    );
  return el("ul", { class: "attached-list", "aria-label": t("attached") }, documents.map(item));
}

function createFold(text) {
  text.classList.add("folded");
  const button = el("button", { type: "button", class: "link-button fold", text: t("show_all"), "aria-expanded": "false" });
  button.addEventListener("click", () => {
    const closed = text.classList.toggle("folded");
    button.textContent = t(closed ? "show_all" : "show_less");
    button.setAttribute("aria-expanded", String(!closed));
  });
  return button;
}
