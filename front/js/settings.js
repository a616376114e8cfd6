// The settings work without scripts; this adds what only a browser can do.

import "./theme.js";
import "./shell.js";
import { getJson, postForm } from "./api.js";
import { byId, el } from "./dom.js";
import { copyText } from "./notify.js";
import { t } from "./strings.js";

/** Replace the field for the name of a voice by a choice of this browser's voices. */
function offerVoices() {
  const field = /** @type {HTMLInputElement | null} */ (document.querySelector("input[name=voice]"));
  const names = new Set((globalThis.speechSynthesis?.getVoices() ?? []).map((voice) => voice.name));
  if (!field || !names.size) return;
  if (field.value) names.add(field.value); // of another device
  const choices = [...names].sort().map((name) => el("option", { value: name, text: name, selected: name === field.value }));
  field.replaceWith(el("select", { id: field.id, name: "voice" }, el("option", { value: "", text: t("voice.usual") }), choices));
}

/** On a phone the tabs scroll: bring the open one into view. `scrollIntoView` would scroll the page, too. */
function showOpenTab() {
  const tab = /** @type {HTMLElement | null} */ (document.querySelector(".settings-link[aria-current]"));
  if (tab?.parentElement) tab.parentElement.scrollLeft = tab.offsetLeft - (tab.parentElement.clientWidth - tab.offsetWidth) / 2;
}

/** Show the buttons that copy the text of the element they name. */
function offerCopies() {
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("[data-copies]"))) {
    button.hidden = false;
    button.addEventListener("click", () => copyText(byId(button.dataset.copies ?? "").textContent ?? "", button));
  }
}

const LOOK_EVERY_MS = 1000;

/** Show the progress of the job of this element; reload the page when it has ended. */
async function watchJob(element) {
  const job = await getJson(element.dataset.job).catch(() => null); // try again later
  if (job && job.status !== "WAITING") {
    location.reload();
    return;
  }
  if (job?.total && element instanceof HTMLProgressElement) {
    element.max = job.total;
    element.value = job.done;
  }
  setTimeout(watchJob, LOOK_EVERY_MS, element);
}

/** Send the chosen file; errors are shown below the field. */
function offerImport() {
  const form = /** @type {HTMLFormElement | null} */ (document.querySelector("[data-import]"));
  if (!form) return;
  const errors = form.querySelector(".errorlist");
  const fields = form.querySelector("button");
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    fields.disabled = true;
    errors.hidden = true;
    try {
      await postForm("/me/imports", new FormData(form));
      location.reload();
    } catch (error) {
      errors.replaceChildren(el("li", { text: error.message }));
      errors.hidden = false;
      fields.disabled = false;
    }
  });
}

for (const job of document.querySelectorAll("[data-job]")) watchJob(job);
offerImport();
offerCopies();
offerVoices();
globalThis.speechSynthesis?.addEventListener?.("voiceschanged", offerVoices);
showOpenTab();
