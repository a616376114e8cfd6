// Renders Markdown of answers and documents as safe elements: all of its HTML is sanitised by DOMPurify.

import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import { createMarkers } from "./citations.js";
import { showDiagram } from "./diagrams.js";
import { createIcon, el, scrollWithin } from "./dom.js";
import { letStarsCloseBeforeHangul } from "./emphasis.js";
import { breakBeforeItems, cutFormulas, cutWrittenFormulas, readBareLinks, readFootnotes, readFormulas, readTasks } from "./markdown_rules.js";
import { t } from "./strings.js";
import { showAskedColumn, watchTables, wrapTables } from "./tables.js";

const MAX_TEXT_CHARACTERS = 300_000;
const MAX_CELLS = 12_000;
const MAX_ROWS_AT_ONCE = 300;
const MAX_CELLS_AT_ONCE = 6_000;
const DEEPEST_HEADING = 6;
const TAGS = (
  "a p br hr h1 h2 h3 h4 h5 h6 strong em s del code pre blockquote ul ol li " +
  "table thead tbody tr th td span sub sup"
).split(" ");
const CLASSES = /^(language-[\w+#.-]{1,40}|to-(left|center|right)|math( math-block)?|footnote(-ref)?|task( task-done)?)$/;
const LINKS = /^(https?:|mailto:)/i;
const DIAGRAM = "mermaid";

const md = createParser({ breaks: true });
for (const plugin of [readFormulas, readFootnotes, readTasks, readBareLinks]) md.use(plugin);
md.validateLink = (url) => LINKS.test(url.trim());
/** For documents: line breaks are just wrapping, except before items, and relative links, which lead to other files, are shown as text. */
const documentMd = createParser({ breaks: false });
documentMd.use(breakBeforeItems);
documentMd.validateLink = () => true;

function createParser(options) {
  const made = new MarkdownIt({ html: false, linkify: false, typographer: false, ...options });
  made.use(letStarsCloseBeforeHangul);
  // Images are never loaded, and their address does not reach the page: only the alternative text is shown.
  made.renderer.rules.image = (tokens, index, given, env, renderer) =>
    made.utils.escapeHtml(renderer.renderInlineAsText(tokens[index].children ?? [], given, env));
  // Alignment comes as a class, since the page allows no style attributes.
  for (const name of ["th_open", "td_open"]) {
    made.renderer.rules[name] = (tokens, index, given, _env, renderer) => {
      const style = tokens[index].attrGet("style");
      if (style) {
        tokens[index].attrs = tokens[index].attrs.filter(([key]) => key !== "style");
        tokens[index].attrSet("class", `to-${String(style).split(":")[1].trim()}`);
      }
      return renderer.renderToken(tokens, index, given);
    };
  }
  return made;
}

const purifier = DOMPurify(window);
purifier.addHook("uponSanitizeAttribute", (_node, data) => {
  if (data.attrName === "class" && !CLASSES.test(data.attrValue)) data.keepAttr = false;
  if (data.attrName === "href" && !LINKS.test(data.attrValue.trim())) data.keepAttr = false;
});

const RULES = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ["href", "title", "class", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};
const DOCUMENT_RULES = { ...RULES, ALLOWED_ATTR: [...RULES.ALLOWED_ATTR, "data-at"] };

/** Sanitised elements of an HTML string. */
export function sanitizeHtml(html, rules = RULES) {
  const holder = document.createElement("template");
  holder.innerHTML = purifier.sanitize(html, rules);
  for (const link of holder.content.querySelectorAll("a")) {
    if (!link.hasAttribute("href")) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.target = "_blank";
    link.rel = "noopener noreferrer";
    link.title = link.getAttribute("href");
  }
  return holder.content;
}

/** Whether a text is too long or too wide to render, which would block the page for seconds; it is shown as it is. */
export function isTooHeavy(text) {
  if (text.length > MAX_TEXT_CHARACTERS) return true;
  let cells = 0;
  for (let at = text.indexOf("|"); at !== -1; at = text.indexOf("|", at + 1)) {
    cells += 1;
    if (cells > MAX_CELLS) return true;
  }
  return false;
}

export function renderPlain(text) {
  const fragment = document.createDocumentFragment();
  const pre = document.createElement("pre");
  pre.className = "plain-text";
  pre.textContent = text;
  fragment.append(pre);
  return fragment;
}

export function parseMarkdown(text, env) {
  return md.parse(text, env);
}

export function renderTokens(tokens, env) {
  return sanitizeHtml(md.renderer.render(tokens, md.options, env));
}

/** Render a whole text; `under` is the level of the heading above it on the page. */
export function renderMarkdown(text, under = 0) {
  if (isTooHeavy(text)) return renderPlain(text);
  const env = {};
  const tokens = parseMarkdown(text, env);
  for (const token of tokens) {
    if (token.type.startsWith("heading_")) token.tag = `h${Math.min(Number(token.tag[1]) + under, DEEPEST_HEADING)}`;
  }
  return renderTokens(tokens, env);
}

/** Decorate a fragment that is not in the page yet. `final`: its blocks will not change any more. */
export function decorateFragment(fragment, message, { final }) {
  wrapTables(fragment);
  for (const pre of fragment.querySelectorAll("pre")) decorateCode(pre, final);
  for (const note of fragment.querySelectorAll("sup.footnote-ref")) decorateReference(note);
  drawFormulas(fragment);
  if (message.sources?.length) insertCitations(fragment, message);
}

/** Turn the number of a footnote into a link to it. */
function decorateReference(note) {
  const name = note.textContent;
  const button = el("button", { type: "button", class: "footnote-link", text: name });
  button.setAttribute("aria-label", t("footnote", { name }));
  note.replaceChildren(button);
}

/** Scroll to a footnote when its number is clicked. */
function watchFootnotes(root) {
  root.addEventListener("click", (event) => {
    const link = event.target.closest(".footnote-link");
    if (!link) return;
    const notes = [...link.closest(".prose").querySelectorAll(".footnote")];
    const note = notes.find((one) => one.firstElementChild.textContent === link.textContent);
    if (!note) return;
    note.tabIndex = -1;
    scrollWithin(note, 0.5);
    note.focus({ preventScroll: true });
  });
}

watchTables(document);
watchFootnotes(document);

let katex = null;

/** Text as nodes, with its formulas for `drawFormulas`; a formula that is all of the text is centred. */
export function splitFormulas(words) {
  const parts = [...cutFormulas(words)];
  return parts.map((part) => createPart({ ...part, isBlock: parts.length === 1 }));
}

function createPart({ text, isFormula, isBlock }) {
  return isFormula ? el("span", { class: isBlock ? "math math-block" : "math", text }) : text;
}

/** Write a question into `node`: its formulas are rendered, all else of it is text. */
export function writeQuestion(node, text) {
  node.replaceChildren(...[...cutWrittenFormulas(text)].map(createPart));
  drawFormulas(node);
}

/** Write text into `node` and render its formulas. */
export function writeWords(node, words) {
  node.replaceChildren(...splitFormulas(words));
  drawFormulas(node);
}

/** Render formulas, at once if KaTeX is loaded; until then their source is shown. */
export function drawFormulas(fragment) {
  const found = [...fragment.querySelectorAll(".math")];
  if (!found.length) return;
  if (katex?.drawFormula) found.forEach(katex.drawFormula);
  else loadKatex().then(({ drawFormula }) => found.forEach(drawFormula), () => {});
}

/** Load KaTeX; after a failure, the next formula tries again. */
function loadKatex() {
  if (katex) return Promise.resolve(katex);
  const style = el("link", { rel: "stylesheet", href: document.documentElement.dataset.katex });
  document.head.append(style);
  return import("./katex.js").then((loaded) => {
    katex = loaded;
    return loaded;
  });
}

function decorateCode(pre, final) {
  const code = pre.querySelector("code");
  if (!code) return;
  const language = /language-([\w+#.-]+)/.exec(code.className)?.[1] ?? "";
  const copy = el(
    "button",
    { type: "button", class: "code-copy", data: { copyCode: "" }, "aria-label": t("copy_code") },
    createIcon("copy", "icon-s"),
    el("span", { text: t("copy") }),
  );
  const head = el("div", { class: "code-head" }, el("span", { text: language }), copy);
  const box = el("div", { class: "code-box" }, head);
  pre.replaceWith(box);
  pre.tabIndex = 0;
  box.append(pre);
  if (final && language === DIAGRAM) showDiagram({ box, head, pre });
  else if (final && language) colourCode(code, language);
}

function insertCitations(fragment, message) {
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT, {
    acceptNode: (node) =>
      node.parentElement?.closest("code, a, button, .math") || !node.data.includes("[")
        ? NodeFilter.FILTER_REJECT
        : NodeFilter.FILTER_ACCEPT,
  });
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    const parts = createMarkers(node.data, message);
    if (parts) node.replaceWith(...parts);
  }
}

/** Highlight code; if that fails, it stays as it is. */
async function colourCode(code, language) {
  const { highlightElement } = await import("./highlight.js");
  highlightElement(code, language);
}

export { showAskedColumn };

const MIN_PAUSE_MS = 30;
const COST_FACTOR = 4;
const LINK_DEFINITION = /^ {0,3}\[[^\]^]+\]:/m;

export class StreamedMarkdown {
  /** `message()` returns the answer, with its current sources. */
  constructor(root, message) {
    this.root = root;
    this.message = message;
    this.tail = document.createComment("");
    this.reset();
  }

  reset() {
    this.cancel();
    this.text = "";
    this.stable = 0;
    this.shownSlots = null; // the sources of the finished blocks; null before the first
    this.env = {};
    this.cost = 0;
    this.drawnAt = 0;
    this.root.replaceChildren(this.tail);
  }

  append(text) {
    this.text += text;
    this.schedule();
  }

  /** Draw the final text; finished blocks are kept if their text is the same. */
  finish(text = this.text) {
    this.cancel();
    if (this.isDrawnAlike(text)) {
      this.clearTail();
      this.insert(parseMarkdown(text.slice(this.stable), this.env), null, true);
      return;
    }
    this.text = text;
    const whole = renderMarkdown(text);
    decorateFragment(whole, this.message(), { final: true });
    this.root.replaceChildren(whole);
  }

  /** Whether the finished blocks would be rendered the same: a link definition further down may change them. */
  isDrawnAlike(text) {
    return this.stable > 0 && text === this.text && this.shownSlots === this.slots && !LINK_DEFINITION.test(text) && !isTooHeavy(text);
  }

  get slots() {
    return (this.message().sources ?? []).map(({ slot, page }) => `${slot}:${page}`).join();
  }

  cancel() {
    if (this.frame) cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.frame = null;
    this.timer = null;
  }

  schedule() {
    if (this.frame || this.timer) return;
    const pause = Math.max(MIN_PAUSE_MS, this.cost * COST_FACTOR) - (performance.now() - this.drawnAt);
    const ask = () => {
      this.timer = null;
      this.frame = requestAnimationFrame(() => this.draw());
    };
    if (pause > 4) this.timer = setTimeout(ask, pause);
    else ask();
  }

  draw() {
    this.frame = null;
    const begun = performance.now();
    const open = this.text.slice(this.stable);
    this.clearTail();
    if (isTooHeavy(open) || isTooHeavy(this.text)) this.root.append(renderPlain(open));
    else this.drawBlocks(open);
    this.drawnAt = performance.now();
    this.cost = this.drawnAt - begun;
  }

  drawBlocks(open) {
    const tokens = parseMarkdown(open, this.env);
    const { index, line } = findLastBlock(tokens);
    if (index > 0) {
      this.insert(tokens.slice(0, index), this.tail, true);
      const { slots } = this;
      this.shownSlots = this.shownSlots === null || this.shownSlots === slots ? slots : false;
      this.stable += findLineOffset(open, line);
    }
    this.insert(tokens.slice(index), null, false);
  }

  insert(tokens, before, final) {
    const fragment = renderTokens(tokens, this.env);
    decorateFragment(fragment, this.message(), { final });
    this.root.insertBefore(fragment, before);
  }

  clearTail() {
    while (this.tail.nextSibling) this.tail.nextSibling.remove();
  }
}

/** Where the last top-level block begins: its token and its line. */
function findLastBlock(tokens) {
  for (let index = tokens.length - 1; index >= 0; index -= 1) {
    const token = tokens[index];
    if (token.level === 0 && token.nesting >= 0 && token.map) return { index, line: token.map[0] };
  }
  return { index: 0, line: 0 };
}

function findLineOffset(text, line) {
  let offset = 0;
  for (let passed = 0; passed < line; passed += 1) offset = text.indexOf("\n", offset) + 1;
  return offset;
}

/**
 * The top-level blocks of a document's Markdown: {line, end, render()}, with lines from 0. Elements in them have their range
 * of lines in `data-at`, the end excluded.
 */
export function parseDocumentBlocks(text) {
  const env = {};
  const tokens = documentMd.parse(text, env);
  const blocks = [];
  let from = 0;
  tokens.forEach((token, at) => {
    token.hidden = false; // paragraphs of tight lists: passages are marked in them
    if (token.map && token.nesting >= 0) token.attrSet("data-at", token.map.join("-"));
    if (token.level > 0 || token.nesting > 0) return;
    const own = tokens.slice(from, at + 1);
    from = at + 1;
    for (const [line, end, part] of token.type === "table_close" ? cutTable(own) : [[...(own[0].map ?? [0, 0]), own]]) {
      blocks.push({ line, end, render: () => sanitizeHtml(documentMd.renderer.render(part, documentMd.options, env), DOCUMENT_RULES) });
    }
  });
  return blocks;
}

/** How many rows of a table with this many columns to draw at once: all of a long one would block the page for seconds. */
export function countRowsAtOnce(columns) {
  return Math.max(1, Math.min(MAX_ROWS_AT_ONCE, Math.floor(MAX_CELLS_AT_ONCE / Math.max(columns, 1))));
}

/** The tokens of a table in pieces, each with the header: [line, end, tokens]. */
function* cutTable(tokens) {
  const body = tokens.findIndex(({ type }) => type === "tbody_open");
  const close = tokens.findLastIndex(({ type }) => type === "tbody_close");
  const rows = tokens.flatMap(({ type }, at) => (type === "tr_open" && at > body ? [at] : []));
  const step = countRowsAtOnce(tokens.filter(({ type }) => type === "th_open").length);
  if (body < 0 || rows.length <= step) {
    yield [...tokens[0].map, tokens];
    return;
  }
  const above = tokens.slice(0, body + 1);
  const again = above.map((token) => Object.assign(Object.create(Object.getPrototypeOf(token)), token, { attrs: dropPlace(token) }));
  for (let from = 0; from < rows.length; from += step) {
    const end = rows[from + step] ?? close;
    const line = from ? tokens[rows[from]].map[0] : tokens[0].map[0];
    const last = tokens[rows[Math.min(from + step, rows.length) - 1]].map[1];
    yield [line, last, [...(from ? again : above), ...tokens.slice(rows[from], end), ...tokens.slice(close)]];
  }
}

function dropPlace({ attrs }) {
  return attrs?.filter(([name]) => name !== "data-at") ?? null;
}
