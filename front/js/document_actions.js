// What can be done with a document, from the menu beside it or for many at once.

import { post, remove } from "./api.js";
import { byId, placeBeside } from "./dom.js";
import { t } from "./strings.js";
import { confirmed, toast } from "./toast.js";

/** What each action asks of the server. */
export const calls = {
  reprocess: (id) => post(`/documents/${id}/reprocess`),
  pause: (id) => post(`/documents/${id}/pause`),
  resume: (id) => post(`/documents/${id}/resume`),
  cancel: (id) => post(`/documents/${id}/cancel`),
  delete: (id) => remove(`/documents/${id}`),
};

/** Which actions make sense for what a row says of its document. */
export function possible({ status, stage, indexed }) {
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
export function watchMenu(onDone) {
  const menu = byId("document-menu");
  let chosen = null;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-document-menu]");
    if (!button) return;
    chosen = button.closest("[data-document-id]");
    const { documentId: id } = chosen.dataset;
    for (const [action, can] of Object.entries(possible(chosen.dataset))) {
      menu.querySelector(`[data-action=${action}]`).hidden = !can;
    }
    menu.querySelector("[data-action=ask]").href = `/?documents=${id}`;
    menu.querySelector("[data-action=download]").href = `/api/v1/documents/${id}/file`;
    menu.showPopover({ source: button });
    placeBeside(menu, button);
  });

  menu.addEventListener("click", async (event) => {
    const action = event.target.closest("[data-action]")?.dataset.action;
    menu.hidePopover();
    if (!calls[action]) return;
    const { documentId: id, name } = chosen.dataset;
    if (action === "delete" && !(await sureToDelete(name))) return;
    try {
      await calls[action](id);
      onDone(action);
    } catch (error) {
      toast(error.message, { kind: "toast-error" });
    }
  });
}

function sureToDelete(name) {
  return confirmed({ title: t("delete_document", { name }), text: t("delete_document_text"), yes: t("delete") });
}
