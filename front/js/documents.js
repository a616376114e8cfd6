// The list of documents: uploads, live progress, and actions on one or many.

import "./theme.js";
import { toAddress } from "./address.js";
import { getJson, patchJson } from "./api.js";
import "./shell.js";
import {
  askHow,
  deleteDocumentsSoon,
  documentCalls,
  findRow,
  isLeaving,
  keepDocument,
  listPossibleActions,
  noteDeleted,
  showProgress,
  takeOverDeletion,
  watchDocumentMenu,
} from "./document_actions.js";
import { byId, readPageData } from "./dom.js";
import { watchFileInput } from "./file_input.js";
import { watchLibraryBar } from "./libraries.js";
import { sendUndoable, showError, showToast } from "./notify.js";
import { Socket } from "./socket.js";
import { t, tn } from "./strings.js";
import { Uploads } from "./uploads.js";

const MAX_CALLS = 4;
const MAX_NAMED_FILES = 8; // listed in the question before deleting
const MAX_ASKED_DOCUMENTS = 50; // documents named in an address

/** A key for the list, the same for each of its pages: library, search, filters and order, from the fields of its request. */
function nameList(fields) {
  const list = new URLSearchParams(fields);
  list.delete("page");
  list.sort();
  return list.toString();
}

/** Actions on the selected documents. Events: `done` once an action has ended. */
export class BulkActions extends EventTarget {
  constructor({ table, bar, filters, onDelete, libraries = [] }) {
    super();
    this.table = table;
    this.onDelete = onDelete;
    this.bar = bar;
    this.libraries = libraries;
    this.chosen = new Map(); // id -> the data of its row, on any page of the list
    this.list = nameList(new FormData(filters));
    this.words = bar.querySelector("[data-words]");
    table.addEventListener("change", (event) => this.handleToggle(event.target));
    document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
      if (detail.target === table) this.restoreChosen(nameList(detail.requestConfig.formData));
    });
    bar.addEventListener("click", (event) => {
      const action = event.target.closest("[data-bulk]")?.dataset.bulk;
      if (action === "none") this.clearChosen();
      else if (action === "delete" || documentCalls[action]) this.run(action);
    });
  }

  get boxes() {
    return [...this.table.querySelectorAll("tr:not([hidden]) [data-choose]")];
  }

  handleToggle(box) {
    if (box.matches("[data-choose-all]")) for (const one of this.boxes) this.setChosen(one, box.checked);
    else if (box.matches("[data-choose]")) this.setChosen(box, box.checked);
    else return;
    this.render();
  }

  setChosen(box, on) {
    box.checked = on;
    const row = box.closest("[data-document-id]");
    if (on) this.chosen.set(row.dataset.documentId, row.dataset);
    else this.chosen.delete(row.dataset.documentId);
  }

  /** The table was redrawn: what is selected on other pages of the same `list` stays so, anything else not shown does not. */
  restoreChosen(list = this.list) {
    const before = this.chosen;
    if (list !== this.list) this.chosen = new Map();
    this.list = list;
    for (const box of this.boxes) this.setChosen(box, before.has(box.closest("[data-document-id]").dataset.documentId));
    this.render();
  }

  /** A document has changed, on whichever page it is: other actions are possible, or none if it is gone. */
  update({ id, deleted, status, stage, error, indexed }) {
    if (!this.chosen.has(id)) return;
    if (deleted) this.chosen.delete(id);
    else Object.assign(this.chosen.get(id), { status, stage, error: error?.code ?? "", indexed: String(Boolean(indexed)) });
    this.render();
  }

  clearChosen() {
    this.chosen.clear();
    this.restoreChosen();
  }

  /** The ids of selected documents for which `action` is possible. */
  listFitting(action) {
    return [...this.chosen].filter(([, data]) => listPossibleActions(data)[action]).map(([id]) => id);
  }

  render() {
    this.bar.hidden = !this.chosen.size;
    const all = this.table.querySelector("[data-choose-all]");
    const chosen = this.boxes.filter((box) => box.checked).length;
    if (all) {
      all.checked = chosen > 0 && chosen === this.boxes.length;
      all.indeterminate = chosen > 0 && chosen < this.boxes.length;
    }
    const elsewhere = this.chosen.size - chosen;
    this.words.textContent = tn("bulk.chosen", this.chosen.size) + (elsewhere ? ` · ${tn("bulk.elsewhere", elsewhere)}` : "");
    for (const button of this.bar.querySelectorAll("[data-bulk]")) {
      if (button.dataset.bulk !== "none") button.hidden = !this.listFitting(button.dataset.bulk).length;
    }
    const ask = this.bar.querySelector("[data-bulk=ask]");
    ask.href = toAddress(`/?documents=${this.listFitting("ask").join(",")}`);
    ask.hidden ||= this.listFitting("ask").length > MAX_ASKED_DOCUMENTS;
  }

  async run(action) {
    const ids = this.listFitting(action);
    const how = await askHow(action, this.describeDeletion(ids), this.libraries);
    if (!how) return;
    if (action === "delete") {
      this.clearChosen();
      this.onDelete(ids, how);
      return;
    }
    const refused = [];
    const rest = [...ids];
    const work = async () => {
      while (rest.length) await documentCalls[action](rest.shift(), how).catch((error) => refused.push(error.message));
    };
    this.bar.inert = true;
    await Promise.all(Array.from({ length: MAX_CALLS }, work));
    this.bar.inert = false;
    if (refused.length) showToast(`${tn("bulk.refused", refused.length)} ${refused[0]}`, { kind: "toast-error" });
    else showToast(tn(`bulk.${action}`, ids.length));
    this.clearChosen();
    this.dispatchEvent(new Event("done"));
  }

  /** The question before deleting them. */
  describeDeletion(ids) {
    const names = ids.map((id) => this.chosen.get(id).name);
    const shown = names.length > MAX_NAMED_FILES ? names.slice(0, MAX_NAMED_FILES - 1) : names;
    const more = names.length - shown.length;
    const list = more ? [...shown, tn("bulk.more_files", more)] : shown;
    return { title: tn("bulk.delete_sure", ids.length), list };
  }
}

