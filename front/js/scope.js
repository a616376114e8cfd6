// What the next question reads: documents chosen for it, and those that the conversation is about.

import { getJson, patchJson, sendDelete, toQueryString } from "./api.js";
import { announce, byId, createIcon, el, placeBeside } from "./dom.js";
import { showToast } from "./notify.js";
import { t, tn } from "./strings.js";

const MAX_PICKER_DOCUMENTS = 50;

/** Events: `changed`. */
export class Scope extends EventTarget {
  constructor({ selected, chatId, chatDocuments, gone, total, uploads }) {
    super();
    this.selected = new Map(selected.map((document) => [document.id, document]));
    this.names = new Map([...selected, ...chatDocuments].map((document) => [document.id, document]));
    this.chatId = chatId;
    this.chatDocuments = chatDocuments;
    this.gone = gone; // documents of the chat that have been deleted: it does not turn to all others
    this.total = total;
    this.uploads = uploads;
    this.watchPicker();
    uploads.addEventListener("changed", () => this.show());
    uploads.addEventListener("completed", () => this.recount());
    this.show();
  }

  /** Ids to name in the next message; empty: the chat's documents or all. */
  get ids() {
    return [...new Set([...this.selected.keys(), ...this.uploads.completed.map((document) => document.id)])];
  }

  /** Documents become ready and go, in other windows too: what can be asked is counted anew. */
  async recount() {
    const ready = await getJson(`/documents?${toQueryString({ status: "COMPLETED", page_size: 1 })}`).catch(() => null);
    if (ready) this.total = ready.count;
    this.show();
  }

  documentOf(id) {
    return this.names.get(id) ?? null;
  }

  remember(documents) {
    for (const document of documents) this.names.set(document.id, document);
  }

  only(document) {
    this.selected = new Map([[document.id, document]]);
    this.remember([document]);
    this.changed();
  }

  toggle(document, on) {
    if (on) this.selected.set(document.id, document);
    else this.selected.delete(document.id);
    this.remember([document]);
    this.changed();
  }

  clear() {
    this.selected.clear();
    this.changed();
  }

  /** After a message: files sent with it stay chosen, unless the chat itself now stands for the same documents. */
  sent(chatDocuments) {
    for (const document of this.uploads.completed) this.selected.set(document.id, document);
    this.remember(this.uploads.completed);
    this.uploads.clearCompleted();
    if (chatDocuments) this.chatDocuments = chatDocuments;
    const own = new Set(this.chatDocuments.map((document) => document.id));
    const same = own.size === this.selected.size && [...this.selected.keys()].every((id) => own.has(id));
    if (same) this.selected.clear();
    this.changed();
  }

  changed() {
    this.show();
    this.dispatchEvent(new Event("changed"));
  }

  describe() {
    const named = this.ids.length + this.uploads.working.length;
    if (named) return tn("scope_next.explicit", named);
    if (this.chatDocuments.length) return tn("scope_next.chat", this.chatDocuments.length);
    if (this.gone) return t("scope_next.gone");
    return this.total ? tn("scope_next.all", this.total) : t("scope_next.none");
  }

  show() {
    byId("scope-text").textContent = this.describe();
    const chosen = [...this.selected.values()];
    const fixed = chosen.length ? [] : this.chatDocuments;
    const hidden = this.uploads.working.length + this.uploads.completed.length > 0;
    const lost = this.gone && !chosen.length && !this.chatDocuments.length ? [this.goneChip()] : [];
    byId("scope-chips").replaceChildren(
      ...lost,
      ...chosen.map((document) => this.chip(document, true)),
      ...(hidden ? [] : fixed.map((document) => this.chip(document, false))),
    );
  }

  /** Says that the chat's documents are gone; its cross lets the chat turn to all documents. */
  goneChip() {
    const label = t("scope_next.turn_to_all");
    const remove = el("button", { type: "button", class: "chip-remove", "aria-label": label, title: label }, createIcon("x", "icon-s"));
    remove.addEventListener("click", async () => {
      await patchJson(`/chats/${this.chatId}`, { document_ids: [] });
      this.gone = 0;
      this.changed();
    });
    const name = el("span", { class: "scope-name", text: tn("scope_next.deleted", this.gone) });
    return el("li", { class: "scope-chip" }, createIcon("file-text", "icon-s"), name, remove);
  }

