// What the next question searches: what Nura chooses, documents that the reader chooses, or all. One line shows it.

import { getJson, toQueryString } from "./api.js";
import { forgetDocuments } from "./chat_actions.js";
import { byId, createIcon, el, placeBeside } from "./dom.js";
import { hasString, t, tn } from "./strings.js";

const MAX_PICKER_DOCUMENTS = 50;
const MAX_PICKER_LIBRARIES = 20;
const AUTO = "auto";
const THESE = "these";
const ALL = "all";
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** The reader's documents that are ready and whose names contain `text`, newest first: {count, results}. */
export function findReadyDocuments(text, limit) {
  return getJson(`/documents?${toQueryString({ status: "COMPLETED", q: text, page_size: limit })}`);
}

/** The reader's libraries whose names contain `text`, as choices beside documents. */
export async function findLibraries(text, limit) {
  const found = await getJson(`/libraries?${toQueryString({ q: text, page_size: limit })}`);
  return found.results.map(({ id, name, document_count: documents }) => ({ id, name, documents, is_library: true }));
}

/** Events: `changed`. `mode` ("auto", "these" or "all") stays until it is changed; a new topic is for one question only. */
export class Scope extends EventTarget {
  constructor({ selected, chatDocuments, libraries = [], gone, total, uploads }) {
    super();
    this.selected = new Map(selected.map((document) => [document.id, document]));
    this.names = new Map([...libraries, ...selected, ...chatDocuments].map((document) => [document.id, document]));
    this.chatDocuments = chatDocuments;
    this.remembered = []; // what the conversation is about
    this.gone = gone; // documents of the chat that have been deleted: it does not turn to all others
    this.total = total;
    this.uploads = uploads;
    this.mode = selected.length ? THESE : AUTO;
    this.newTopic = false;
    this.modes = [...byId("scope-modes").querySelectorAll("[data-scope]")];
    this.watchModes();
    this.watchPicker();
    byId("scope-new").addEventListener("click", () => this.beginTopic(false));
    uploads.addEventListener("changed", () => this.render());
    uploads.addEventListener("completed", () => this.recount());
    this.render();
  }

  /** Ids of documents and libraries to name in the next message; empty: the chat's own or all. */
  get ids() {
    const chosen = this.mode === THESE ? [...this.selected.keys()] : [];
    return [...new Set([...chosen, ...this.uploads.completed.map((document) => document.id)])];
  }

  /** What the next question says of its bond to the conversation. Asking uses up a new topic. */
  takeTopic() {
    const topic = this.newTopic ? "new" : this.mode === ALL && !this.ids.length ? ALL : AUTO;
    if (this.newTopic) this.beginTopic(false);
    return topic;
  }

  /** The next question begins anew, or does so no more. */
  beginTopic(on = true) {
    this.newTopic = on;
    this.render();
  }

  /** Documents become ready and go, in other windows too: what can be asked is counted anew. */
  async recount() {
    const ready = await findReadyDocuments("", 1).catch(() => null);
    if (ready) this.total = ready.count;
    this.render();
  }

  /** A document or library that is gone, or closed to the reader, is searched no more. */
  remove(id) {
    const isOther = (document) => document.id !== id;
    const left = this.chatDocuments.filter(isOther);
    this.gone += this.chatDocuments.length - left.length;
    this.chatDocuments = left;
    this.remembered = this.remembered.filter(isOther);
    if (this.selected.delete(id) && !this.selected.size && this.mode === THESE) this.mode = AUTO;
    this.render();
  }

  /** Drop what the reader may read no more. */
  async removeUnreadable() {
    const named = new Map([...this.selected.values(), ...this.chatDocuments].map((document) => [document.id, document]));
    const look = ({ id, is_library: isLibrary }) =>
      getJson(`/${isLibrary ? "libraries" : "documents"}/${id}`).catch((error) => error.status === 404 && this.remove(id));
    await Promise.all([...named.values()].map(look));
  }

  /** Look what the chat remembers now. */
  async refreshMemory(chatId) {
    this.chatId = chatId;
    const found = chatId ? await getJson(`/chats/${chatId}/memory`).catch(() => null) : null;
    if (chatId !== this.chatId) return;
    this.remembered = (found?.documents ?? []).map(({ document_id: id, name }) => ({ id, name }));
    this.noteDocuments(this.remembered);
    this.render();
  }

  getDocument(id) {
    return this.names.get(id) ?? null;
  }

  noteDocuments(documents) {
    for (const document of documents) this.names.set(document.id, { ...this.names.get(document.id), ...document });
  }

  selectOnly(document) {
    this.selected = new Map([[document.id, document]]);
    this.noteDocuments([document]);
    this.setMode(THESE);
  }

  toggle(document, on) {
    if (on) this.selected.set(document.id, document);
    else this.selected.delete(document.id);
    this.noteDocuments([document]);
    this.setMode(this.selected.size ? THESE : AUTO);
  }

  clear() {
    this.selected.clear();
    this.setMode(AUTO);
  }

  /** After a message: files sent with it stay chosen, unless the chat itself now stands for the same documents. */
  settleAfterSending(chatDocuments) {
    const files = this.uploads.completed;
    for (const document of files) this.selected.set(document.id, document);
    this.noteDocuments(files);
    this.uploads.clearEnded();
    if (files.length) this.mode = THESE;
    if (chatDocuments) this.chatDocuments = chatDocuments;
    const own = new Set(this.chatDocuments.map((document) => document.id));
    const same = own.size === this.selected.size && [...this.selected.keys()].every((id) => own.has(id));
    if (same && this.mode === THESE) {
      this.selected.clear();
      this.mode = AUTO;
    }
    this.notifyChanged();
  }

