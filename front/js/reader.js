// One document in a pane: the pages of a PDF, or the text of other files, with marks, search, zoom and outline.

import { toAddress } from "./address.js";
import { getJson, getText, toQueryString } from "./api.js";
import { createIcon, createIconButton, el } from "./dom.js";
import { t } from "./strings.js";
import { TextView } from "./text_view.js";

const PDF = "application/pdf";
const PAPER_KEY = "nura.paper";
const FIND_PAUSE_MS = 250;
const ZOOM_STEP = 0.1;
const MIN_TEXT_SCALE = 0.8;
const MAX_TEXT_SCALE = 1.8;
const MAX_PICTURES = 1000; // more are not shown between the lines
const PICTURES_AT_ONCE = 100;

export class Reader {
  /**
   * `root` is filled; `onPlace({page} | {start})` is told where the reader is.
   *
   * @param {HTMLElement} root
   * @param {{onPlace: (place: any) => void}} hooks
   */
  constructor(root, { onPlace }) {
    this.root = root;
    this.onPlace = onPlace;
    /** @type {any} */
    this.view = null;
    this.hasSearched = false;
    this.pane = el("div", { class: "reader-pane", tabindex: "0", role: "region", "aria-label": t("reader.document") });
    this.note = el("div", { class: "reader-note" });
    this.outlineList = el("nav", { class: "reader-outline", hidden: true, "aria-label": t("reader.outline") });
    this.bar = this.createBar();
    this.findBar = this.createFindBar();
    root.replaceChildren(
      this.bar,
      this.findBar,
      this.note,
      el("div", { class: "reader-stage" }, this.pane, this.outlineList),
    );
    root.classList.add("reader");
    root.addEventListener("keydown", (event) => this.handleKey(event));
  }

  // What is shown

  /** Say which document is about to be opened: a search from now on is meant for that one, and goes before `lead`. */
  announceDocument(documentId) {
    if (this.document?.id !== documentId) this.closeFind();
    this.hasSearched = false;
  }

  /** Show a document, of an old `version` where one is given; nothing is loaded twice. */
  async open(document_, version = null) {
    const key = `${document_.id} ${version ?? document_.version}`;
    if (this.key === key) return this.opening;
    this.close();
    this.key = key;
    this.document = document_;
    this.version = version;
    this.opening = this.load(key);
    return this.opening;
  }

  async load(key) {
    const query = this.version ? `?${toQueryString({ version: this.version })}` : "";
    const path = `/documents/${this.document.id}`;
    this.root.dataset.kind = this.document.content_type === PDF ? "pdf" : "text";
    this.pane.replaceChildren(el("div", { class: "skeleton", "aria-busy": "true" }));
    if (this.document.content_type === PDF) {
      if (await this.loadPdf(key, toAddress(`/api/v1${path}/file${query}`))) return;
      this.root.dataset.kind = "text";
      this.note.replaceChildren(createNote("triangle-alert", t("reader.unreadable")));
    }
    const [text, outline, pictures] = await Promise.all([
      getText(`${path}/text${query}`),
      getJson(`${path}/outline${query}`).catch(() => []),
      this.version ? [] : listPictures(path),
    ]).catch((error) => [error, [], []]);
    if (this.key !== key) return;
    if (text instanceof Error) {
      this.pane.replaceChildren(createNote("circle-alert", text.message, "note-error"));
      return;
    }
    this.showText({ text, contentType: this.document.content_type, headings: outline, pictures });
  }

  async loadPdf(key, url) {
    const { PdfView } = await import("./pdf.js");
    if (this.key !== key) return true;
    const holder = el("div", { class: "pdf-pane" });
    this.pane.replaceChildren(holder);
    const view = new PdfView(holder, {
      onPage: (page) => this.showPage(page),
      onFound: (found) => this.showFound(found),
      onScale: (scale) => this.showScale(scale),
    });
    this.view = view;
    const { pdfWorker, pdfParts } = document.documentElement.dataset;
    try {
      await view.open(url, { worker: new URL(pdfWorker, location.href).href, parts: new URL(pdfParts, location.href).href });
    } catch (error) {
      view.close();
      if (this.key !== key) return true;
      this.view = null;
      console.warn("This PDF cannot be shown", error);
      return false;
    }
    if (this.key === key) {
      this.showPage(view.page);
      this.offerOutline();
      this.search();
    }
    return true;
  }

  /** A text that is at hand: what was kept of a document that is gone. */
  showText(shown) {
    const view = new TextView(this.pane, {
      onPlace: () => this.onPlace({ start: view.place }),
      onFound: (found) => this.showFound(found),
    });
    view.show(shown);
    this.view = view;
    this.showScale(this.textScale ?? 1);
    this.offerOutline();
    this.search();
    if (!shown.text.trim()) this.pane.append(createNote("info", t("reader.no_text")));
  }

