// The text of a document with headings, paragraphs, lists and tables. It is rendered part by part while scrolling, from the
// stored text alone; nothing of the file itself reaches the page. Places are offsets in that text.

import { el } from "./dom.js";
import { countRowsAtOnce, drawFormulas, parseDocumentBlocks, splitFormulas } from "./markdown.js";
import { cutFormulas } from "./markdown_rules.js";
import { findLetters, mapLetters, toLetters, toUnitConverter, wrapLetters } from "./matching.js";
import { wrapTables } from "./tables.js";

const MARKDOWN = "text/markdown";
const WITH_FORMULAS = new Set([
  "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
  "application/x-hwp",
  "application/hwp+zip",
  MARKDOWN,
]); // what readers write between dollar signs is a formula there; elsewhere it is money
const FORMULA = ".math";
const MAX_MARKDOWN_CHARACTERS = 2_000_000;
const PART_CHARACTERS = 12_000;
const LINE_CHARACTERS = 40; // assumed line length, to estimate the height of a part not drawn yet
const LINE_PIXELS = 27;
const NEAR = "1200px 0px";
const SHARE_ABOVE = 0.28; // share of the pane's height above a place scrolled to
const ROW = /^\|.*\|\s*$/;
const RULE = /^\|(?:\s*:?-+:?\s*\|)+\s*$/;
const FENCE = /^(`{3,}|~{3,})/;
const FIGURE = /^[-+△▲]?[\d,.\s]+(?:%|원|건|명|개|억|만|천|백만)?$/;
const DEEPEST_HEADING = 6;
const LINK_TARGET = /\]\([^()\s]*(?:\s+"[^"]*")?\)/g; // in Markdown, not shown
const SEARCHED = /\s+/g;

/** A document's text in `container`, which scrolls. */
export class TextView {
  /** `onPlace()` is called when another place comes into view, `onFound({current, total, isDone})` during a search. */
  constructor(container, { onPlace, onFound }) {
    this.container = container;
    this.onFound = onFound;
    this.root = el("div", { class: "doc-text prose" });
    container.replaceChildren(this.root);
    this.marks = [];
    this.aim = null;
    this.watching = new IntersectionObserver((seen) => seen.forEach((one) => one.isIntersecting && this.drawPart(one.target)), {
      root: container,
      rootMargin: NEAR,
    });
    this.resizing = new ResizeObserver(() => this.aim && this.scrollToAim());
    this.resizing.observe(this.root);
    this.resizing.observe(container); // lower, it may hide the place and break no line anew
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
      container.addEventListener(kind, () => (this.aim = null), { passive: true, signal });
    }
    container.addEventListener("scroll", onPlace, { passive: true, signal });
  }

  /** `headings`: {title, level, start}; `pictures`: {start, url, width, height, words}, each in front of the block at its start. */
  show({ text, contentType, headings = [], pictures = [] }) {
    this.text = text;
    this.hasFormulas = WITH_FORMULAS.has(contentType);
    this.headings = headings;
    this.units = toUnitConverter(text);
    const isMarkdown = contentType === MARKDOWN && text.length <= MAX_MARKDOWN_CHARACTERS;
    const starts = headings.map((one) => ({ ...one, start: this.units.fromPoints(one.start) }));
    const written = isMarkdown ? listMarkdownBlocks(text) : listPlainBlocks(text, starts, this.hasFormulas ? splitFormulas : (words) => words);
    const drawn = pictures.map((one) => createPicture({ ...one, start: this.units.fromPoints(one.start) }));
    const blocks = [...drawn, ...written].sort((one, other) => one.start - other.start);
    this.parts = [];
    for (const part of groupBlocks(blocks)) {
      const node = el("section", { class: "doc-part" });
      node.style.minHeight = `${Math.ceil((part.end - part.start) / LINE_CHARACTERS) * LINE_PIXELS}px`;
      Object.assign(part, { node, isDrawn: false });
      this.parts.push(part);
      this.root.append(node);
      this.watching.observe(node);
    }
  }

  close() {
    this.leaving.abort();
    this.watching.disconnect();
    this.resizing.disconnect();
  }

  drawPart(node) {
    const part = this.parts.find((one) => one.node === node);
    if (!part || part.isDrawn) return;
    part.isDrawn = true;
    this.watching.unobserve(node);
    node.style.minHeight = "";
    node.replaceChildren(...part.blocks.map((block) => block.render()));
    wrapTables(node);
    drawFormulas(node);
    this.drawMarks(part);
  }

  // Places

  /** `start`, `end`: offsets in code points. */
  goTo({ start, mark = null }) {
    this.aim = { at: this.units.fromPoints(start), mark };
    this.scrollToAim();
  }

  scrollToAim() {
    const { at, mark } = this.aim;
    const part = this.parts.findLast((one) => one.start <= at) ?? this.parts[0];
    if (!part) return;
    this.drawPart(part.node);
    const node = (mark && this.root.querySelector(mark)) ?? findUnit(part, at) ?? part.node;
    const pane = this.container;
    const top = node.getBoundingClientRect().top - pane.getBoundingClientRect().top + pane.scrollTop;
    pane.scrollTo({ top: Math.max(0, top - pane.clientHeight * SHARE_ABOVE), behavior: "instant" });
  }

  /** The offset, in code points, of the text at the top of the pane. */
  get place() {
    const top = this.container.getBoundingClientRect().top;
    const part = this.parts.find((one) => one.node.getBoundingClientRect().bottom > top);
    if (!part) return 0;
    const unit = listUnits(part).find((one) => one.getBoundingClientRect().bottom > top);
    return this.units.toPoints(unit ? readPlace(unit)[0] : part.start);
  }

  // Marks

  /** Mark `passages` lightly and `sentences` strongly, each {start, end} in code points; scroll to `here`, one of the latter. */
  setMarks(passages, sentences, here = null) {
    const convert = (one, kind) => ({
      kind,
      start: this.units.fromPoints(one.start),
      end: this.units.fromPoints(one.end),
      isHere: one === here,
    });
    this.marks = [...passages.map((one) => convert(one, "passage")), ...sentences.map((one) => convert(one, "cited"))];
    this.redrawMarks();
  }

  redrawMarks() {
    for (const part of this.parts) {
      if (!part.isDrawn) continue;
      clearMarks(part.node);
      this.drawMarks(part);
    }
    if (this.aim) this.scrollToAim();
  }

  drawMarks(part) {
    for (const mark of [...this.marks, ...(this.found ?? [])]) {
      if (mark.end <= part.start || mark.start >= part.end) continue;
      for (const unit of listUnits(part)) {
        const [from, to] = readPlace(unit);
        if (mark.end <= from || mark.start >= to) continue;
        if (mark.kind === "passage") unit.classList.add("in-passage");
        else this.markWithin(unit, from, to, mark);
      }
    }
  }

  /** The letters of a mark within the element that shows [from, to) of the text. */
  markWithin(unit, from, to, mark) {
    const readLetters = (first, last) => toLetters(this.leaveOutFormulas(this.text.slice(first, last)).replace(LINK_TARGET, "]"));
    const before = readLetters(from, Math.max(mark.start, from)).length;
    const wanted = readLetters(Math.max(mark.start, from), Math.min(mark.end, to));
    const { text, places } = mapLetters(unit, FORMULA);
    let place = [before, before + wanted.length];
    if (text.slice(...place) !== wanted) {
      const near = findLetters(text, wanted).sort(([one], [other]) => Math.abs(one - before) - Math.abs(other - before));
      [place] = near;
    }
    const className = mark.isHere ? `${mark.kind} mark-here` : mark.kind;
    if (!wanted) markFormulas(unit, [unit], className);
    if (!place || place[0] >= place[1]) return;
    markFormulas(unit, wrapLetters(places, ...place, className), className);
  }

  /** The letters of a rendered formula are not those of the text. */
  leaveOutFormulas(text) {
    if (!this.hasFormulas || !text.includes("$")) return text;
    return [...cutFormulas(text)].map((one) => (one.isFormula ? " " : one.text)).join("");
  }

  // Search

  find(query, { again = false, back = false } = {}) {
    const words = query.trim().replace(SEARCHED, " ");
    if (!again || words !== this.query) {
      this.query = words;
      this.hits = findAll(this.text, words);
      this.hit = -1;
    }
    if (this.hits.length) {
      const step = back ? -1 : 1;
      this.hit = (this.hit + step + this.hits.length) % this.hits.length;
      const [start, end] = this.hits[this.hit];
      this.found = [{ kind: "found", start, end, isHere: false }];
      this.aim = { at: start, mark: "mark.found" };
    } else {
      this.found = [];
    }
    this.redrawMarks();
    this.onFound({ current: this.hit + 1, total: this.hits.length, isDone: true });
  }

  /** Mark the words in a passage, {start, end} in code points, and scroll to the first; nothing if there is none. */
  markAndGoToWords(words, { start, end }) {
    const [from, to] = [start, end].map((one) => this.units.fromPoints(one));
    const places = listApart(words.flatMap((word) => findAll(this.text.slice(from, to), word)));
    if (!places.length) return;
    this.found = places.map(([first, last]) => ({ kind: "found", start: from + first, end: from + last, isHere: false }));
    this.aim = { at: this.found[0].start, mark: "mark.found" };
    this.redrawMarks();
  }

  endFind() {
    this.found = [];
    this.query = "";
    this.redrawMarks();
  }

  async listOutline() {
    return this.headings.map(({ title, level, start }) => ({ title, level, open: () => this.goTo({ start }) }));
  }
}

function readPlace(unit) {
  return unit.dataset.place.split("-").map(Number);
}

/** The innermost elements that show a range of the text. */
function listUnits(part) {
  return [...part.node.querySelectorAll("[data-place]")];
}

function findUnit(part, at) {
  return listUnits(part).findLast((one) => readPlace(one)[0] <= at);
}

/** The formulas between the first and the last of these nodes, or in one of them. */
function markFormulas(unit, nodes, className) {
  const [first, last] = [nodes[0], nodes.at(-1)];
  for (const formula of unit.querySelectorAll(FORMULA)) {
    const isWithin = first?.contains(formula);
    const isBetween =
      first?.compareDocumentPosition(formula) & Node.DOCUMENT_POSITION_FOLLOWING && last.compareDocumentPosition(formula) & Node.DOCUMENT_POSITION_PRECEDING;
    if (isWithin || isBetween) formula.classList.add(...className.split(" "));
  }
}

function clearMarks(root) {
  for (const formula of root.querySelectorAll(FORMULA)) formula.classList.remove("cited", "found", "mark-here");
  for (const mark of root.querySelectorAll("mark")) {
    const parent = mark.parentNode;
    mark.replaceWith(...mark.childNodes);
    parent.normalize();
  }
  for (const unit of root.querySelectorAll(".in-passage")) unit.classList.remove("in-passage");
}

function* groupBlocks(blocks) {
  let group = [];
  for (const block of blocks) {
    group.push(block);
    if (block.end - group[0].start < PART_CHARACTERS) continue;
    yield { start: group[0].start, end: block.end, blocks: group };
    group = [];
  }
  if (group.length) yield { start: group[0].start, end: group.at(-1).end, blocks: group };
}

/** The ranges of the words in the text, ignoring case and kind of white space. */
function findAll(text, words) {
  if (!words) return [];
  const pattern = words.split(" ").map((one) => one.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("\\s+");
  return [...text.matchAll(new RegExp(pattern, "giu"))].map((found) => [found.index, found.index + found[0].length]);
}

/** The ranges [from, to) in order without overlaps: the first wins, and of those with the same start the longest. */
function listApart(places) {
  const apart = [];
  for (const [from, to] of places.sort(([one, end], [other, otherEnd]) => one - other || otherEnd - end)) {
    if (from >= (apart.at(-1)?.[1] ?? 0)) apart.push([from, to]);
  }
  return apart;
}

// Blocks of Markdown

/** Where the body begins: front matter is metadata, which is shown elsewhere. */
export function findFrontMatterEnd(text) {
  if (!text.startsWith("---\n")) return 0;
  const end = text.indexOf("\n---\n", 3);
  return end > 0 && end <= 20_000 ? end + "\n---\n".length : 0;
}

function listMarkdownBlocks(text) {
  const begin = findFrontMatterEnd(text);
  const body = text.slice(begin);
  const lines = [begin];
  for (let at = body.indexOf("\n"); at >= 0; at = body.indexOf("\n", at + 1)) lines.push(begin + at + 1);
  lines.push(text.length);
  const getOffset = (line) => lines[Math.min(line, lines.length - 1)];
  return parseDocumentBlocks(body).map(({ line, end, render }) => ({
    start: getOffset(line),
    end: getOffset(end),
    render: () => {
      const fragment = render();
      for (const node of fragment.querySelectorAll("[data-at]")) {
        const [first, last] = node.dataset.at.split("-").map(Number);
        delete node.dataset.at;
        if (!node.querySelector("[data-at]")) node.dataset.place = `${getOffset(first)}-${getOffset(last)}`;
      }
      return fragment;
    },
  }));
}

// Blocks of other formats: tables and code are written as in Markdown, everything else is plain text

function listPlainBlocks(text, headings, toWords) {
  const titles = new Map(headings.map((one) => [one.start, one]));
  const blocks = [];
  let open = null; // {kind, start, end, lines}
  const close = () => {
    if (open) blocks.push(...createBlocks(open, toWords));
    open = null;
  };
  const add = (kind, start, line) => {
    if (open?.kind !== kind) close();
    open ??= { kind, start, end: start, lines: [] };
    open.lines.push({ start, text: line });
    open.end = start + line.length;
  };
  let fence = "";
  let at = 0;
  for (const line of text.split("\n")) {
    const start = at;
    at += line.length + 1;
    const title = titles.get(start) ?? titles.get(start + line.length - line.trimStart().length);
    if (fence) {
      add("code", start, line);
      if (line.trim().startsWith(fence)) {
        close();
        fence = "";
      }
    } else if (title && line.trim()) {
      close();
      blocks.push(createHeading(title, start, line, toWords));
    } else if (FENCE.test(line)) {
      close();
      fence = FENCE.exec(line)[1];
      add("code", start, line);
    } else if (ROW.test(line)) add("table", start, line);
    else if (line.trim()) add("text", start, line);
    else close();
  }
  close();
  return blocks;
}

function createBlocks(block, toWords) {
  const { kind, start, end, lines } = block;
  if (kind === "table") return [...createTables(lines, toWords)];
  const render = () => {
    const words = lines.map((one) => one.text).join("\n");
    const place = { place: `${start}-${end}` };
    if (kind === "text") return el("p", { class: "as-typed", data: place }, toWords(words));
    return el("pre", { data: place, tabindex: "0", text: words.replace(/^[^\n]*\n/, "").replace(/\n?[`~]{3,}\s*$/, "") });
  };
  return [{ start, end, render }];
}

