// What can be done with a document, and how far it is, where it stands on the page.

import { toAddress } from "./address.js";
import { postJson, sendDelete } from "./api.js";
import { byId, placeBeside } from "./dom.js";
import { describeStage } from "./format.js";
import { askConfirmation, showToast } from "./notify.js";
import { t } from "./strings.js";

/** What each action asks of the server. */
export const documentCalls = {
  reprocess: (id) => postJson(`/documents/${id}/reprocess`),
  pause: (id) => postJson(`/documents/${id}/pause`),
  resume: (id) => postJson(`/documents/${id}/resume`),
  cancel: (id) => postJson(`/documents/${id}/cancel`),
  delete: (id, { erase = false } = {}) => sendDelete(`/documents/${id}${erase ? "?erase=true" : ""}`),
};

/** Which actions make sense for what a row says of its document. */
export function listPossibleActions({ status, stage, indexed }) {
  const working = status === "PROCESSING";
  const paused = working && stage === "paused";
  return {
    ask: status === "COMPLETED" || indexed === "true",
    download: true,
    reprocess: !working,
    pause: working && !paused,
    resume: paused,
    cancel: working,
    delete: true,
  };
}

/** Open the menu beside the buttons `[data-document-menu]`; `onDone(action)` hears of what was done. */
export function watchDocumentMenu(onDone) {
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
    const how = action === "delete" ? await askForDeletion({ title: t("delete_document", { name }) }) : {};
    if (!how) return;
    try {
      await documentCalls[action](id, how);
      onDone(action);
    } catch (error) {
      showToast(error.message, { kind: "toast-error" });
    }
  });
}

/**
 * Ask before documents are deleted, and whether old answers shall lose what they quote from them.
 *
 * @param {{title: string, list?: string[]}} question
 * @returns {Promise<{erase: boolean} | null>}
 */
export async function askForDeletion(question) {
  const said = await askConfirmation({ ...question, text: t("delete_document_text"), yes: t("delete"), choice: t("delete_document_erase") });
  return said && { erase: said.chosen };
}

const STATUS_BADGES = { COMPLETED: "badge-accent", FAILED: "badge-danger", PROCESSING: "badge-warn" };

/** Show in `row` how far the document is; its end needs the server's own words. */
export function showProgress(row, data) {
  row.dataset.stage = data.stage;
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
