// Sizes, times, pages and progress in the reader's language.

import { hasString, locale, t, tn } from "./strings.js";

/** The pages of a source: "p. 3", "p. 3–4", or nothing for formats without pages. */
export function formatPages(source) {
  if (!source.page) return "";
  const last = Math.max(source.page, ...(source.boxes ?? []).map((box) => box.page));
  return t("page", { page: last > source.page ? `${source.page}–${last}` : source.page });
}

const UNITS = ["B", "KB", "MB", "GB"];

/** Formatted as on the server, but with "B" for bytes. */
export function formatFileSize(bytes) {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit ? 1 : 0)} ${UNITS[unit]}`;
}

export function formatPercent(fraction) {
  return `${Math.round(Math.min(Math.max(fraction, 0), 1) * 100)}%`;
}

/** A score of any scale: small ones with three decimals, large ones with none. */
export function formatScore(value) {
  const digits = value < 10 ? 3 : value < 100 ? 1 : 0;
  return value.toLocaleString(locale, { maximumFractionDigits: digits });
}

const clock = new Intl.DateTimeFormat(locale, { hour: "numeric", minute: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat(locale, {
  year: "numeric",
  month: "long",
  day: "numeric",
  hour: "numeric",
  minute: "2-digit",
});

/** "7:13 AM"; with the date if on another day, and with the year if in another year. */
export function formatTime(iso) {
  const [at, now] = [new Date(iso), new Date()];
  if (at.toDateString() === now.toDateString()) return clock.format(at);
  const year = at.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return at.toLocaleString(locale, { year, month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
}

export function formatDateTime(iso) {
  return dayAndClock.format(new Date(iso));
}

const day = new Intl.DateTimeFormat(locale, { year: "numeric", month: "long", day: "numeric" });

const ago = new Intl.RelativeTimeFormat(locale, { numeric: "always" });

export function formatDate(iso) {
  return day.format(new Date(iso));
}

/** "3 minutes ago", "yesterday"; the date if longer ago. */
export function formatTimeAgo(iso) {
  const minutes = (Date.now() - new Date(iso).getTime()) / 60_000;
  if (minutes < 1) return t("ago.moment");
  if (minutes < 60) return ago.format(-Math.floor(minutes), "minute");
  const hours = minutes / 60;
  if (hours < 24) return ago.format(-Math.floor(hours), "hour");
  return hours < 24 * 30 ? ago.format(-Math.floor(hours / 24), "day") : formatDate(iso);
}

/** "about 4 min left"; "" if unknown. */
export function formatTimeLeft(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 45) return t("left.moment");
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? tn("left.minutes", minutes) : tn("left.hours", Math.round(minutes / 60));
}

/** Stage of a document being processed, its page or percentage, and the time left. */
export function describeStage(document) {
  const words = [nameStage(document), formatTimeLeft(document.seconds_left)];
  return words.filter(Boolean).join(" · ");
}

function nameStage({ stage: name, pages_done: page, page_count: pages, progress }) {
  if (name === "parsing" && page && pages) return t("stage.page_of", { page, pages });
  if (name === "parsing" && page) return t("stage.page", { page });
  const words = hasString(`stage.${name}`) ? t(`stage.${name}`) : t("stage.queued");
  return progress > 0 && name !== "paused" && name !== "queued" ? `${words} ${formatPercent(progress)}` : words;
}
