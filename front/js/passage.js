// One source drawn: what it is, its rendered page with the passage marked, or its text with what stands around it.

import { toAddress } from "./address.js";
import { fetchChunk, fetchDocument, fetchOldText, fetchSnapshot, readChunkIndex } from "./api.js";
import { createIcon, createIconButton, el, scrollWithin } from "./dom.js";
import { formatFileSize, formatPages } from "./format.js";
import { renderExtractedText, renderProse } from "./markdown.js";
import { findBoxAt, findClaim, markSpans, selectBoxes } from "./matching.js";
import { t } from "./strings.js";

const MAX_OVERLAP = 600;
const MIN_OVERLAP = 12;
const MAX_PAGES = 3;
const SOURCE_LEVEL = 3; // of the heading that names the source
const AROUND = 700; // characters of an old version, before and after what was quoted

/** Fill `root` with `source`; `action` is a button of the caller's, `claim` what the answer says there. */
export async function drawSource(root, source, action, claim) {
  const ticket = {};
  root.ticket = ticket;
  const stage = el("div", { class: "passage-stage", "aria-busy": "true" }, el("div", { class: "skeleton" }));
  const links = el("div", { class: "passage-actions" }, action);
  root.replaceChildren(createHeading(source), links, stage);
  const document_ = await fetchDocument(source.document_id).catch((error) => error);
  if (root.ticket !== ticket) return;
  if (document_ instanceof Error) {
    action.disabled = document_.status === 404;
    const text = await fetchSnapshot(source);
    if (root.ticket !== ticket) return;
    stage.replaceChildren(createSnapshot(source, text, document_.status === 404 ? t("document_gone") : document_.message));
  } else {
    links.append(...createDocumentLinks(source, document_));
    const isPdf = document_.content_type === "application/pdf" && source.page;
    const text = isOldVersion(source, document_) ? drawOldTextView : drawTextView;
    const parts = isPdf ? await drawPageView(source, document_, claim) : [await text(source, document_)];
    if (root.ticket !== ticket) return;
    stage.replaceChildren(...createOldNote(source, document_), ...parts);
  }
  stage.removeAttribute("aria-busy");
  const mark = stage.querySelector(".passage-context .cited") ?? stage.querySelector(".passage-context mark");
  if (mark) scrollWithin(mark, 0.25);
}

function createHeading(source) {
  const facts = [
    formatPages(source),
    source.section || null,
    t(source.cited === false ? "looked_at" : "cited"),
  ].filter(Boolean);
  return el(
    "div",
    { class: "passage-head" },
    el("span", { class: "slot slot-big", text: String(source.slot) }),
    el("div", {}, el("h3", { text: source.document_name }), el("p", { text: facts.join(" · ") })),
  );
}

/** The document has a newer file than the one that the answer was drawn from. */
function isOldVersion(source, document_) {
  return Boolean(source.version) && source.version < document_.version;
}

/** What is added to an address, so that the old file answers. */
function toVersionQuery(source, document_) {
  return isOldVersion(source, document_) ? `?version=${source.version}` : "";
}

function createOldNote(source, document_) {
  if (!isOldVersion(source, document_)) return [];
  const text = t("version.older", { number: source.version, current: document_.version });
  return [el("p", { class: "note note-info passage-old" }, createIcon("info"), el("span", { text }))];
}

function createDocumentLinks(source, document_) {
  const size = formatFileSize(document_.size);
  return [
    el("a", { class: "button", href: toAddress(`/documents/${document_.id}`) }, createIcon("file-search", "icon-s"), t("open_document")),
    el(
      "a",
      {
        class: "icon-button",
        href: toAddress(`/api/v1/documents/${document_.id}/file${toVersionQuery(source, document_)}`),
        download: document_.name,
        title: `${t("download")} (${size})`,
        "aria-label": `${t("download")} (${size})`,
      },
      createIcon("download"),
    ),
  ];
}

function createSnapshot(source, text, why) {
  const quote = el("blockquote", { class: "passage-text", text });
  markSpans(quote, source.spans);
  return el("div", {}, el("p", { class: "note note-warning" }, createIcon("info"), el("span", { text: why })), quote);
}

/** The pages, and below them the passage as text, with the sentences that the answer took from it. */
async function drawPageView(source, document_, claim) {
  const chunk = isOldVersion(source, document_) ? null : await fetchChunk(source.document_id, readChunkIndex(source));
  const text = chunk?.text ?? (await fetchSnapshot(source));
  const quote = el("blockquote", { class: "passage-text", text });
  const isMarked = markSpans(quote, source.spans);
  const place = claim && !isMarked ? findClaim(claim, text) : null;
  if (place) {
    const mark = el("mark", { text: text.slice(place.start, place.end) });
    quote.replaceChildren(text.slice(0, place.start), mark, text.slice(place.end));
  }
  const section = el("section", { class: "passage-quote" }, el("h4", { text: t("passage") }), quote);
  const { boxes, here } = selectBoxes(source, claim) ?? { boxes: source.boxes, here: findBoxAt(place, text, source.boxes ?? []) };
  return [new PageView({ ...source, boxes }, document_, here).root, section];
}