function createHeading({ level }, start, line, toWords) {
  const end = start + line.length;
  const tag = `h${Math.min(level + 1, DEEPEST_HEADING)}`;
  return { start, end, render: () => el(tag, { data: { place: `${start}-${end}` } }, toWords(line.trim())) };
}

/** A picture of the document, which is no part of the text. */
function createPicture({ start, url, width, height, words }) {
  const render = () => el("figure", { class: "doc-picture" }, el("img", { src: url, width, height, alt: words, loading: "lazy" }));
  return { start, end: start, render };
}

/** A table in pieces, each with the header. */
function* createTables(lines, toWords) {
  const rule = lines.findIndex((line) => RULE.test(line.text));
  const header = rule > 0 ? lines.slice(0, rule) : [];
  const rows = lines.slice(rule + 1);
  const isFigures = findFigureColumns(rows);
  const step = countRowsAtOnce(splitCells(lines[0].text).length);
  for (let from = 0; from < Math.max(rows.length, 1); from += step) {
    const piece = rows.slice(from, from + step);
    const head = from ? [] : header;
    const [first, last] = [(head[0] ?? piece[0] ?? lines[0]).start, piece.at(-1) ?? lines.at(-1)];
    yield {
      start: first,
      end: last.start + last.text.length,
      render: () =>
        el(
          "table",
          {},
          header.length ? el("thead", {}, header.map((row) => createRow(row, "th", isFigures, !from, toWords))) : null,
          el("tbody", {}, piece.map((row) => createRow(row, "td", isFigures, true, toWords))),
        ),
    };
  }
}

function createRow({ start, text }, tag, isFigures, hasPlace, toWords) {
  const cells = splitCells(text).map((cell, at) => el(tag, { class: isFigures[at] ? "to-right" : null }, toWords(cell)));
  return el("tr", hasPlace ? { data: { place: `${start}-${start + text.length}` } } : {}, cells);
}

export function splitCells(row) {
  const inner = row.trim().slice(1, -1);
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** Columns of numbers only, which are right-aligned. */
function findFigureColumns(rows) {
  const columns = [];
  for (const { text } of rows.slice(0, 50)) {
    splitCells(text).forEach((cell, at) => {
      if (cell) columns[at] = (columns[at] ?? true) && FIGURE.test(cell) && /\d/.test(cell);
    });
  }
  return columns;
}
