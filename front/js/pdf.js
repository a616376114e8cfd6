// PDFs drawn by pdf.js in the page: the file is parsed in a worker, under the page's strict policy, and the worker can be
// stopped. Nothing in it is executed: no scripts, forms or embedded files; links open only when they are clicked.

import { AnnotationMode, getDocument, GlobalWorkerOptions, PDFWorker, VerbosityLevel } from "pdfjs-dist/legacy/build/pdf.mjs";
import { EventBus, FindState, LinkTarget, PDFFindController, PDFLinkService, PDFViewer } from "pdfjs-dist/legacy/web/pdf_viewer.mjs";
import { el } from "./dom.js";
import { findLetters, mapLetters, toLetters } from "./matching.js";
import { t } from "./strings.js";

const FITTED = "page-width";
const NO_EDITOR = -1; // AnnotationEditorType.DISABLE
const RANGE_BYTES = 256 * 1024;
const MAX_IMAGE_PIXELS = 64 * 1024 * 1024;
const FIRST_PAGE_WITHIN_MS = 30_000;
const SCALE_STEP = 1.15;
const MIN_SCALE = 0.25;
const MAX_SCALE = 5;
const SHARE_ABOVE = 0.28; // of the pane's height, above a place that was jumped to
const LINE_SHARE = 0.6; // of a letter's height that two boxes share on one line
const MAX_WORD_GAP = 1.2; // between two boxes of one line, in heights of it

/**
 * The texts of the viewer are our own, in the reader's language, so pdf.js needs no translations.
 *
 * @type {any}
 */
const NO_WORDS = {
  getLanguage: () => document.documentElement.lang,
  getDirection: () => "ltr",
  get: async () => "",
  translate: async () => {},
  translateOnce: async () => {},
  pause: () => {},
  resume: () => {},
  destroy: async () => {},
};

/** A PDF that cannot be shown. */
export class UnreadablePdf extends Error {}

/**
 * A PDF in `container`, which has a fixed position and scrolls. Marks are `{page, boxes, text?}`; boxes are in fractions of the
 * page, from its top left.
 */
