// Chunks shown where they stand, and pictures with what was read in them.

import { fetchChunk } from "./chunks.js";
import { el } from "./dom.js";
import { PageView } from "./passage.js";
import { t } from "./strings.js";

/** Buttons `[data-show-page]` name a chunk by its number, `[data-show-picture]` hold a picture; both open in the panel. */
export function watchChunks({ page, panel, root }) {
  root.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-show-page], [data-show-picture]");
    if (!button) return;
    if ("showPicture" in button.dataset) return showPicture(panel, button);
    const chunk = await fetchChunk(page.document.id, Number(button.dataset.showPage));
    if (chunk?.page) panel.openPart(t("page", { page: chunk.page }), new PageView(chunk, page.document, 0).root, button);
  });
}

function showPicture(panel, button) {
  const image = button.querySelector("img").cloneNode();
  const words = button.parentElement.querySelector(".picture-words")?.textContent;
  panel.openPart(button.getAttribute("aria-label"), el("div", { class: "picture-shown" }, image, words ? el("p", { text: words }) : null), button);
}
