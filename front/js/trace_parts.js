// What the steps of an answer are drawn with.

import { el } from "./dom.js";
import { has, locale, t } from "./strings.js";

/** A section with its heading. */
export function part(title, ...children) {
  return el("section", { class: "trace-part" }, el("h3", { text: title }), children);
}

/** Names and values; rows without a value are left out. */
export function facts(rows) {
  const told = rows.filter(([, value]) => value);
  return el("dl", { class: "trace-facts" }, told.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
}

export function list(texts) {
  return el("ul", { class: "trace-list" }, texts.map((text) => el("li", { text })));
}

/** Small bars: `value` of `most`, with a line at `mark`; `text` says the same in words. */
export function bars(rows) {
  const share = (value, most) => `${Math.min(100, (100 * value) / most)}%`;
  return el(
    "ul",
    { class: "trace-bars" },
    rows.map(({ label, value, most, mark, text }) => {
      const filled = el("span", { class: "trace-fill" });
      filled.style.width = share(value, most);
      const line = el("span", { class: "trace-mark" });
      line.style.left = share(mark, most);
      const words = el("span", { class: "trace-words" }, label ? el("span", { text: label }) : null, el("small", { text }));
      return el("li", {}, words, el("span", { class: "trace-bar", "aria-hidden": "true" }, filled, line));
    }),
  );
}

/** The steps of a look through the conversation, in their order. */
export function steps(found) {
  return el(
    "ol",
    { class: "trace-list" },
    found.map(({ tool, ms }) => {
      const name = has(`tool.${tool}`) ? t(`tool.${tool}`) : t("tool.other");
      return el("li", {}, el("span", { text: name }), Number.isFinite(ms) ? el("small", { text: ` ${time(ms)}` }) : null);
    }),
  );
}

export function amount(count) {
  return Math.round(count).toLocaleString(locale);
}

export function time(ms) {
  if (ms < 1) return t("trace.under_ms");
  return ms < 1000 ? t("trace.ms", { ms: Math.round(ms) }) : t("trace.seconds", { seconds: (ms / 1000).toFixed(1) });
}