export class PdfView {
  /** `onPage(number)`: another page is in sight; `onFound({current, total, isDone})`; `onScale(factor)`. */
  constructor(container, { onPage, onFound, onScale }) {
    this.container = container;
    this.events = new EventBus();
    this.links = new PDFLinkService({ eventBus: this.events, externalLinkTarget: LinkTarget.BLANK, externalLinkRel: "noopener noreferrer" });
    this.finder = new PDFFindController({ eventBus: this.events, linkService: this.links });
    this.pages = el("div", { class: "pdfViewer" });
    container.replaceChildren(this.pages);
    this.leaving = new AbortController();
    /** @type {any} */
    const options = {
      container,
      viewer: this.pages,
      eventBus: this.events,
      linkService: this.links,
      findController: this.finder,
      annotationMode: AnnotationMode.ENABLE,
      annotationEditorMode: NO_EDITOR,
      removePageBorders: true,
      l10n: NO_WORDS,
      abortSignal: this.leaving.signal,
    };
    this.viewer = new PDFViewer(options);
    this.links.setViewer(this.viewer);
    this.passages = [];
    this.sentences = [];
    this.aim = null;
    this.events.on("pagesinit", () => this.handlePagesReady());
    this.events.on("pagechanging", ({ pageNumber }) => onPage(pageNumber));
    this.events.on("scalechanging", ({ scale }) => onScale(scale));
    this.events.on("pagerendered", ({ pageNumber }) => this.drawMarks(pageNumber));
    this.events.on("textlayerrendered", ({ pageNumber }) => {
      this.drawMarks(pageNumber);
      this.mendTables(pageNumber);
    });
    const tell = (matches, state) => onFound({ ...matches, isDone: state !== FindState.PENDING });
    this.events.on("updatefindmatchescount", ({ matchesCount }) => tell(matchesCount, FindState.FOUND));
    this.events.on("updatefindcontrolstate", ({ state, matchesCount }) => tell(matchesCount, state));
    this.resizing = new ResizeObserver(() => this.refit());
    this.resizing.observe(container);
    for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
      container.addEventListener(kind, () => (this.aim = null), { passive: true, signal: this.leaving.signal });
    }
  }

  /** Open the file at `url`. Raises `UnreadablePdf`. */
  async open(url, { worker, parts }) {
    this.thread = new Worker(worker, { type: "module" });
    GlobalWorkerOptions.workerSrc = worker;
    this.task = getDocument({
      url,
      worker: PDFWorker.create({ port: this.thread, verbosity: VerbosityLevel.ERRORS }),
      verbosity: VerbosityLevel.ERRORS,
      rangeChunkSize: RANGE_BYTES,
      disableStream: true,
      disableAutoFetch: true,
      cMapUrl: `${parts}cmaps/`,
      standardFontDataUrl: `${parts}fonts/`,
      wasmUrl: `${parts}wasm/`,
      useWasm: false, // compiling it would need a weaker policy
      useSystemFonts: false,
      maxImageSize: MAX_IMAGE_PIXELS,
      enableXfa: false,
      disableWorkerRendering: true,
    });
    try {
      this.document = await this.failIfLate(this.task.promise);
      this.links.setDocument(this.document);
      this.viewer.setDocument(this.document);
      await this.failIfLate(this.viewer.firstPagePromise);
    } catch (error) {
      throw new UnreadablePdf(error?.message, { cause: error });
    }
  }

  /** What a promise gives; a file that keeps its worker busy for ever is given up, and so is one that ends it. */
  failIfLate(promise) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("late")), FIRST_PAGE_WITHIN_MS);
      this.thread.addEventListener("error", () => reject(new Error("worker")), { once: true });
      promise.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  close() {
    this.resizing.disconnect();
    this.leaving.abort();
    this.viewer.setDocument(null);
    this.links.setDocument(null);
    this.task?.destroy().catch(() => {});
    this.thread?.terminate();
  }

  handlePagesReady() {
    this.viewer.currentScaleValue = FITTED;
    for (let number = 1; number <= this.viewer.pagesCount; number += 1) {
      this.viewer.getPageView(number - 1).div.setAttribute("aria-label", t("page", { page: number }));
    }
    if (this.aim) this.scrollToAim();
  }

  /** Pages that fill the width go on doing so; what the reader looks at stays where it is. */
  refit() {
    if (!this.viewer.pagesCount || this.viewer.currentScaleValue !== FITTED) return;
    this.viewer.currentScaleValue = FITTED;
    if (this.aim) requestAnimationFrame(() => this.aim && this.scrollToAim()); // pages have their new sizes by then
  }

  get page() {
    return this.viewer.currentPageNumber;
  }

  get pageCount() {
    return this.viewer.pagesCount;
  }

  // Places

  /** Bring a place into sight: a page, and where on it. It stays there while pages around it get their true size. */
  goTo({ page, box = null }) {
    this.aim = { page, box };
    if (this.viewer.pagesCount) this.scrollToAim();
  }

  scrollToAim() {
    const { page, box } = this.aim;
    const view = this.viewer.getPageView(page - 1);
    if (!view) return;
    const mark = view.div.querySelector(".pdf-mark-here");
    const inPage = mark ? mark.offsetTop : (box?.y0 ?? 0) * view.div.clientHeight;
    const isWhole = !mark && !box;
    const top = view.div.offsetTop + inPage - (isWhole ? 0 : this.container.clientHeight * SHARE_ABOVE);
    const wide = mark ? mark.offsetLeft : (box?.x0 ?? 0) * view.div.clientWidth;
    const left = view.div.clientWidth > this.container.clientWidth ? view.div.offsetLeft + wide - 40 : 0;
    this.container.scrollTo({ top: Math.max(0, top), left: Math.max(0, left), behavior: "instant" });
  }

  // Marks

  /** `passages` lightly, `sentences` strongly; `here` of the latter is where the reader is led to. */
  setMarks(passages, sentences, here = null) {
    this.passages = passages;
    this.sentences = sentences;
    this.here = here;
    for (const view of this.viewer.getCachedPageViews()) this.drawMarks(view.id);
  }

  drawMarks(number) {
    const view = this.viewer.getPageView(number - 1);
    if (!view?.div) return;
    view.div.querySelector(".pdf-marks")?.remove();
    const onPage = (one) => one.page === number;
    const light = this.passages.flatMap(({ boxes }) => joinLines(boxes.filter(onPage)));
    const strong = this.sentences.flatMap((one) => {
      const boxes = one.boxes.filter(onPage);
      if (one.page !== number && !boxes.length) return [];
      return joinLines(this.findInText(view, one, boxes) ?? boxes).map((box) => ({ ...box, isHere: one === this.here }));
    });
    if (light.length + strong.length) {
      const first = strong.find((box) => box.isHere);
      const draw = (name) => (box) => placeBox(el("div", { class: box === first ? `${name} pdf-mark-here` : name }), box);
      view.div.append(el("div", { class: "pdf-marks" }, light.map(draw("pdf-passage")), strong.map(draw("pdf-sentence"))));
    }
    if (this.aim?.page === number) this.scrollToAim();
  }

  /** The boxes of a sentence by its letters, where the page has them as text; those near `boxes`, if it is said twice. */
  findInText(view, sentence, boxes) {
    const layer = view.textLayer?.div;
    const letters = toLetters(sentence.text ?? "");
    if (!layer?.isConnected || !letters) return null;
    const { text, places } = mapLetters(layer);
    const frame = view.div.getBoundingClientRect();
    const aimed = boxes.length ? boxes[0].y0 : 0;
    const found = findLetters(text, letters).map(([from, to]) => measureLetters(places, from, to, frame));
    const near = (one) => (one.length ? Math.abs(one[0].y0 - aimed) : Infinity);
    const [best] = found.sort((one, other) => near(one) - near(other));
    return best?.length ? best : null;
  }

  /** Lines and blanks that some producers put between the rows of a tagged table are no part of it. */
  async mendTables(number) {
    const tree = await this.viewer.getPageView(number - 1)?.structTreeLayer?.render();
    for (const stray of tree?.querySelectorAll("[role=table] > span[aria-owns]:not([role])") ?? []) stray.remove();
  }

  // Search, zoom, outline

  find(query, { again = false, back = false } = {}) {
    this.aim = null;
    this.events.dispatch("find", {
      source: this,
      type: again ? "again" : "",
      query,
      caseSensitive: false,
      entireWord: false,
      highlightAll: true,
      findPrevious: back,
      matchDiacritics: false,
    });
  }

  endFind() {
    this.events.dispatch("findbarclose", { source: this });
  }

  zoom(step) {
    const scale = this.viewer.currentScale * SCALE_STEP ** step;
    this.viewer.currentScale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, scale));
  }

  fitWidth() {
    this.viewer.currentScaleValue = FITTED;
  }

  /** The document's own outline: {title, level, open()}; empty where it has none. */
  async listOutline() {
    const rows = [];
    const walk = (items, level) => {
      for (const item of items ?? []) {
        const open = () => item.dest && this.links.goToDestination(item.dest);
        if (item.title.trim()) rows.push({ title: item.title.trim(), level, open });
        walk(item.items, level + 1);
      }
    };
    walk(await this.document.getOutline(), 1);
    return rows;
  }
}