const REFRESH_AFTER_MS = 400;
const REFRESH_APART_MS = 3000;
const LOOK_EVERY_MS = 5000;
const CLEAR_AFTER_MS = 4000;

const page = readPageData("page");
const socket = new Socket();
const table = byId("document-table");
let refreshTimer = null;
let refreshed = 0;
const knownStates = new Map(); // id -> last known state, in view or not

/** Whether the reader turns a page or narrows the list, or the table is being redrawn. */
function isListLoading() {
  const asking = [byId("filters"), table, ...table.querySelectorAll(".pages button")];
  return asking.some((one) => one.classList.contains("htmx-request"));
}

/**
 * Redraw the table soon, but not for each of many changes. A list that is on its way may be older than the change, and goes first:
 * a redrawn table would replace the button whose request waits.
 */
function refreshTable() {
  const wait = Math.max(REFRESH_AFTER_MS, refreshed + REFRESH_APART_MS - Date.now());
  refreshTimer ??= setTimeout(() => {
    refreshTimer = null;
    refreshed = Date.now();
    if (isListLoading()) refreshTable();
    else document.body.dispatchEvent(new Event("documents-changed"));
  }, wait);
}

/** Redraw the table at once, after an action of the reader. */
function refreshNow() {
  clearTimeout(refreshTimer);
  refreshTimer = null;
  refreshed = 0;
  refreshTable();
}

/** Progress is shown in the row; the table is redrawn only when documents come, go or end. */
function receiveDocument(data) {
  const row = findRow(data.id);
  const before = knownStates.get(data.id) ?? row?.dataset.status;
  knownStates.set(data.id, data.deleted ? "" : data.status);
  if (row && !data.deleted) {
    row.dataset.status = data.status;
    showProgress(row, data);
  }
  if (data.deleted) noteDeleted(data.id);
  if (data.uploaded_again) keepDocument(data.id);
  bulk.update(data);
  if (data.deleted || before !== data.status) refreshTable();
}

