// Files and folders dropped anywhere on the page, pasted, or chosen with a button.

import { byId, el } from "./dom.js";
import { t } from "./strings.js";

/**
 * `onFiles(files, skipped)` gets the files, and the number of unreadable ones in folders.
 *
 * @param {{onFiles: (files: File[], skipped?: number) => void, input: any, button: any, folderInput?: any, folderButton?: any}} parts
 */
export function watchFileInput({ onFiles, input, button, folderInput, folderButton }) {
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
    const { files, skipped } = await readDroppedFiles(event.dataTransfer, input.accept);
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
    const { files, skipped } = selectReadableFiles([...folderInput.files], input.accept);
    if (files.length || skipped) onFiles(files, skipped);
    folderInput.value = "";
  });
}

const HIDDEN = /^\./;

/** What was dropped: {files, skipped}. Single files are all included, those in folders only if they match `accept`. */
export async function readDroppedFiles(transfer, accept) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  // The entries vanish when the event ends: read them before awaiting anything.
  const folders = items.map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry?.isDirectory);
  const isFile = (item) => !item.webkitGetAsEntry?.()?.isDirectory;
  const single = items.filter(isFile).map((item) => item.getAsFile());
  const found = await Promise.all(folders.map(listFilesBelow));
  const { files, skipped } = selectReadableFiles(found.flat(), accept);
  return { files: [...single.filter(Boolean), ...files], skipped };
}

/** The readable files of a folder, and the number of others; hidden ones do not count. */
export function selectReadableFiles(files, accept) {
  const endings = accept.split(",").map((ending) => ending.trim());
  const shown = files.filter((file) => !HIDDEN.test(file.name));
  const kept = shown.filter((file) => endings.some((ending) => file.name.toLowerCase().endsWith(ending)));
  return { files: kept, skipped: shown.length - kept.length };
}

async function listFilesBelow(folder) {
  const entries = await readEntries(folder.createReader());
  const found = await Promise.all(entries.map((entry) => (entry.isDirectory ? listFilesBelow(entry) : readFile(entry))));
  return found.flat().filter(Boolean);
}

/** All entries of a folder; `readEntries` returns a hundred at a time, and none at the end. */
async function readEntries(reader) {
  const found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)).catch(() => []);
    if (!some.length) return found;
    found.push(...some);
  }
}

/** The file of an entry; null if it is gone or locked by now. */
function readFile(entry) {
  return new Promise((resolve) => entry.file(resolve, () => resolve(null)));
}

/** Buttons for choosing a file in the page's language; the browser's own use that of the browser. */
export function replaceFileButtons() {
  /** @type {NodeListOf<HTMLInputElement>} */
  const inputs = document.querySelectorAll("input[type=file]:not([hidden])");
  for (const input of inputs) {
    const name = el("span", { class: "file-name" });
    const show = () => {
      name.textContent = [...(input.files ?? [])].map((file) => file.name).join(", ") || t("file.none");
    };
    input.classList.add("visually-hidden");
    input.after(el("span", { class: "file-choice" }, el("label", { class: "button", for: input.id, text: t("file.choose") }), name));
    input.addEventListener("change", show);
    show();
  }
}
