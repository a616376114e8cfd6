// Files dropped anywhere on the page, pasted, or chosen with the button.

import { byId } from "./dom.js";

export function watchFiles({ onFiles, input, button }) {
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
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    show(false);
    if (event.dataTransfer.files.length) onFiles([...event.dataTransfer.files]);
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
}