function placeBox(mark, { x0, y0, x1, y1 }) {
  Object.assign(mark.style, {
    left: `${x0 * 100}%`,
    top: `${y0 * 100}%`,
    width: `${(x1 - x0) * 100}%`,
    height: `${(y1 - y0) * 100}%`,
  });
  return mark;
}

/** The boxes of the letters [from, to) of a text layer, in fractions of the page. */
function measureLetters(places, from, to, frame) {
  const range = document.createRange();
  const boxes = [];
  for (let at = from; at < to; at += 1) {
    const { node, offset } = places[at];
    let last = at;
    while (last + 1 < to && places[last + 1].node === node) last += 1;
    range.setStart(node, offset);
    range.setEnd(node, Math.min(places[last].offset + 1, node.length));
    for (const rect of range.getClientRects()) {
      if (rect.width > 0) {
        boxes.push({
          x0: (rect.left - frame.left) / frame.width,
          x1: (rect.right - frame.left) / frame.width,
          y0: (rect.top - frame.top) / frame.height,
          y1: (rect.bottom - frame.top) / frame.height,
        });
      }
    }
    at = last;
  }
  return boxes;
}

/** Merge neighbouring boxes of a line, so that marks do not overlap. */
function joinLines(boxes) {
  const lines = [];
  for (const box of boxes) {
    const height = box.y1 - box.y0;
    const last = lines.at(-1);
    const shared = last ? Math.min(last.y1, box.y1) - Math.max(last.y0, box.y0) : 0;
    const gap = last ? Math.max(box.x0 - last.x1, last.x0 - box.x1) : Infinity;
    if (shared > LINE_SHARE * Math.min(height, last?.y1 - last?.y0) && gap < MAX_WORD_GAP * height) {
      Object.assign(last, { x0: Math.min(last.x0, box.x0), x1: Math.max(last.x1, box.x1), y0: Math.min(last.y0, box.y0), y1: Math.max(last.y1, box.y1) });
    } else {
      lines.push({ x0: box.x0, x1: box.x1, y0: box.y0, y1: box.y1 });
    }
  }
  return lines;
}
