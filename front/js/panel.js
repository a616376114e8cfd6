// The panel on the right: the source of a citation at its place in its document, among the other sources of the answer.
//
// It has an address of its own (see `place.js`): Back closes it, a reload opens it again.

import { toAddress } from "./address.js";
import { fetchDocument, fetchSnapshot } from "./api.js";
import { nameSources, quoteBeginning, splitSources } from "./citations.js";
import { byId, createIcon, el } from "./dom.js";
import { formatDate, formatFileSize, formatPages } from "./format.js";
import { toUnitConverter } from "./matching.js";
import { Reader } from "./reader.js";
import { t } from "./strings.js";

const MIN_WIDTH_PIXELS = 320;
const MIN_THREAD_PIXELS = 360;
const WIDTH_STEP_PIXELS = 24;
const WIDTH_KEY = "nura.panel";
const MAX_CHIP_CHARACTERS = 28;
const TABS = ["cited", "reviewed", "whole"];

const WEB_ADDRESS = /^https?:\/\//;

/** Where a document came from; a web address is a link. */
function createOrigin(place) {
  const props = { class: "origin", text: t("origin", { place }), title: place };
  return WEB_ADDRESS.test(place) ? el("a", { ...props, href: place, target: "_blank", rel: "noopener noreferrer" }) : el("span", props);
}

export class Panel extends EventTarget {
  /**
   * `hooks`: askOnly(source), where one can ask here. Events: `opened`, `moved` (another source, tab or page), `closing` (by
   * the reader's hand; what listens closes), `closed`.
   */
  constructor(hooks) {
    super();
    this.root = byId("panel");
    this.body = byId("panel-body");
    this.title = byId("panel-title");
    this.facts = byId("panel-facts");
    this.origin = byId("panel-origin");
    this.tabs = byId("panel-tabs");
    this.chips = byId("panel-chips");
    this.actions = byId("panel-actions");
    this.hooks = hooks;
    this.opener = null;
    this.reset();
    byId("panel-close").addEventListener("click", () => this.requestClose());
    byId("panel-previous").addEventListener("click", () => this.stepSource(-1));
    byId("panel-next").addEventListener("click", () => this.stepSource(1));
    this.watchTabs();
    this.watchGrip();
  }

  get isOpen() {
    return !this.root.hidden;
  }

  reset() {
    this.message = null;
    this.source = null;
    this.spans = null;
    this.names = new Map();
    this.cited = [];
    this.reviewed = [];
    this.tab = "whole";
    this.page = null;
    this.ticket = null;
  }

  // What it shows

  /** A source of an answer; `spans` of it are what was cited where the reader clicked. */
  async open(message, source, opener, { spans = null, tab = null, page = null } = {}) {
    const found = splitSources(message);
    this.reset();
    Object.assign(this, found, { message, names: nameSources(message) });
    const all = [...found.cited, ...found.reviewed];
    this.source = all.find((one) => one.chunk_id === source.chunk_id && one.slot === source.slot) ?? all[0];
    this.spans = spans;
    this.tab = tab ?? (this.source.cited === false ? "reviewed" : "cited");
    this.page = page;
    this.reveal(opener);
    await this.render();
  }

  /** A document on its own; `passage` of it, a chunk, is marked and led to. */
  async openDocument(document_, opener, { page = null, passage = null } = {}) {
    this.reset();
    this.page = page;
    this.passage = passage;
    this.document = document_;
    this.reveal(opener);
    this.drawFrame();
    const reader = this.getReader();
    reader.announceDocument(document_.id);
    this.showFacts(document_, document_);
    const passages = passage ? [passage] : [];
    await reader.open(document_);
    await reader.setMarks(passages, [], null);
    if (passage) await reader.leadTo(passage);
    else if (page) await reader.leadTo({ page });
  }

