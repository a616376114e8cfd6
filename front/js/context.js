// What the next answer of a chat can draw on, beside the thread: documents, recent questions, a summary of older ones.

import { toAddress } from "./address.js";
import { getJson, patchJson } from "./api.js";
import { forgetDocuments } from "./chat_actions.js";
import { createIcon, el } from "./dom.js";
import { formatDateTime } from "./format.js";
import { showError, showToast } from "./notify.js";
import { t, tn } from "./strings.js";
import { createPart } from "./trace.js";

const MAX_SUMMARY_CHARACTERS = 4000;

/** The panel's part for one chat. `hooks`: getBranch() (a message of the branch shown), goTo(message id), refreshMemory(). */
export class ContextView {
  constructor(panel, hooks) {
    this.panel = panel;
    this.hooks = hooks;
    this.root = el("div", { class: "trace context" });
    this.parts = el("div", { class: "context-parts" });
    this.all = el("a", { class: "button context-all" }, createIcon("list", "icon-s"), t("context.all"));
    this.chatId = null;
    this.shown = "";
  }

  async open(chatId, opener) {
    this.chatId = chatId;
    this.shown = "";
    this.root.replaceChildren(el("div", { class: "skeleton" }));
    this.panel.openPart(t("context"), this.root, opener);
    await this.refresh();
  }

  /** Load it anew if it is in view and nobody is writing in it. */
  async refresh() {
    if (!this.root.isConnected || this.root.querySelector("textarea")) return;
    const { chatId } = this;
    const found = await getJson(this.address).catch((error) => error);
    if (!this.root.isConnected || chatId !== this.chatId || this.root.querySelector("textarea")) return;
    if (found instanceof Error) this.root.replaceChildren(createError(found));
    else this.render(found);
  }

  get address() {
    const branch = this.hooks.getBranch();
    return `/chats/${this.chatId}/context${branch ? `?message_id=${branch}` : ""}`;
  }

  /** Redraw only if something changed: the reader may be about to tap it. */
  render(found) {
    this.all.href = toAddress(`/c/${this.chatId}/turns`);
    if (this.all.parentNode !== this.root) this.root.replaceChildren(this.parts, this.all);
    const shown = JSON.stringify(found);
    if (shown === this.shown) return;
    this.shown = shown;
    const parts = [
      this.createDocuments(found.documents),
      createProfile(found.profile),
      this.createTurns(t("context.recent"), t("context.recent.more"), found.recent_turns),
      this.createSummary(found.running_summary),
      this.createTurns(t("context.recalled"), t("context.recalled.more"), found.recalled),
    ].filter(Boolean);
    if (!parts.length) parts.push(el("p", { class: "trace-rest", text: t("context.none") }));
    this.parts.replaceChildren(...parts);
  }

  createDocuments(documents) {
    if (!documents.length) return null;
    const item = ({ document_id: id, name }) =>
      el("li", {}, createIcon("file-text", "icon-s"), el("a", { href: toAddress(`/documents/${id}`), text: name }));
    const forget = el("button", { type: "button", class: "link-button", on: { click: () => this.forgetDocuments() } }, t("context.forget"));
    return createPart(t("context.documents"), el("ul", { class: "context-list" }, documents.map(item)), forget);
  }

  async forgetDocuments() {
    if (!(await forgetDocuments(this.chatId))) return;
    this.hooks.refreshMemory();
    await this.refresh();
  }

  createTurns(title, more, turns) {
    if (!turns.length) return null;
    const item = ({ message_id: id, number, ts, user_text: text }) =>
      el(
        "li",
        {},
        el("span", { class: "context-number", text: String(number) }),
        el("button", { type: "button", class: "link-button context-turn", title: formatDateTime(ts), on: { click: () => this.hooks.goTo(id) } }, text),
      );
    return createPart(title, el("p", { class: "trace-rest", text: more }), el("ul", { class: "context-list" }, turns.map(item)));
  }

  createSummary(summary) {
    if (!summary) return null;
    const section = createPart(t("context.summary"));
    const show = (told) => {
      const edit = el("button", { type: "button", class: "link-button", data: { action: "edit-summary" } }, t("context.edit"));
      edit.addEventListener("click", () => this.editSummary(section, told, show));
      section.replaceChildren(
        section.firstElementChild,
        el("p", { class: "trace-rest", text: describeSummary(told) }),
        el("p", { class: "context-summary", text: told.text || t("context.empty") }),
        edit,
      );
      return edit;
    };
    show(summary);
    return section;
  }

  editSummary(section, told, show) {
    const input = el("textarea", { rows: "8", maxlength: String(MAX_SUMMARY_CHARACTERS), "aria-label": t("context.summary") });
    input.value = told.text;
    const close = (now) => show(now).focus({ preventScroll: true });
    const save = el("button", { type: "submit", class: "button button-primary", text: t("context.save") });
    const cancel = el("button", { type: "button", class: "button", text: t("cancel"), on: { click: () => close(told) } });
    const form = el("form", { class: "context-form" }, input, el("div", { class: "context-buttons" }, save, cancel));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      save.disabled = true;
      try {
        const found = await patchJson(this.address, { running_summary: input.value, through: told.through });
        close(found.running_summary);
        showToast(t("context.saved"));
      } catch (error) {
        save.disabled = false;
        showError(error);
      }
    });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.isComposing) return;
      event.preventDefault();
      event.stopPropagation();
      close(told);
    });
    section.replaceChildren(section.firstElementChild, form);
    input.focus();
    input.setSelectionRange(0, 0);
    input.scrollTop = 0;
  }
}

/** What is remembered about the user; null if nothing is, or if it is not used in this chat. */
function createProfile(slots) {
  if (!slots.length) return null;
  const item = ({ title, value, unit }) => el("li", { text: [`${title}:`, value, unit].filter(Boolean).join(" ") });
  return createPart(t("context.profile"), el("ul", { class: "context-list" }, slots.map(item)));
}

function describeSummary({ through, model }) {
  const turns = tn("context.through", through);
  return model === "user" ? `${turns} · ${t("context.own")}` : turns;
}

function createError(error) {
  return el("p", { class: "note note-error" }, createIcon("circle-alert"), el("span", { text: error.message }));
}