const uploads = new Uploads({
  root: byId("uploads"),
  accept: byId("file-input").accept,
  limitMb: page.upload_limit_mb,
  isLive: () => socket.isOpen,
  libraryId: page.library?.id ?? "",
});

/** Clear the tray once all files are ready: they are in the table. */
function clearTrayWhenReady() {
  if (!uploads.items.length || !uploads.items.every((item) => item.state === "completed" && !item.duplicate)) return;
  setTimeout(() => uploads.working.length || uploads.clearCompleted(), CLEAR_AFTER_MS);
}

uploads.addEventListener("completed", clearTrayWhenReady);
uploads.addEventListener("changed", () => socket.isOpen || refreshTable());
watchFileInput({
  input: byId("file-input"),
  button: byId("attach"),
  folderInput: byId("folder-input"),
  folderButton: byId("attach-folder"),
  onFiles: async (...found) => {
    await sendUndoable(); // a file that is uploaded again would be taken for the one that is about to go
    uploads.add(...found);
  },
});

/** The reader's role in the library shown; null if it can no longer be read. */
function askRole() {
  return getJson(`/libraries/${page.library.id}`).then(
    ({ role }) => role,
    (error) => (error.status === 404 ? null : page.library.role),
  );
}

/** Check what the reader may still read and do here. */
async function checkRights() {
  const role = page.library && (await askRole());
  if (page.library && !role) location.assign(toAddress("/documents"));
  else if (page.library && role !== page.library.role && !uploads.working.length) location.reload();
  else refreshTable();
}

socket.addEventListener("frame", ({ detail: frame }) => {
  if (frame.type === "rights.changed") checkRights();
  if (frame.type !== "document") return;
  uploads.update(frame.data);
  receiveDocument(frame.data);
});
socket.addEventListener("open", () => {
  knownStates.clear();
  checkRights();
  uploads.catchUp();
});
setInterval(() => {
  if (!socket.isOpen && table.querySelector('[data-status="PROCESSING"]')) refreshTable();
}, LOOK_EVERY_MS);

/** Switch between table and cards; the choice is stored with the account. */
function watchLayouts(root) {
  const buttons = [...root.querySelectorAll("[data-layout]")];
  root.addEventListener("click", (event) => {
    const layout = event.target.closest("[data-layout]")?.dataset.layout;
    if (!layout || layout === table.dataset.layout) return;
    table.dataset.layout = layout;
    for (const one of buttons) one.ariaPressed = String(one.dataset.layout === layout);
    patchJson("/me/preferences", { document_layout: layout }).catch(showError);
  });
}

watchLayouts(byId("layouts"));

/** Documents leave the list before they leave the server. */
function hideLeaving() {
  const rows = [...table.querySelectorAll("[data-document-id]")];
  for (const row of rows) row.hidden = isLeaving(row.dataset.documentId);
  const empty = table.querySelector(".empty");
  if (!rows.length || !empty) return;
  empty.hidden = rows.some((row) => !row.hidden);
  table.querySelector("table").hidden = !empty.hidden;
}

function deleteListedSoon(ids, how) {
  deleteDocumentsSoon(ids, how, () => {
    hideLeaving();
    refreshNow();
  });
}

document.body.addEventListener("htmx:afterSwap", hideLeaving);
const bulk = new BulkActions({ table, bar: byId("bulk"), filters: byId("filters"), onDelete: deleteListedSoon, libraries: page.libraries });
bulk.addEventListener("done", refreshNow);
watchLibraryBar(page);
watchDocumentMenu(page.libraries, {
  onDelete: deleteListedSoon,
  onDone: (action) => {
    if (action === "reprocess") showToast(t("reprocess_started"));
    if (action === "move") showToast(t("document_moved"));
    refreshNow();
  },
});
const handedOver = takeOverDeletion();
if (handedOver) deleteListedSoon(handedOver.ids, handedOver);
