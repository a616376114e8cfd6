// Actions on a document, and its progress, in a row of the page.

import { toAddress } from "./address.js";
import { patchJson, postJson } from "./api.js";
import { byId, placeBeside } from "./dom.js";
import { describeStage } from "./format.js";
import { askForLibrary } from "./libraries.js";
import { askConfirmation, sendUnlessUndone, showError } from "./notify.js";
import { t, tn } from "./strings.js";

const MAX_DELETED_AT_ONCE = 100;
const HANDED_OVER_KEY = "nura.deleting";

/** The API call of each action but deletion. */
export const documentCalls = {
  reprocess: (id) => postJson(`/documents/${id}/reprocess`),
  pause: (id) => postJson(`/documents/${id}/pause`),
  resume: (id) => postJson(`/documents/${id}/resume`),
  cancel: (id) => postJson(`/documents/${id}/cancel`),
  move: (id, { library_id = null } = {}) => patchJson(`/documents/${id}`, { library_id }),
};

/** The actions that are possible in the document's state, according to its row. */
export function listPossibleActions({ status, stage, error, indexed, mayChange }) {
  const may = mayChange !== "false";
  const working = status === "PROCESSING";
  const paused = working && stage === "paused";
  return {
    ask: status === "COMPLETED" || indexed === "true",
    download: true,
    reprocess: may && !working && error !== "encrypted",
    move: may,
    pause: may && working && !paused,
    resume: may && paused,
    cancel: may && working,
    delete: may,
  };
}

/**
 * Open the menu beside the buttons `[data-document-menu]`; `onDone(action)` is called after an action, `onDelete(ids, {erase})`
 * instead of deleting. `libraries` are those of the page.
 */
export function watchDocumentMenu(libraries, { onDone, onDelete }) {
  const menu = byId("document-menu");
  let chosen = null;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-document-menu]");
    if (!button) return;
    chosen = button.closest("[data-document-id]");
    const { documentId: id } = chosen.dataset;
    for (const [action, can] of Object.entries(listPossibleActions(chosen.dataset))) {
      menu.querySelector(`[data-action=${action}]`).hidden = !can;
    }
    menu.querySelector("[data-action=ask]").href = toAddress(`/?documents=${id}`);
    menu.querySelector("[data-action=download]").href = toAddress(`/api/v1/documents/${id}/file`);
    menu.showPopover({ source: button });
    placeBeside(menu, button);
  });

  menu.addEventListener("click", async (event) => {
    const action = event.target.closest("[data-action]")?.dataset.action;
    menu.hidePopover();
    if (action !== "delete" && !documentCalls[action]) return;
    const { documentId: id, name } = chosen.dataset;
    const how = await askHow(action, { title: t("delete_document", { name }) }, libraries, chosen.dataset.library);
    if (!how) return;
    if (action === "delete") {
      onDelete([id], how);
      return;
    }
    try {
      await documentCalls[action](id, how);
      onDone(action);
    } catch (error) {
      showError(error);
    }
  });
}

/** Ask for what an action needs to know; null if the reader cancels. */
export async function askHow(action, question, libraries, current) {
  if (action === "delete") return askForDeletion(question);
  return action === "move" ? askForLibrary(libraries, current) : {};
}

/**
 * Ask before deleting documents, and whether old answers should lose what they quote from them.
 *
 * @param {{title: string, list?: string[]}} question
 * @returns {Promise<{erase: boolean} | null>}
 */
async function askForDeletion(question) {
  const said = await askConfirmation({ ...question, text: t("delete_document_text"), yes: t("delete"), choice: t("delete_document_erase") });
  return said && { erase: said.chosen };
}

const leavingDocuments = new Map(); // id -> keeps the document after all
const deletedDocuments = new Set();

/** Whether the document is deleted as far as the reader is concerned. */
export const isLeaving = (id) => leavingDocuments.has(id);

/** The same file was uploaded again, in another tab perhaps: the document stays. */
export const keepDocument = (id) => leavingDocuments.get(id)?.();

/** It is deleted on the server: nothing is left to send or to undo. */
export const noteDeleted = (id) => deletedDocuments.add(id);

/**
 * Delete documents on the server a little later, so that they can be brought back; `onChange()` is called when other ones are
 * leaving than before, or have left.
 *
 * @param {string[]} ids
 * @param {{erase: boolean}} how
 * @param {() => void} onChange
 */
export function deleteDocumentsSoon(ids, { erase }, onChange) {
  const leaving = new Set(ids);
  const listUndeleted = () => [...leaving].filter((id) => !deletedDocuments.has(id));
  const bringBack = () => {
    for (const id of listUndeleted()) leavingDocuments.delete(id);
    onChange();
  };
  const keep = (id) => {
    leaving.delete(id);
    leavingDocuments.delete(id);
    if (!leaving.size) cancel();
    onChange();
  };
  const send = async (options) => {
    const left = listUndeleted();
    const parts = [];
    for (let at = 0; at < left.length; at += MAX_DELETED_AT_ONCE) parts.push(left.slice(at, at + MAX_DELETED_AT_ONCE));
    try {
      // together: a page that is left waits for no answer
      await Promise.all(parts.map((part) => postJson("/documents/delete", { document_ids: part, erase }, options)));
      onChange();
    } catch (error) {
      showError(error);
      bringBack();
    }
  };
  for (const id of ids) leavingDocuments.set(id, () => keep(id));
  onChange();
  const cancel = sendUnlessUndone(ids.length === 1 ? t("document_deleted") : tn("bulk.delete", ids.length), { send, undo: bringBack });
}

/** Leave the deletion to the list of documents, which is about to open. */
export function handOverDeletion(ids, how) {
  sessionStorage.setItem(HANDED_OVER_KEY, JSON.stringify({ ids, ...how }));
}

/** What the page before has left to this one: {ids, erase}, or null. */
export function takeOverDeletion() {
  const handed = sessionStorage.getItem(HANDED_OVER_KEY);
  sessionStorage.removeItem(HANDED_OVER_KEY);
  return JSON.parse(handed);
}

const STATUS_BADGES = { COMPLETED: "badge-accent", FAILED: "badge-danger", PROCESSING: "badge-warn" };

/** Show the document's progress in `row`; its end is rendered by the server. */
export function showProgress(row, data) {
  row.dataset.stage = data.stage;
  row.dataset.error = data.error?.code ?? "";
  row.dataset.indexed = String(Boolean(data.indexed));
  const badge = row.querySelector("[data-badge]");
  badge.textContent = t(`status.${data.status}`);
  badge.className = `badge ${STATUS_BADGES[data.status]}`;
  row.querySelector("[data-stage-words]").hidden = data.status !== "PROCESSING";
  row.querySelector("[data-stage-text]").textContent = describeStage(data);
  row.querySelector("progress").value = data.progress ?? 0;
}

export function findRow(id) {
  return document.querySelector(`[data-document-id="${CSS.escape(id)}"]`);
}