  chip(document, removable) {
    const name = el("span", { class: "scope-name", text: document.name, title: document.name });
    if (!removable) return el("li", { class: "scope-chip scope-fixed" }, createIcon("file-text", "icon-s"), name);
    const label = t("remove_file", { name: document.name });
    const remove = el("button", { type: "button", class: "chip-remove", "aria-label": label, title: label }, createIcon("x", "icon-s"));
    remove.addEventListener("click", () => this.toggle(document, false));
    return el("li", { class: "scope-chip" }, createIcon("file-text", "icon-s"), name, remove);
  }

  // The picker

  watchPicker() {
    const picker = byId("picker");
    const search = byId("picker-search");
    picker.addEventListener("toggle", (event) => {
      const open = event.newState === "open";
      byId("scope-button").setAttribute("aria-expanded", String(open));
      if (!open) return;
      placeBeside(picker, byId("scope-button"), { above: true });
      search.value = "";
      this.find("");
      search.focus();
    });
    let timer = null;
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.find(search.value.trim()), 200);
    });
    byId("picker-clear").addEventListener("click", () => {
      this.clear();
      picker.hidePopover();
    });
  }

  async find(text) {
    const list = byId("picker-list");
    this.asked = text;
    try {
      const found = await getJson(`/documents?${toQueryString({ status: "COMPLETED", q: text, page_size: MAX_PICKER_DOCUMENTS })}`);
      if (this.asked !== text) return;
      list.replaceChildren(...found.results.map((document) => this.option(document)));
      if (!found.results.length) list.append(el("li", { class: "picker-empty", text: t(text ? "no_match" : "no_documents") }));
      if (!text) this.total = found.count;
    } catch (error) {
      list.replaceChildren(el("li", { class: "picker-empty", text: error.message }));
    }
    placeBeside(byId("picker"), byId("scope-button"), { above: true });
  }

  option(document) {
    const box = el("input", { type: "checkbox" });
    box.checked = this.selected.has(document.id);
    box.addEventListener("change", () => this.toggle(document, box.checked));
    const pages = document.page_count ? tn("pages", document.page_count) : "";
    return el(
      "li",
      {},
      el("label", { class: "picker-option" }, box, el("span", { class: "picker-name", text: document.name }), el("small", { text: pages })),
    );
  }
}

const AUTO = "auto";

/** Events: `forgotten`. `topic` is what was chosen for the next question. */
export class TopicMemory extends EventTarget {
  constructor() {
    super();
    this.root = byId("memory");
    this.buttons = [...this.root.querySelectorAll("[data-topic]")];
    this.documents = [];
    this.chatId = null;
    this.covered = false;
    this.topic = AUTO;
    for (const button of this.buttons) button.addEventListener("click", () => this.choose(button.dataset.topic));
    byId("memory-forget").addEventListener("click", () => this.forget());
  }

  /** Look what the chat remembers now. */
  async refresh(chatId) {
    this.chatId = chatId;
    const found = chatId ? await getJson(`/chats/${chatId}/memory`).catch(() => null) : null;
    if (chatId !== this.chatId) return;
    this.documents = found?.documents ?? [];
    this.show();
  }

  /** Documents chosen for the next question outrank the remembered ones. */
  cover(covered) {
    this.covered = covered;
    this.show();
  }

  /** A second tap takes the choice back. */
  choose(topic) {
    this.topic = this.topic === topic ? AUTO : topic;
    this.show();
  }

  /** The choice, for one question. */
  take() {
    const topic = this.root.hidden ? AUTO : this.topic;
    this.topic = AUTO;
    this.show();
    return topic;
  }

  async forget() {
    try {
      await sendDelete(`/chats/${this.chatId}/memory`);
    } catch (error) {
      showToast(error.message, { kind: "toast-error" });
      return;
    }
    this.documents = [];
    this.topic = AUTO;
    this.show();
    announce(t("memory.forgotten"));
    this.dispatchEvent(new Event("forgotten"));
  }

  show() {
    const [first, ...others] = this.documents.map((document) => document.title);
    this.root.hidden = this.covered || !first;
    byId("memory-name").textContent = first ?? "";
    byId("memory-rest").textContent = others.length ? tn("names.others", others.length) : "";
    byId("memory-what").title = [first, ...others].filter(Boolean).join("\n");
    for (const button of this.buttons) button.setAttribute("aria-pressed", String(button.dataset.topic === this.topic));
  }
}
