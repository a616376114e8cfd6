// Plugins of markdown-it for what answers use beyond CommonMark: formulas, footnotes, task lists, bare links. Their output is
// sanitised like everything else.

const DOLLAR = 0x24;
const BACKSLASH = 0x5c;
const BRACKET = 0x5b;
const MAX_FORMULA_CHARACTERS = 4000;
const CLOSINGS = { "\\(": "\\)", "\\[": "\\]", "$$": "$$" };

/** `$…$`, `$$…$$`, `\(…\)` and `\[…\]` as text in `.math`, or `.math-block` on lines of their own. Money is no formula. */
export function readFormulas(md) {
  md.inline.ruler.before("escape", "formula", readInlineFormula);
  md.block.ruler.before("fence", "formula", readFormulaBlock, { alt: ["paragraph", "reference", "blockquote", "list"] });
  const render = (name) => (tokens, index) => `<span class="${name}">${md.utils.escapeHtml(tokens[index].content)}</span>`;
  md.renderer.rules.formula = render("math");
  md.renderer.rules.formula_display = render("math math-block");
  md.renderer.rules.formula_block = (tokens, index) => `<p>${render("math math-block")(tokens, index)}</p>\n`;
}

function readInlineFormula(state, silent) {
  const { src, pos, posMax } = state;
  const sign = src.charCodeAt(pos);
  if (sign !== DOLLAR && sign !== BACKSLASH) return false;
  const opening = src.slice(pos, pos + 2);
  const closing = CLOSINGS[opening];
  if (!closing && sign !== DOLLAR) return false;
  const start = pos + (closing ? 2 : 1);
  const end = closing ? src.indexOf(closing, start) : findDollar(src, start, posMax);
  const length = closing ? 2 : 1;
  if (end < start + 1 || end + length > posMax || end - start > MAX_FORMULA_CHARACTERS) return false;
  const content = src.slice(start, end).trim();
  if (!content) return false;
  if (!silent) {
    const token = state.push(opening === "$$" || opening === "\\[" ? "formula_display" : "formula", "span", 0);
    token.content = content;
  }
  state.pos = end + length;
  return true;
}

const DIGIT = /\d/;
const BLANK = /\s/;

/** The parts of a text in order, {text, isFormula}: formulas between dollar signs, amounts of money excepted, and the rest. */
export function* cutFormulas(text) {
  let done = 0;
  for (let at = text.indexOf("$"); at !== -1; at = text.indexOf("$", at + 1)) {
    const end = text[at - 1] === "\\" ? -1 : findDollar(text, at + 1, text.length);
    if (end <= at + 1 || end - at > MAX_FORMULA_CHARACTERS + 1) continue;
    if (at > done) yield { text: text.slice(done, at), isFormula: false };
    yield { text: text.slice(at + 1, end), isFormula: true };
    at = end;
    done = end + 1;
  }
  if (done < text.length) yield { text: text.slice(done), isFormula: false };
}

