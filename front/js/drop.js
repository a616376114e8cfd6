// Files and folders dropped anywhere on the page, pasted, or chosen with a button.

import { byId } from "./dom.js";
import { droppedFiles, readable } from "./folders.js";

/** `onFiles(files, skipped)` hears of files, and how many of their folders cannot be read. */
export function watchFiles({ onFiles, input, button, folderInput, folderButton }) {
  const overlay = byId("drop-overlay");
  let depth = 0;
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  const show = (visible) => {
    overlay.hidden = !visible;
    if (!visible) depth = 0;
  };

  addEventListener("dragenter", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth += 1;
    show(true);
  });
  addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
  addEventListener("dragleave", (event) => {
    if (!carriesFiles(event)) return;
    depth -= 1;
    if (depth <= 0) show(false);
  });
  addEventListener("drop", async (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    show(false);
    const { files, skipped } = await droppedFiles(event.dataTransfer, input.accept);
    if (files.length || skipped) onFiles(files, skipped);
  });
  addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    const hasText = event.clipboardData?.types.includes("text/plain");
    if (!files.length || hasText) return;
    event.preventDefault();
    onFiles(files);
  });

  button?.addEventListener("click", () => input.click());
  document.addEventListener("click", (event) => event.target.closest("[data-choose-files]") && input.click());
  input?.addEventListener("change", () => {
    if (input.files.length) onFiles([...input.files]);
    input.value = "";
  });
  folderButton?.addEventListener("click", () => folderInput.click());
  folderInput?.addEventListener("change", () => {
    const { files, skipped } = readable([...folderInput.files], input.accept);
    if (files.length || skipped) onFiles(files, skipped);
    folderInput.value = "";
  });
}