  /** Something else than a document. */
  openPart(title, part, opener) {
    this.reset();
    this.document = null;
    this.reveal(opener);
    this.root.classList.add("panel-plain");
    this.title.textContent = title;
    this.facts.textContent = "";
    this.origin.replaceChildren();
    this.reader?.close();
    this.reader = null;
    this.body.className = "panel-body panel-part";
    this.body.replaceChildren(part);
    this.body.scrollTop = 0;
  }

  reveal(opener) {
    if (opener) this.opener = opener;
    const wasClosed = this.root.hidden;
    this.root.hidden = false;
    this.root.classList.remove("panel-plain");
    document.body.classList.add("panel-open");
    if (wasClosed) this.fitWidth();
    this.dispatchEvent(new CustomEvent(wasClosed ? "opened" : "moved"));
    if (wasClosed) byId("panel-close").focus({ preventScroll: true });
  }

  /** The reader closes it: whoever keeps the address decides how. */
  requestClose() {
    if (this.root.hidden) return;
    if (this.dispatchEvent(new CustomEvent("closing", { cancelable: true }))) this.close();
  }

  close() {
    if (this.root.hidden) return;
    this.root.hidden = true;
    document.body.classList.remove("panel-open");
    this.reader?.close();
    this.reader = null;
    this.body.replaceChildren();
    this.reset();
    if (this.opener?.isConnected) this.opener.focus({ preventScroll: true });
    this.opener = null;
    this.dispatchEvent(new CustomEvent("closed"));
  }

  /** The source before or behind, of all that the answer has. */
  stepSource(step) {
    const all = [...this.cited, ...this.reviewed];
    const next = all[all.indexOf(this.source) + step];
    if (!next) return;
    this.showSource(next);
  }

  showSource(source) {
    this.source = source;
    this.spans = null;
    this.page = null;
    this.tab = source.cited === false ? "reviewed" : "cited";
    this.dispatchEvent(new CustomEvent("moved"));
    this.render();
  }

  async render() {
    const { source, spans, tab, page } = this;
    const ticket = (this.ticket = {});
    this.drawFrame();
    this.title.textContent = source.document_name;
    const reader = this.getReader();
    reader.announceDocument(source.document_id);
    const document_ = await fetchDocument(source.document_id).catch((error) => error);
    if (this.ticket !== ticket) return;
    if (document_ instanceof Error) {
      const isGone = document_.status === 404;
      this.showFacts(source, null);
      const text = await fetchSnapshot(source);
      if (this.ticket !== ticket) return;
      const missing = source.unreadable ? t("unreadable") : t("document_gone");
      reader.openSnapshot(text, isGone ? missing : document_.message);
      const sentences = locateInSnapshot(source, text);
      await reader.setMarks([], sentences, sentences[0] ?? null);
      return;
    }
    this.showFacts(source, document_);
    const version = source.version && source.version < document_.version ? source.version : null;
    await reader.open(document_, version);
    if (this.ticket !== ticket) return;
    this.showVersionNote(reader, document_, version);
    await this.markPassages(reader, { source, spans, tab, page });
  }

  /** The passage lightly, its sentences strongly; in the whole document those of all passages. */
  async markPassages(reader, { source, spans, tab, page }) {
    const own = [...this.cited, ...this.reviewed].filter((one) => one.document_id === source.document_id && one.version === source.version);
    const passages = (tab === "whole" ? own : [source]).map(toPassage);
    const sentences = (tab === "whole" ? own.flatMap((one) => one.spans ?? []) : (source.spans ?? []));
    const here = spans?.[0] ?? source.spans?.[0] ?? null;
    await reader.setMarks(passages.filter((one) => one.start !== null || one.boxes.length), sentences, page ? null : here);
    if (page) await reader.leadTo({ page });
    else if (!here) await reader.leadTo(toPassage(source));
  }

  getReader() {
    if (!this.reader) {
      this.body.className = "panel-body";
      this.reader = new Reader(this.body, { onPlace: (place) => this.notePage(place) });
    }
    return this.reader;
  }

