// What people make for one another. The pages work without scripts; this adds what only a browser can.

import "./theme.js";
import "./shell.js";
import { ApiError, postJson } from "./api.js";
import { byId, el, readPageData } from "./dom.js";
import { showToast } from "./notify.js";
import { openShareDialog } from "./sharing.js";
import { Socket } from "./socket.js";
import { t, tn } from "./strings.js";

const page = readPageData("page");

/** What needs a script is there only with one, also in a list that was drawn anew. */
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

/** A shared chat goes from the page as soon as it may not be read any more. */
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

/** A list of what people share is drawn anew when that changes, also while the line was down. */
function followShared() {
  const socket = new Socket();
  socket.addEventListener("open", () => socket.addEventListener("open", redraw), { once: true });
  socket.addEventListener("frame", ({ detail: { type } }) => type === "shared.changed" && redraw());
}

if (page.lists_shared) followShared();

// A marker of a source opens the list that it leads into.
function showMarked() {
  const marked = location.hash ? document.getElementById(location.hash.slice(1)) : null;
  const list = marked?.closest("details");
  if (!list) return;
  list.open = true;
  marked.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", showMarked);
showMarked();

/** Take in the prompts of a file that was exported here. */
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
