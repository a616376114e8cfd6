// Texts of the page in the reader's language, put into it by the server; see nura/templatetags/page_strings.py.

const table = new Map(Object.entries(readStrings()));

export const locale = globalThis.document?.documentElement.lang || "ko";

/** The texts of the page; outside of a page none, and `t` returns the keys. */
function readStrings() {
  const holder = globalThis.document?.getElementById("strings");
  return holder ? JSON.parse(holder.textContent) : {};
}

/** The text of `key`, with `{name}` filled in from `values`. */
export function t(key, values = {}) {
  const text = table.get(key) ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Whether the page has the text. */
export function hasString(key) {
  return table.has(key);
}

/** The text for a number; English has a singular of its own (`key.one`). */
export function tn(key, count, values = {}) {
  const one = count === 1 && table.has(`${key}.one`);
  return t(one ? `${key}.one` : key, { count: count.toLocaleString(locale), ...values });
}
