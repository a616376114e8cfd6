// How much of the reader's room for documents is taken. Nothing where there is no limit.

import { get } from "./api.js";
import { el } from "./dom.js";
import { fileSize, locale, t } from "./strings.js";

const NEARLY_FULL = 0.9;

export async function drawMeter(root) {
  const account = await get("/me").catch(() => null);
  const { usage, limits } = account ?? {};
  const rows = [
    row(usage?.bytes, limits?.bytes, fileSize, "meter.bytes"),
    row(usage?.documents, limits?.documents, (count) => count.toLocaleString(locale), "meter.documents"),
  ].filter(Boolean);
  root.replaceChildren(...rows);
  root.hidden = !rows.length;
}

function row(used, limit, say, key) {
  if (!limit) return null;
  const share = Math.min(used / limit, 1);
  const words = t(key, { used: say(used), limit: say(limit) });
  const fill = el("span", { class: "meter-fill" });
  fill.style.width = `${100 * share}%`;
  const bar = el("span", { class: "meter-bar", "aria-hidden": "true" }, fill);
  return el("p", { class: share >= NEARLY_FULL ? "meter-row meter-full" : "meter-row" }, bar, el("span", { text: words }));
}