// Code; a formula that stands by itself, with the line breaks around it; one within a line.
const WRITTEN = new RegExp(
  [
    /(?<code>```[^]*?```|`[^`\n]+`)/,
    /\n?[ \t]{0,3}\$\$(?<dollars>[^]{1,4000}?)\$\$[ \t]{0,3}\n?/,
    /\n?[ \t]{0,3}\\\[(?<brackets>[^]{1,4000}?)\\\][ \t]{0,3}\n?/,
    /\\\((?<inline>[^]{1,4000}?)\\\)/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "g",
);

/** As `cutFormulas`, of what a person wrote: {text, isFormula, isBlock}, in all notations of answers; code is no formula. */
export function* cutWrittenFormulas(text) {
  let done = 0;
  for (const found of text.matchAll(WRITTEN)) {
    const { code, dollars, brackets, inline } = found.groups;
    const block = dollars ?? brackets;
    const formula = (block ?? inline ?? "").trim();
    if (!code && !formula) continue;
    yield* cutFormulas(text.slice(done, found.index));
    yield code ? { text: code, isFormula: false } : { text: formula, isFormula: true, isBlock: block !== undefined };
    done = found.index + found[0].length;
  }
  yield* cutFormulas(text.slice(done));
}

/** The index of the dollar that ends a formula; -1 for an amount of money. */
function findDollar(src, start, limit) {
  if (BLANK.test(src[start] ?? " ")) return -1;
  for (let at = src.indexOf("$", start); at !== -1 && at < limit; at = src.indexOf("$", at + 1)) {
    if (src[at - 1] === "\\") continue;
    return BLANK.test(src[at - 1]) || DIGIT.test(src[at + 1] ?? "") ? -1 : at;
  }
  return -1;
}

/** A formula on lines of its own; as in a paragraph, its lines may not be indented as code, and a blank line ends it. */
function readFormulaBlock(state, first, last, silent) {
  const line = (number) => state.src.slice(state.bMarks[number] + state.tShift[number], state.eMarks[number]);
  const opening = line(first).slice(0, 2);
  const closing = opening === "\\(" ? "" : CLOSINGS[opening];
  if (!closing || state.sCount[first] - state.blkIndent >= 4) return false;
  const parts = [];
  for (let number = first; number < last; number += 1) {
    const text = number === first ? line(number).slice(2) : line(number);
    const end = text.indexOf(closing);
    if (end !== -1 && text.slice(end + 2).trim()) return false;
    parts.push(end === -1 ? text : text.slice(0, end));
    if (end === -1 && !text.trim() && number !== first) return false;
    if (end === -1) continue;
    const content = parts.join("\n").trim();
    if (!content || content.length > MAX_FORMULA_CHARACTERS) return false;
    if (silent) return true;
    const token = state.push("formula_block", "p", 0);
    Object.assign(token, { content, block: true, map: [first, number + 1] });
    state.line = number + 1;
    return true;
  }
  return false;
}

const REFERENCE = /^\[\^([^\s\]^]{1,30})\]/;
const DEFINITION = /^\[\^([^\s\]^]{1,30})\]:[ \t]*/;

/** `[^name]` and `[^name]: text`, shown in place, so that they look the same however far an answer has grown. */
export function readFootnotes(md) {
  md.inline.ruler.before("link", "footnote", (state, silent) => {
    if (state.src.charCodeAt(state.pos) !== BRACKET) return false;
    const found = REFERENCE.exec(state.src.slice(state.pos, state.pos + 40));
    if (!found) return false;
    if (!silent) state.push("footnote", "sup", 0).content = found[1];
    state.pos += found[0].length;
    return true;
  });
  md.block.ruler.before(
    "reference",
    "footnote",
    (state, first, _last, silent) => {
      const start = state.bMarks[first] + state.tShift[first];
      const text = state.src.slice(start, state.eMarks[first]);
      const found = state.sCount[first] - state.blkIndent < 4 ? DEFINITION.exec(text) : null;
      if (!found) return false;
      if (silent) return true;
      const map = [first, first + 1];
      Object.assign(state.push("footnote_open", "p", 1), { block: true, map, meta: found[1] });
      Object.assign(state.push("inline", "", 0), { content: text.slice(found[0].length), map, children: [] });
      state.push("footnote_close", "p", -1).block = true;
      state.line = first + 1;
      return true;
    },
    { alt: ["paragraph", "reference"] },
  );
  const { escapeHtml } = md.utils;
  md.renderer.rules.footnote = (tokens, index) => `<sup class="footnote-ref">${escapeHtml(tokens[index].content)}</sup>`;
  md.renderer.rules.footnote_open = (tokens, index) => `<p class="footnote"><sup>${escapeHtml(tokens[index].meta)}</sup> `;
  md.renderer.rules.footnote_close = () => "</p>\n";
}

const TASK = /^\[([ xX])\][ \t]+/;

/** `- [ ]` and `- [x]`: a box that is read aloud but cannot be ticked. */
export function readTasks(md) {
  md.core.ruler.after("inline", "task", ({ tokens, Token }) => {
    tokens.forEach((token, index) => {
      if (token.type !== "inline" || tokens[index - 1]?.type !== "paragraph_open" || tokens[index - 2]?.type !== "list_item_open") return;
      const [text] = token.children;
      const found = text?.type === "text" ? TASK.exec(text.content) : null;
      if (!found) return;
      text.content = text.content.slice(found[0].length);
      const done = found[1] !== " ";
      tokens[index - 2].attrJoin("class", done ? "task task-done" : "task");
      const box = new Token("text", "", 0);
      box.content = done ? "☑ " : "☐ ";
      token.children.unshift(box);
    });
  });
}

const PARTICLE = /(?<=[A-Za-z0-9])[가-힣]+$/;
const SCHEMES = /^https?:/i;

/** Bare URLs become links, without a Korean particle at their end. File names do not. */
export function readBareLinks(md) {
  md.set({ linkify: true });
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  const { match, matchAtStart } = md.linkify;
  const isWeb = ({ url }) => SCHEMES.test(url);
  md.linkify.match = (text) => match.call(md.linkify, text)?.filter(isWeb).map(cutParticle) ?? null;
  md.linkify.matchAtStart = (text) => {
    const found = matchAtStart.call(md.linkify, text);
    return found && isWeb(found) ? cutParticle(found) : null;
  };
}

function cutParticle(found) {
  const particle = PARTICLE.exec(found.raw)?.[0].length ?? 0;
  if (!particle) return found;
  const raw = found.raw.slice(0, -particle);
  return Object.assign(found, { raw, text: raw, url: raw, lastIndex: found.lastIndex - particle });
}

const ITEM = /^(?:(?:\d{1,3}(?:의\d{1,2})?|[가-하])[.)]\s|\((?:\d{1,2}|[가-하])\)|[①-⑳○●◦•▪■□◇◆※])/;

/** Lines that begin like an item of a statute, "1. " or "가. ", stay lines though the text does not make them a list. */
export function breakBeforeItems(md) {
  md.renderer.rules.softbreak = (tokens, index) => (ITEM.test(readLine(tokens, index + 1)) ? "<br>\n" : "\n");
}

/** The text of the line that begins with the token at `index`. */
function readLine(tokens, index) {
  let line = "";
  for (let at = index; at < tokens.length && tokens[at].type !== "softbreak"; at += 1) line += tokens[at].content;
  return line;
}
