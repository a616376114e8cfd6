// The dialog for sharing a chat. The server renders its content (templates/team/share_panel.html).

import { toAddress } from "./address.js";
import { byId } from "./dom.js";
import { copyText } from "./notify.js";

const dialog = byId("share-dialog");

/** Open the dialog for a chat. */
export async function openShareDialog(id) {
  await globalThis.htmx.ajax("GET", toAddress(`/panels/chats/${id}/share`), { target: "#share-body", swap: "innerHTML" });
  dialog.showModal();
}

dialog.addEventListener("click", (event) => {
  if (event.target.closest("[data-close-share]")) dialog.close();
  const copies = event.target.closest("[data-copies-value]");
  if (copies) copyText(byId(copies.dataset.copiesValue).value, copies);
});