  notePage({ page }) {
    if (!page || page === this.page) return;
    this.page = page;
    if (this.tab === "whole") this.dispatchEvent(new CustomEvent("moved"));
  }

  // The frame

  drawFrame() {
    const all = [...this.cited, ...this.reviewed];
    const at = all.indexOf(this.source);
    this.root.classList.toggle("panel-single", all.length < 2);
    this.root.classList.toggle("panel-lone", !all.length);
    byId("panel-count").textContent = all.length > 1 ? `${at + 1} / ${all.length}` : "";
    byId("panel-previous").disabled = at <= 0;
    byId("panel-next").disabled = at === all.length - 1;
    for (const tab of this.tabs.querySelectorAll("[role=tab]")) {
      const name = tab.dataset.tab;
      const count = this[name]?.length;
      tab.hidden = name !== "whole" && !count;
      tab.querySelector(".tab-count").textContent = count ? String(count) : "";
      const isShown = name === this.tab;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
      if (isShown) scrollRowTo(this.tabs, tab);
    }
    this.drawChips();
  }

  drawChips() {
    const list = this.tab === "whole" ? [] : this[this.tab];
    this.chips.hidden = list.length < 2;
    const isSeveral = new Set(list.map((one) => one.document_id)).size > 1;
    const isAlone = (one) => isSeveral && list.filter((other) => other.document_id === one.document_id).length === 1;
    this.chips.replaceChildren(...list.map((one) => this.createChip(one, isAlone(one))));
    const shown = this.chips.querySelector("[aria-current]");
    if (shown) scrollRowTo(this.chips, shown);
  }

  /** `isAlone`: no other passage of its document is shown beside it, but some of others are. */
  createChip(source, isAlone) {
    const name = this.names.get(source.chunk_id);
    const pages = formatPages(source);
    const where = pages || source.section.split(" > ").at(-1) || quoteBeginning(source);
    const label = isAlone ? [cutMiddle(source.document_name), pages].filter(Boolean).join(" ") : cutMiddle(where);
    return el(
      "button",
      {
        type: "button",
        class: "panel-chip",
        title: [source.document_name, pages, source.section].filter(Boolean).join(" · "),
        "aria-current": source === this.source ? "true" : null,
        on: { click: () => this.showSource(source) },
      },
      name ? el("span", { class: "slot", text: name }) : null,
      el("span", { text: label }),
    );
  }

  /** Title, owner, date and version, and what can be done with the document. */
  showFacts(source, document_) {
    this.title.textContent = document_?.name ?? source.document_name;
    this.title.title = this.title.textContent;
    const version = source.version ?? document_?.version;
    const facts = document_
      ? [document_.owner_name, formatDate(document_.created_at), t("reader.version", { number: version }), formatFileSize(document_.size)]
      : [source.unreadable ? t("unreadable") : t("deleted")];
    this.facts.textContent = facts.filter(Boolean).join(" · ");
    this.origin.replaceChildren(...(document_?.origin ? [createOrigin(document_.origin)] : []));
    this.actions.replaceChildren(...(document_ ? this.createActions(source, document_) : []));
  }

  createActions(source, document_) {
    const isOld = source.version && source.version < document_.version;
    const query = isOld ? `?version=${source.version}` : "";
    const only = el(
      "button",
      { type: "button", class: "button panel-only", on: { click: () => this.hooks.askOnly?.(source) } },
      createIcon("target", "icon-s"),
      t("only_this"),
    );
    const link = (icon, label, props) => el("a", { class: "icon-button", title: label, "aria-label": label, ...props }, createIcon(icon));
    return [
      this.hooks.askOnly ? only : null,
      this.message ? link("external-link", t("open_document"), { href: toAddress(`/documents/${document_.id}`) }) : null,
      link("download", t("download"), { href: toAddress(`/api/v1/documents/${document_.id}/file${query}`), download: document_.name }),
    ].filter(Boolean);
  }

