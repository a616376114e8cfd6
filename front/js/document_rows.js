// Live progress of documents where they stand on the page.

import { stageText } from "./progress.js";
import { t } from "./strings.js";

const BADGES = { COMPLETED: "badge-accent", FAILED: "badge-danger", PROCESSING: "badge-warn" };

/** Show in `row` how far the document is; its end needs the server's own words. */
export function showProgress(row, data) {
  row.dataset.stage = data.stage;
  row.dataset.indexed = String(Boolean(data.indexed));
  const badge = row.querySelector("[data-badge]");
  badge.textContent = t(`status.${data.status}`);
  badge.className = `badge ${BADGES[data.status]}`;
  row.querySelector("[data-stage-words]").hidden = data.status !== "PROCESSING";
  row.querySelector("[data-stage-text]").textContent = stageText(data);
  row.querySelector("progress").value = data.progress ?? 0;
}

export function rowOf(id) {
  return document.querySelector(`[data-document-id="${CSS.escape(id)}"]`);
}
