// The list of documents: uploads, live progress, and what can be done with one or many.

import "./theme.js";
import "./keys.js";
import { Bulk } from "./bulk.js";
import { watchMenu } from "./document_actions.js";
import { rowOf, showProgress } from "./document_rows.js";
import { byId, pageData } from "./dom.js";
import { watchFiles } from "./drop.js";
import { drawMeter } from "./meter.js";
import { Socket } from "./socket.js";
import { t } from "./strings.js";
import { toast } from "./toast.js";
import { Uploads } from "./uploads.js";

const REFRESH_AFTER = 400;
const REFRESH_APART = 3000;
const LOOK_EVERY = 5000;
const CLEAR_AFTER = 4000;

const page = pageData("page");
const socket = new Socket();
const table = byId("document-table");
let refreshTimer = null;
let refreshed = 0;
const known = new Map(); // what is known of the state of each document, in sight or not

/** Draw the table anew: soon, but not again and again while many documents change. */
function refreshTable() {
  const wait = Math.max(REFRESH_AFTER, refreshed + REFRESH_APART - Date.now());
  refreshTimer ??= setTimeout(() => {
    refreshTimer = null;
    refreshed = Date.now();
    document.body.dispatchEvent(new Event("documents-changed"));
    if (!byId("meter").hidden) drawMeter(byId("meter"));
  }, wait);
}

/** The reader himself did something: he shall see it at once. */
function refreshNow() {
  clearTimeout(refreshTimer);
  refreshTimer = null;
  refreshed = 0;
  refreshTable();
}

/** Progress is drawn where the row stands; the table only changes with what documents there are and how they ended. */
function heard(data) {
  const row = rowOf(data.id);
  const before = known.get(data.id) ?? row?.dataset.status;
  known.set(data.id, data.deleted ? "" : data.status);
  if (row && !data.deleted) {
    row.dataset.status = data.status;
    showProgress(row, data);
  }
  if (data.deleted || before !== data.status) refreshTable();
}

const uploads = new Uploads({ root: byId("uploads"), limitMb: page.upload_limit_mb, isLive: () => socket.isOpen });

/** When all files are ready, the table says the rest. */
function clearLater() {
  if (!uploads.items.length || !uploads.items.every((item) => item.state === "completed" && !item.duplicate)) return;
  setTimeout(() => uploads.working.length || uploads.clearCompleted(), CLEAR_AFTER);
}

uploads.addEventListener("completed", clearLater);
uploads.addEventListener("changed", () => socket.isOpen || refreshTable());
watchFiles({
  input: byId("file-input"),
  button: byId("attach"),
  folderInput: byId("folder-input"),
  folderButton: byId("attach-folder"),
  onFiles: (...found) => uploads.add(...found),
});

socket.addEventListener("frame", ({ detail: frame }) => {
  if (frame.type !== "document") return;
  uploads.update(frame.data);
  heard(frame.data);
});
socket.addEventListener("open", () => {
  known.clear();
  refreshTable();
  uploads.catchUp();
});
setInterval(() => {
  if (!socket.isOpen && table.querySelector('[data-status="PROCESSING"]')) refreshTable();
}, LOOK_EVERY);

const bulk = new Bulk({ table, bar: byId("bulk") });
bulk.addEventListener("done", refreshNow);
watchMenu((action) => {
  if (action === "reprocess") toast(t("reprocess_started"));
  if (action === "delete") toast(t("document_deleted"));
  refreshNow();
});
drawMeter(byId("meter"));