  openSnapshot(text, why) {
    this.close();
    this.key = "text";
    this.root.dataset.kind = "text";
    this.note.replaceChildren(createNote("info", why, "note-warning"));
    this.showText({ text, contentType: "text/plain" });
  }

  close() {
    this.view?.close();
    this.view = null;
    this.key = null;
    this.note.replaceChildren();
    this.pane.replaceChildren();
    this.outlineList.hidden = true;
  }

  /** Tell what the reader must know of the version shown. */
  showNotes(...notes) {
    this.note.replaceChildren(...notes);
  }

  /** Places: `{page, boxes, text, start, end}`; `here` is one of `sentences`, or of `passages`, and is led to. */
  async setMarks(passages, sentences, here) {
    await this.opening;
    if (!this.view) return;
    this.view.setMarks(passages, sentences, here);
    if (here) await this.leadTo(here);
  }

  /** Go to what the document was opened for, unless somebody has searched since: it may come late. */
  async leadTo(place) {
    await this.opening;
    if (!this.hasSearched) await this.goTo(place);
  }

  /** Mark the words of a search in the passage that it found, where the text is drawn, and go to the first. */
  leadToWords(words, passage) {
    const isPlaced = this.root.dataset.kind === "text" && passage.start !== null;
    if (isPlaced && !this.hasSearched) this.view?.markAndGoToWords(words, passage);
  }

  async goTo({ page = null, start = null, boxes = [] }) {
    await this.opening;
    if (!this.view) return;
    const isPdf = this.root.dataset.kind === "pdf";
    if (isPdf && page) this.view.goTo({ page, box: boxes.find((box) => box.page === page) ?? null });
    else if (!isPdf && start !== null) this.view.goTo({ start, mark: ".mark-here" });
  }

  // The bar

  createBar() {
    const button = (icon, label, run, extra = {}) => createIconButton(icon, label, { ...extra, on: { click: run } });
    this.outlineButton = button("list", t("reader.outline"), () => this.toggleOutline(), { "aria-expanded": "false", hidden: true });
    this.pageInput = el("input", {
      class: "reader-page",
      type: "text",
      inputmode: "numeric",
      "aria-label": t("reader.page"),
      on: {
        change: () => this.goTo({ page: Math.min(Math.max(1, Number.parseInt(this.pageInput.value, 10) || 1), this.view?.pageCount ?? 1) }),
        focus: () => this.pageInput.select(),
      },
    });
    this.pageTotal = el("span", { class: "reader-total" });
    this.scaleLabel = el("button", { type: "button", class: "reader-scale", title: t("reader.fit"), text: "100%", on: { click: () => this.fitWidth() } });
    this.paper = button("sun", t("reader.paper"), () => this.togglePaper(), { class: "icon-button reader-paper", "aria-pressed": "false" });
    this.root.classList.toggle("paper-light", localStorage.getItem(PAPER_KEY) === "light");
    this.showPaper();
    return el(
      "div",
      { class: "reader-bar", role: "toolbar", "aria-label": t("reader.tools") },
      this.outlineButton,
      el("span", { class: "reader-pages" }, this.pageInput, this.pageTotal),
      el("span", { class: "reader-gap" }),
      button("minus", t("reader.smaller"), () => this.zoom(-1)),
      this.scaleLabel,
      button("plus", t("reader.larger"), () => this.zoom(1)),
      this.paper,
      button("search", t("reader.find"), () => this.openFind()),
    );
  }

  showPage(page) {
    if (document.activeElement !== this.pageInput) this.pageInput.value = String(page);
    this.pageTotal.textContent = `/ ${this.view?.pageCount ?? ""}`;
    this.onPlace({ page });
  }

  showScale(scale) {
    this.scaleLabel.textContent = `${Math.round(scale * 100)}%`;
  }

  zoom(step) {
    if (this.root.dataset.kind === "pdf") this.view?.zoom(step);
    else this.scaleText((this.textScale ?? 1) + step * ZOOM_STEP);
  }

  fitWidth() {
    if (this.root.dataset.kind === "pdf") this.view?.fitWidth();
    else this.scaleText(1);
  }

  scaleText(scale) {
    this.textScale = Math.min(MAX_TEXT_SCALE, Math.max(MIN_TEXT_SCALE, scale));
    this.pane.style.setProperty("--doc-scale", String(this.textScale));
    this.showScale(this.textScale);
  }

