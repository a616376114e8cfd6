// Words of the page, written by the server in the reader's language: see templates/panels/strings.html.

const table = new Map();

for (const holder of document.querySelectorAll("template[data-strings]")) {
  for (const node of holder.content.querySelectorAll("[data-key]")) {
    table.set(node.dataset.key, node.textContent.trim());
  }
}

export const locale = document.documentElement.lang || "ko";

/** The sentence `key`, with `{name}` filled in from `values`. */
export function t(key, values = {}) {
  const text = table.get(key) ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Whether the page knows the sentence. */
export function has(key) {
  return table.has(key);
}

/** The sentence for a number; English has its own for one (`key.one`). */
export function tn(key, count, values = {}) {
  const one = count === 1 && table.has(`${key}.one`);
  return t(one ? `${key}.one` : key, { count: count.toLocaleString(locale), ...values });
}

/** Where a source stands: "p. 3", "p. 3–4", or nothing for formats without pages. */
export function pageLabel(source) {
  if (!source.page) return "";
  const last = Math.max(source.page, ...(source.boxes ?? []).map((box) => box.page));
  return t("page", { page: last > source.page ? `${source.page}–${last}` : source.page });
}

const UNITS = ["B", "KB", "MB", "GB"];

export function fileSize(bytes) {
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 10 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function percent(fraction) {
  return `${Math.round(Math.min(Math.max(fraction, 0), 1) * 100)}%`;
}

const clock = new Intl.DateTimeFormat(locale, { hour: "numeric", minute: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat(locale, {
  year: "numeric",
  month: "long",
  day: "numeric",
  hour: "numeric",
  minute: "2-digit",
});

export function shortTime(iso) {
  return clock.format(new Date(iso));
}

export function longTime(iso) {
  return dayAndClock.format(new Date(iso));
}
