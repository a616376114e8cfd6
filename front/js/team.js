// Shared chats, assistants and prompts. The pages work without scripts; this adds what only a browser can do.

import "./theme.js";
import "./shell.js";
import { ApiError, postJson } from "./api.js";
import { byId, el, readPageData } from "./dom.js";
import { showToast } from "./notify.js";
import { openShareDialog } from "./sharing.js";
import { Socket } from "./socket.js";
import { t, tn } from "./strings.js";

const page = readPageData("page");

/** Show the buttons that need scripts, also after a list was redrawn. */
function showButtons() {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-share-chat], [data-import-prompts]"))) {
    button.hidden = false;
  }
}

showButtons();
document.body.addEventListener("htmx:afterSettle", showButtons);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-share-chat], [data-import-prompts]");
  if (!button) return;
  if ("shareChat" in button.dataset) openShareDialog(button.dataset.shareChat);
  else choosePrompts();
});

const redraw = () => document.body.dispatchEvent(new Event("shared-changed"));

/** Remove a shared chat from the page as soon as it may no longer be read. */
function watchShare(id) {
  const socket = new Socket();
  const end = () => {
    byId("shared").remove();
    byId("share-ended").hidden = false;
  };
  socket.addEventListener("open", () => socket.send({ type: "watch", share_id: id }));
  socket.addEventListener("signedout", end);
  socket.addEventListener("frame", ({ detail: { type, data } }) => {
    if (type === "share.ended" || (type === "error" && data.in_reply_to === "watch" && data.code === "not_found")) end();
  });
}

if (page.share_id) watchShare(page.share_id);

/** Redraw a list of what is shared when it changes, also after the connection was down. */
function followShared() {
  const socket = new Socket();
  socket.addEventListener("open", () => socket.addEventListener("open", redraw), { once: true });
  socket.addEventListener("frame", ({ detail: { type } }) => type === "shared.changed" && redraw());
}

if (page.lists_shared) followShared();

// The marker of a source opens the list that contains it.
function showMarkedPart() {
  const marked = location.hash ? document.getElementById(location.hash.slice(1)) : null;
  const list = marked?.closest("details");
  if (!list) return;
  list.open = true;
  marked.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", showMarkedPart);
showMarkedPart();

/** Import the prompts of an exported file. */
function choosePrompts() {
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "file", accept: "application/json" }));
  input.addEventListener("change", async () => {
    try {
      const { prompts } = JSON.parse(await input.files[0].text());
      const { count } = await postJson("/prompts/import", { prompts });
      showToast(tn("prompts.taken", count));
      if (count) redraw();
    } catch (error) {
      showToast(error instanceof ApiError ? error.message : t("failed"), { kind: "toast-error" });
    }
  });
  input.click();
}