/** The rendered pages of a passage with its boxes laid over them, and steps to their neighbours. */
export class PageView {
  /** `here`: the number of the box to bring into sight. */
  constructor(source, document_, here) {
    this.source = source;
    this.here = here;
    this.document = document_;
    const boxes = source.boxes ?? [];
    const touched = [...new Set([source.page, ...boxes.map((box) => box.page)])].sort((one, other) => one - other);
    const wanted = touched.indexOf(boxes[here]?.page ?? source.page);
    const first = Math.max(0, Math.min(wanted, touched.length - MAX_PAGES));
    this.pages = touched.slice(first, first + MAX_PAGES);
    this.sheets = el("div", { class: "page-sheets" });
    this.label = el("span", { class: "page-number" });
    this.previous = createIconButton("chevron-left", t("previous_page"), { on: { click: () => this.turn(-1) } });
    this.next = createIconButton("chevron-right", t("next_page"), { on: { click: () => this.turn(1) } });
    const bar = el("div", { class: "page-bar" }, this.previous, this.label, this.next);
    this.root = el("div", { class: "page-view" }, bar, this.sheets);
    this.draw();
  }

  turn(step) {
    this.pages = [step < 0 ? this.pages[0] - 1 : this.pages.at(-1) + 1];
    this.draw();
  }

  draw() {
    const [first, last] = [this.pages[0], this.pages.at(-1)];
    const total = this.document.page_count ?? last;
    this.label.textContent = t("page_of", { page: last > first ? `${first}–${last}` : first, total });
    this.previous.disabled = first <= 1;
    this.next.disabled = last >= total;
    this.sheets.replaceChildren(...this.pages.map((page) => this.sheet(page)));
  }

  sheet(page) {
    const image = el("img", { alt: t("page_image", { page }), decoding: "async" });
    const sheet = el("div", { class: "page-sheet loading" }, image, this.marks(page));
    image.addEventListener("load", () => {
      sheet.classList.remove("loading");
      const here = this.sheets.querySelector(".page-here");
      if (here) scrollWithin(here, 0.5);
    });
    image.addEventListener("error", () => {
      sheet.classList.remove("loading");
      sheet.replaceChildren(el("p", { class: "note", text: t("no_page_image") }));
    });
    image.src = toAddress(`/api/v1/documents/${this.document.id}/pages/${page}.png${toVersionQuery(this.source, this.document)}`);
    return sheet;
  }

  marks(page) {
    return (this.source.boxes ?? [])
      .map((box, number) => ({ ...box, number }))
      .filter((box) => box.page === page)
      .map((box) => {
        const mark = el("div", { class: box.number === this.here ? "page-mark page-here" : "page-mark" });
        mark.style.left = `${box.x0 * 100}%`;
        mark.style.top = `${box.y0 * 100}%`;
        mark.style.width = `${(box.x1 - box.x0) * 100}%`;
        mark.style.height = `${(box.y1 - box.y0) * 100}%`;
        return mark;
      });
  }
}

/** The passage marked within what comes before and after it. */
async function drawTextView(source, document_) {
  const index = readChunkIndex(source);
  const [before, chunk, after] = await Promise.all(
    [index - 1, index, index + 1].map((one) => (one < document_.chunk_count ? fetchChunk(source.document_id, one) : null)),
  );
  const text = chunk?.text ?? (await fetchSnapshot(source));
  const sameSection = (other) => other && other.section === (chunk?.section ?? "");
  const isMarkdown = document_.content_type === "text/markdown";
  const part = (name, words, header) => {
    if (!words.trim()) return null;
    return isMarkdown ? renderProse(name, words, SOURCE_LEVEL) : el(name, {}, renderExtractedText(words, header));
  };
  const passage = part("mark", text, chunk?.header);
  if (passage) markSpans(passage, source.spans);
  return el(
    "div",
    { class: "passage-text passage-context" },
    sameSection(before) ? part("div", cutOverlap(before.text, text, true)) : null,
    passage,
    sameSection(after) ? part("div", cutOverlap(text, after.text, false)) : null,
  );
}

/** An old version has no chunks any more: its text around what was quoted. */
async function drawOldTextView(source) {
  const words = (text) => text.replace(/\s+/g, " ").trim();
  const quote = words(await fetchSnapshot(source)).replace(/…$/, "");
  const text = words(await fetchOldText(source.document_id, source.version).catch(() => ""));
  const at = text.indexOf(quote);
  const [before, after] = at < 0 ? ["", ""] : [text.slice(Math.max(0, at - AROUND), at), text.slice(at + quote.length).slice(0, AROUND)];
  const part = (name, shown) => (shown ? el(name, { class: "as-typed", text: shown }) : null);
  const passage = part("mark", quote);
  if (passage) markSpans(passage, source.spans);
  return el("div", { class: "passage-text passage-context" }, part("div", before), passage, part("div", after));
}

/** Neighbouring chunks repeat some text: the first without what the second begins with, or the other way round. */
function cutOverlap(first, second, wantFirst) {
  const most = Math.min(MAX_OVERLAP, first.length, second.length);
  let length = most;
  while (length >= MIN_OVERLAP && !first.endsWith(second.slice(0, length))) length -= 1;
  const shared = length >= MIN_OVERLAP ? length : 0;
  if (wantFirst) return first.slice(0, first.length - shared) + (shared ? "" : "\n");
  return (shared ? "" : "\n") + second.slice(shared);
}