  showVersionNote(reader, document_, version) {
    if (!version) return;
    const text = t("version.older", { number: version, current: document_.version });
    reader.showNotes(el("p", { class: "note note-info passage-old" }, createIcon("info"), el("span", { text })));
  }

  watchTabs() {
    const choose = (name) => {
      if (name === this.tab) return;
      this.tab = name;
      if (name !== "whole" && !this[name].includes(this.source)) this.source = this[name][0];
      this.spans = null;
      this.page = null;
      this.dispatchEvent(new CustomEvent("moved"));
      this.render();
    };
    this.tabs.addEventListener("click", (event) => {
      const tab = event.target.closest("[role=tab]");
      if (tab) choose(tab.dataset.tab);
    });
    this.tabs.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || event.altKey) return;
      event.preventDefault();
      const shown = TABS.filter((name) => name === "whole" || this[name].length);
      choose(shown[(shown.indexOf(this.tab) + step + shown.length) % shown.length]);
      this.tabs.querySelector("[aria-selected=true]").focus({ preventScroll: true });
    });
  }

  // Width

  /** As wide as the reader made it, as far as the thread keeps its room. */
  fitWidth() {
    if (this.width) this.setWidth(this.width);
  }

  setWidth(width) {
    const side = document.querySelector(".side");
    const taken = side && getComputedStyle(side).position !== "fixed" ? side.getBoundingClientRect().width : 0;
    const widest = Math.max(MIN_WIDTH_PIXELS, innerWidth - taken - MIN_THREAD_PIXELS);
    this.width = Math.min(Math.max(width, MIN_WIDTH_PIXELS), widest);
    this.root.style.width = `${this.width}px`;
    byId("panel-grip").setAttribute("aria-valuenow", String(Math.round(this.width)));
  }

  watchGrip() {
    const grip = byId("panel-grip");
    this.width = Number(localStorage.getItem(WIDTH_KEY)) || 0;
    const keep = () => localStorage.setItem(WIDTH_KEY, String(Math.round(this.width)));
    addEventListener("resize", () => this.isOpen && this.fitWidth());
    grip.addEventListener("pointerdown", (event) => {
      grip.setPointerCapture(event.pointerId);
      const move = (moved) => this.setWidth(this.root.getBoundingClientRect().right - moved.clientX);
      grip.addEventListener("pointermove", move);
      const end = () => {
        grip.removeEventListener("pointermove", move);
        keep();
      };
      grip.addEventListener("lostpointercapture", end, { once: true });
    });
    grip.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: WIDTH_STEP_PIXELS, ArrowRight: -WIDTH_STEP_PIXELS }[event.key];
      if (!step || event.altKey) return;
      event.preventDefault();
      this.setWidth(this.root.getBoundingClientRect().width + step);
      keep();
    });
  }
}

function toPassage({ page, boxes, start = null, end = null }) {
  return { page, boxes: boxes ?? [], start, end };
}

/** The sentences of a source located in its stored text: their own offsets are those of a deleted document. */
function locateInSnapshot(source, text) {
  const { toPoints } = toUnitConverter(text);
  let after = 0; // in order, so that a repeated sentence is found at each of its places
  return [...(source.spans ?? [])].sort((one, other) => one.start - other.start).flatMap((span) => {
    const next = text.indexOf(span.text, after);
    const at = next < 0 ? text.indexOf(span.text) : next;
    if (at < 0) return [];
    after = at + span.text.length;
    return [{ ...span, start: toPoints(at), end: toPoints(after) }];
  });
}

function cutMiddle(text) {
  if (text.length <= MAX_CHIP_CHARACTERS) return text;
  return `${text.slice(0, MAX_CHIP_CHARACTERS - 9)}…${text.slice(-8)}`;
}

/** Scroll only `row`, so that `item` is a third from its left edge, if it can be scrolled that far. */
function scrollRowTo(row, item) {
  row.scrollTo({ left: item.offsetLeft - row.clientWidth / 3, behavior: "instant" });
}
