// The settings work without scripts; this shows what only the browser knows.

import "./theme.js";
import "./shell.js";
import { getJson, postForm } from "./api.js";
import { byId, el } from "./dom.js";
import { copyText } from "./notify.js";
import { t } from "./strings.js";

/** The voices of this browser to choose from, in place of a field for a name. */
function offerVoices() {
  const field = /** @type {HTMLInputElement | null} */ (document.querySelector("input[name=voice]"));
  const names = new Set((globalThis.speechSynthesis?.getVoices() ?? []).map((voice) => voice.name));
  if (!field || !names.size) return;
  if (field.value) names.add(field.value); // of another device
  const choices = [...names].sort().map((name) => el("option", { value: name, text: name, selected: name === field.value }));
  field.replaceWith(el("select", { id: field.id, name: "voice" }, el("option", { value: "", text: t("voice.usual") }), choices));
}

/** On a phone the tabs scroll: the open one must be seen. Not `scrollIntoView`, which moves the page too. */
function showOpenTab() {
  const tab = /** @type {HTMLElement | null} */ (document.querySelector(".settings-link[aria-current]"));
  if (tab?.parentElement) tab.parentElement.scrollLeft = tab.offsetLeft - (tab.parentElement.clientWidth - tab.offsetWidth) / 2;
}

/** A button that copies the text of the element that it names. */
function offerCopies() {
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("[data-copies]"))) {
    button.hidden = false;
    button.addEventListener("click", () => copyText(byId(button.dataset.copies ?? "").textContent ?? "", button));
  }
}

const LOOK_EVERY_MS = 1000;

/** How far a worker is with what this element stands for; the page is drawn anew when it has ended. */
async function watchJob(element) {
  const job = await getJson(element.dataset.job).catch(() => null); // perhaps the next time
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

/** Send the chosen file; what the server says against it stands below the field. */
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
