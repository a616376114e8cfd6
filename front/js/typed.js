// Text as it was read from a file: its tables are drawn as tables, all else stays as it is typed.

import { wrapTables } from "./decorate.js";
import { el } from "./dom.js";
import { render } from "./markdown.js";

const TABLE = /(?:^\|.*\|[ \t]*(?:\n|$))+/gm;
const RULE = /^\|(?:\s*:?-+:?\s*\|)+\s*$/m;

/** `header`: the header rows of a table that begins before this text. */
export function typed(text, header = "") {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TABLE)) {
    parts.push(asTyped(text.slice(at, found.index)));
    const rows = RULE.test(found[0]) || !header ? found[0] : `${header.trim()}\n${found[0]}`;
    parts.push(RULE.test(rows) ? prose("div", rows) : asTyped(rows));
    at = found.index + found[0].length;
  }
  parts.push(asTyped(text.slice(at)));
  return parts.filter(Boolean);
}

/** Markdown below a heading of the level `under`, in an element of this name. */
export function prose(name, text, under = 0) {
  const fragment = render(text, under);
  wrapTables(fragment);
  return el(name, { class: "prose" }, fragment);
}

function asTyped(words) {
  return words.trim() ? el("div", { class: "as-typed", text: words.trim() }) : null;
}