  setMode(mode) {
    this.mode = mode;
    this.notifyChanged();
  }

  notifyChanged() {
    this.render();
    this.dispatchEvent(new Event("changed"));
  }

  // The line

  watchModes() {
    for (const button of this.modes) {
      button.addEventListener("click", () => this.chooseMode(button.dataset.scope));
      button.addEventListener("keydown", (event) => {
        const step = STEPS[event.key];
        if (!step) return;
        event.preventDefault();
        const next = this.modes.at((this.modes.indexOf(button) + step) % this.modes.length);
        next.focus();
        this.chooseMode(next.dataset.scope, { pick: false });
      });
    }
  }

  /** One tap. "These" takes up what is at hand; where nothing is, it asks which. */
  chooseMode(mode, { pick = true } = {}) {
    if (mode !== THESE || this.selected.size) return this.setMode(mode);
    const known = this.remembered.length ? this.remembered : this.chatDocuments;
    if (known.length) {
      this.selected = new Map(known.map((document) => [document.id, document]));
      return this.setMode(mode);
    }
    return pick && byId("picker").showPopover();
  }

  /** The mode that the next question has: files on their way are named whatever was chosen. */
  get shownMode() {
    return this.named.length ? THESE : this.mode;
  }

  /** The documents that the next question names, files on their way among them. */
  get named() {
    const { working, completed } = this.uploads;
    return [...(this.mode === THESE ? this.selected.values() : []), ...completed, ...working];
  }

  /** {text, title}: what the next question searches, in a few words and in a sentence. */
  describe() {
    const everything = this.total ? tn("scope_next.all", this.total) : t("scope_next.none");
    if (this.named.length) return describeNames("scope_next.these", this.named);
    if (this.mode === ALL || this.newTopic) return { text: everything, title: t("scope_next.all_more") };
    if (this.chatDocuments.length) return describeNames("scope_next.these", this.chatDocuments);
    if (this.gone) return { text: t("scope_next.gone"), title: t("scope_next.gone_more") };
    if (this.remembered.length) return describeNames("scope_next.first", this.remembered);
    return { text: everything, title: t("scope_next.auto_more") };
  }

  render() {
    const { text, title } = this.describe();
    byId("scope-text").textContent = text;
    byId("scope-button").title = title;
    byId("scope-new").hidden = !this.newTopic;
    for (const button of this.modes) {
      const on = button.dataset.scope === this.shownMode;
      button.setAttribute("aria-checked", String(on));
      button.tabIndex = on ? 0 : -1;
    }
  }

  // The picker

  watchPicker() {
    const picker = byId("picker");
    const search = byId("picker-search");
    picker.addEventListener("toggle", (event) => {
      const open = event.newState === "open";
      byId("scope-button").setAttribute("aria-expanded", String(open));
      if (!open) return;
      search.value = "";
      this.showRemembered();
      placeBeside(picker, byId("scope-button"), { above: true });
      this.searchPicker("");
      search.focus();
    });
    let timer = null;
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.searchPicker(search.value.trim()), 200);
    });
    byId("picker-clear").addEventListener("click", () => {
      this.clear();
      picker.hidePopover();
    });
    byId("memory-forget").addEventListener("click", () => this.forgetDocuments());
  }

  showRemembered() {
    byId("picker-memory").hidden = !this.remembered.length;
    byId("picker-memory-names").textContent = this.remembered.map(({ name }) => name).join(", ");
  }

  async searchPicker(text) {
    const list = byId("picker-list");
    this.asked = text;
    try {
      const [libraries, found] = await Promise.all([
        findLibraries(text, MAX_PICKER_LIBRARIES),
        findReadyDocuments(text, MAX_PICKER_DOCUMENTS),
      ]);
      if (this.asked !== text) return;
      const all = [...libraries, ...found.results];
      const others = all.filter((document) => !this.selected.has(document.id));
      const chosen = text ? all.filter((document) => this.selected.has(document.id)) : [...this.selected.values()];
      list.replaceChildren(...[...chosen, ...others].map((document) => this.createOption(document)));
      if (!list.children.length) list.append(el("li", { class: "picker-empty", text: t(text ? "no_match" : "no_documents") }));
      if (!text) this.total = found.count;
    } catch (error) {
      list.replaceChildren(el("li", { class: "picker-empty", text: error.message }));
    }
    placeBeside(byId("picker"), byId("scope-button"), { above: true });
  }

  createOption(document) {
    const box = el("input", { type: "checkbox" });
    box.checked = this.mode === THESE && this.selected.has(document.id);
    box.addEventListener("change", () => this.toggle(document, box.checked));
    const name = el("span", { class: "picker-name", text: document.name });
    const sign = document.is_library ? createIcon("folder", "icon-s") : null;
    return el("li", {}, el("label", { class: "picker-option" }, box, sign, name, el("small", { text: describeSize(document) })));
  }

  /** The conversation forgets its documents. */
  async forgetDocuments() {
    if (!(await forgetDocuments(this.chatId))) return;
    this.remembered = [];
    byId("picker").hidePopover();
    this.notifyChanged();
    byId("composer-input").focus();
  }
}

/** The size of a document or library, in words. */
export function describeSize({ is_library: isLibrary, documents, page_count: pages }) {
  if (isLibrary) return documents === undefined ? t("library") : tn("library.documents", documents);
  return pages ? tn("pages", pages) : "";
}

function describeNames(key, documents) {
  const [first, ...others] = documents.map(({ name }) => name);
  const names = others.length ? tn("names.more", others.length, { name: first }) : first;
  return { text: hasString(key) ? t(key, { names }) : names, title: t(`${key}_more`, { names: [first, ...others].join(", ") }) };
}