  togglePaper() {
    const isLight = this.root.classList.toggle("paper-light");
    localStorage.setItem(PAPER_KEY, isLight ? "light" : "");
    this.showPaper();
  }

  showPaper() {
    this.paper.setAttribute("aria-pressed", String(this.root.classList.contains("paper-light")));
  }

  // Outline

  async offerOutline() {
    const { view } = this;
    const rows = await view.listOutline().catch(() => []);
    if (this.view !== view) return;
    this.outlineButton.hidden = !rows.length;
    const item = ({ title, level, open }) => {
      const run = () => {
        open();
        this.toggleOutline(false);
      };
      return el("li", {}, el("button", { type: "button", data: { level: Math.min(level, 4) }, text: title, on: { click: run } }));
    };
    this.outlineList.replaceChildren(el("ul", {}, rows.map(item)));
  }

  toggleOutline(open = this.outlineList.hidden) {
    this.outlineList.hidden = !open;
    this.outlineButton.setAttribute("aria-expanded", String(open));
    if (open) this.outlineList.querySelector("button")?.focus({ preventScroll: true });
    else this.pane.focus({ preventScroll: true });
  }

  // Search

  createFindBar() {
    this.findInput = el("input", { type: "search", class: "reader-query", placeholder: t("reader.find"), "aria-label": t("reader.find") });
    this.findCount = el("span", { class: "reader-count", role: "status" });
    this.findInput.addEventListener("input", () => {
      this.hasSearched = Boolean(this.findInput.value.trim());
      clearTimeout(this.findTimer);
      this.findTimer = setTimeout(() => this.search(), FIND_PAUSE_MS);
    });
    this.findInput.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") {
        event.preventDefault();
        this.stepFound(event.shiftKey);
      } else if (event.key === "Escape") {
        event.preventDefault();
        event.stopPropagation();
        this.closeFind();
        this.pane.focus({ preventScroll: true });
      }
    });
    const step = (icon, label, back) => createIconButton(icon, label, { on: { click: () => this.stepFound(back) } });
    return el(
      "div",
      { class: "reader-find", role: "search", hidden: true },
      this.findInput,
      this.findCount,
      step("chevron-up", t("reader.find_previous"), true),
      step("chevron-down", t("reader.find_next"), false),
      createIconButton("x", t("reader.find_close"), { on: { click: () => this.closeFind() } }),
    );
  }

  /** Search for what stands in the bar, if it is open. */
  search(options) {
    clearTimeout(this.findTimer);
    if (this.findBar.hidden) return;
    if (this.findInput.value.trim()) this.view?.find(this.findInput.value, options);
    else this.endFind();
  }

  /** Go to the next place of the search, or the one before. */
  stepFound(back) {
    this.hasSearched = true;
    this.search({ again: true, back });
  }

  openFind() {
    this.findBar.hidden = false;
    this.findInput.focus({ preventScroll: true });
    this.findInput.select();
  }

  closeFind() {
    clearTimeout(this.findTimer);
    this.hasSearched = false;
    if (this.findBar.hidden) return;
    this.findBar.hidden = true;
    this.endFind();
  }

  endFind() {
    this.findCount.textContent = "";
    this.view?.endFind();
  }

  showFound({ current, total, isDone }) {
    if (total) this.findCount.textContent = `${current} / ${total}`;
    else this.findCount.textContent = isDone ? t("reader.not_found") : "";
  }

  handleKey(event) {
    const mod = event.ctrlKey || event.metaKey;
    if (!mod || event.altKey || event.shiftKey) return;
    const run = { f: () => this.openFind(), "=": () => this.zoom(1), "+": () => this.zoom(1), "-": () => this.zoom(-1), 0: () => this.fitWidth() }[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  }
}

export function createNote(icon, text, kind = "note-info") {
  return el("p", { class: `note ${kind}`, role: "note" }, createIcon(icon), el("span", { text }));
}

/** Pictures whose place in the text is known: {start, url, width, height, words}. Those of deleted versions are not stored. */
async function listPictures(path) {
  const found = [];
  for (let page = 1; found.length < MAX_PICTURES; page += 1) {
    const list = await getJson(`${path}/pictures?${toQueryString({ page, page_size: PICTURES_AT_ONCE })}`).catch(() => null);
    found.push(...(list?.results ?? []));
    if (!list?.next) break;
  }
  return found
    .filter((one) => !one.rejected && one.start !== null)
    .map(({ index, start, width, height, description }) => ({
      start,
      width,
      height,
      words: description ?? "",
      url: toAddress(`/api/v1${path}/pictures/${index}.png`),
    }));
}
