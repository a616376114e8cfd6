// How far a document is, in words.

import { has, percent, t, tn } from "./strings.js";

/** "about 4 min left"; "" where nobody knows. */
export function timeLeft(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 45) return t("left.moment");
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? tn("left.minutes", minutes) : tn("left.hours", Math.round(minutes / 60));
}

/** Stage of a document that is being read, its page or percent, and the time left. */
export function stageText(document) {
  const words = [stage(document), timeLeft(document.seconds_left)];
  return words.filter(Boolean).join(" · ");
}

function stage({ stage: name, pages_done: page, page_count: pages, progress }) {
  if (name === "parsing" && page && pages) return t("stage.page_of", { page, pages });
  if (name === "parsing" && page) return t("stage.page", { page });
  const words = has(`stage.${name}`) ? t(`stage.${name}`) : t("stage.queued");
  return progress > 0 && name !== "paused" && name !== "queued" ? `${words} ${percent(progress)}` : words;
}
