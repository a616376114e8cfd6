// The pages of documents: uploads, live progress, and what can be done with a document.

import "./theme.js";
import "./keys.js";
import { post, remove } from "./api.js";
import { byId, pageData, placeBeside } from "./dom.js";
import { watchFiles } from "./drop.js";
import { Socket } from "./socket.js";
import { t } from "./strings.js";
import { confirmed, toast } from "./toast.js";
import { stageText, Uploads } from "./uploads.js";

const BADGES = { COMPLETED: "badge-accent", FAILED: "badge-danger", PROCESSING: "badge-warn" };
const REFRESH_AFTER = 400;

const page = pageData("page");
const single = document.querySelector("article[data-document-id]");
const socket = new Socket();
let refreshTimer = null;

function refreshTable() {
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(() => {
    if (single) location.reload();
    else document.body.dispatchEvent(new Event("documents-changed"));
  }, REFRESH_AFTER);
}

/** Show a document's progress where it stands; its end needs the server's own words. */
function showProgress(data) {
  const row = document.querySelector(`[data-document-id="${CSS.escape(data.id)}"]`);
  if (!row) return single ? undefined : refreshTable();
  if (row.dataset.status !== data.status) {
    row.dataset.status = data.status;
    refreshTable();
  }
  const badge = row.querySelector("[data-badge]");
  badge.textContent = t(`status.${data.status}`);
  badge.className = `badge ${BADGES[data.status]}`;
  const working = data.status === "PROCESSING";
  row.querySelector("[data-stage]").hidden = !working;
  row.querySelector("[data-stage-text]").textContent = stageText(data);
  row.querySelector("progress").value = data.progress ?? 0;
  return undefined;
}

let uploads = null;
if (byId("uploads")) {
  uploads = new Uploads({ root: byId("uploads"), limitMb: page.upload_limit_mb, isLive: () => socket.isOpen });
  uploads.addEventListener("changed", refreshTable);
  uploads.addEventListener("completed", () => setTimeout(() => uploads.clearCompleted(), 1500));
  watchFiles({ input: byId("file-input"), button: byId("attach"), onFiles: (files) => uploads.add(files) });
}

socket.addEventListener("frame", ({ detail: frame }) => {
  if (frame.type !== "document") return;
  uploads?.update(frame.data);
  showProgress(frame.data);
});
socket.addEventListener("open", () => !single && refreshTable());
setInterval(() => {
  if (!socket.isOpen && document.querySelector('[data-status="PROCESSING"]') && !single) refreshTable();
}, 5000);

// Actions

const menu = byId("document-menu");
let chosen = null;

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-document-menu]");
  if (!button) return;
  chosen = button.closest("[data-document-id]");
  const { documentId: id, status } = chosen.dataset;
  const item = (action) => menu.querySelector(`[data-action=${action}]`);
  item("ask").href = `/?documents=${id}`;
  item("ask").hidden = status !== "COMPLETED";
  item("download").href = `/api/v1/documents/${id}/file`;
  item("reprocess").hidden = status === "PROCESSING";
  item("cancel").hidden = status !== "PROCESSING";
  menu.showPopover({ source: button });
  placeBeside(menu, button);
});

const actions = {
  async reprocess(id) {
    await post(`/documents/${id}/reprocess`);
    toast(t("reprocess_started"));
  },
  async cancel(id) {
    await post(`/documents/${id}/cancel`);
  },
  async delete(id, name) {
    const sure = await confirmed({
      title: t("delete_document", { name }),
      text: t("delete_document_text"),
      yes: t("delete"),
    });
    if (!sure) return;
    await remove(`/documents/${id}`);
    if (single) location.assign("/documents");
    else toast(t("document_deleted"));
  },
};

menu.addEventListener("click", async (event) => {
  const name = event.target.closest("[data-action]")?.dataset.action;
  menu.hidePopover();
  if (!actions[name]) return;
  try {
    await actions[name](chosen.dataset.documentId, chosen.dataset.name);
    if (!(single && name === "delete")) refreshTable();
  } catch (error) {
    toast(error.message, { kind: "toast-error" });
  }
});
