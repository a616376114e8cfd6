// Actions on a document, and its progress, in a row of the page.

import { toAddress } from "./address.js";
import { patchJson, postJson, sendDelete } from "./api.js";
import { byId, placeBeside } from "./dom.js";
import { describeStage } from "./format.js";
import { askForLibrary } from "./libraries.js";
import { askConfirmation, showError } from "./notify.js";
import { t } from "./strings.js";

/** The API call of each action. */
export const documentCalls = {
  reprocess: (id) => postJson(`/documents/${id}/reprocess`),
  pause: (id) => postJson(`/documents/${id}/pause`),
  resume: (id) => postJson(`/documents/${id}/resume`),
  cancel: (id) => postJson(`/documents/${id}/cancel`),
  move: (id, { library_id = null } = {}) => patchJson(`/documents/${id}`, { library_id }),
  delete: (id, { erase = false } = {}) => sendDelete(`/documents/${id}${erase ? "?erase=true" : ""}`),
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
 * Open the menu beside the buttons `[data-document-menu]`; `onDone(action)` hears of what was done. `libraries` are those of
 * the page.
 */
export function watchDocumentMenu(libraries, onDone) {
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
    if (!documentCalls[action]) return;
    const { documentId: id, name } = chosen.dataset;
    const how = await askHow(action, { title: t("delete_document", { name }) }, libraries, chosen.dataset.library);
    if (!how) return;
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
