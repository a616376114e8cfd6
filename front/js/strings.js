// Words of the page in the reader's language, written into it by the server: see nura/templatetags/page_strings.py.

const table = new Map(Object.entries(readStrings()));

export const locale = globalThis.document?.documentElement.lang || "ko";

/** The words of the page; none outside of a page, where keys stand for themselves. */
function readStrings() {
  const holder = globalThis.document?.getElementById("strings");
  return holder ? JSON.parse(holder.textContent) : {};
}

/** The sentence `key`, with `{name}` filled in from `values`. */
export function t(key, values = {}) {
  const text = table.get(key) ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Whether the page knows the sentence. */
export function hasString(key) {
  return table.has(key);
}

/** The sentence for a number; English has its own for one (`key.one`). */
export function tn(key, count, values = {}) {
  const one = count === 1 && table.has(`${key}.one`);
  return t(one ? `${key}.one` : key, { count: count.toLocaleString(locale), ...values });
}
