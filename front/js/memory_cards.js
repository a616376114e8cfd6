// Cards below the last answer: changes to the memory that contradict it wait for a yes or no.

import { toAddress } from "./address.js";
import { getJson, postJson } from "./api.js";
import { el } from "./dom.js";
import { showError, showToast } from "./notify.js";
import { t } from "./strings.js";

/** Fetch the proposals and show them in `root`. */
export async function refreshMemoryCards(root) {
  const found = await getJson("/me/memory?status=proposed").catch(() => null);
  if (found) root.replaceChildren(...found.results.map((slot) => createCard(root, slot)));
}

function createCard(root, slot) {
  const settle = (accept) => async () => {
    try {
      await postJson(`/me/memory/${slot.id}/confirm`, { accept });
      showToast(t("memory.settled"));
    } catch (error) {
      showError(error);
    }
    await refreshMemoryCards(root);
  };
  const told = { value: [slot.value, slot.unit].filter(Boolean).join(" "), sentence: slot.sentence };
  const question = t(slot.effect === "end" ? "memory.ends" : "memory.changes", told);
  return el(
    "section",
    { class: "memory-card", "aria-label": t("memory.title") },
    el("p", { text: question }),
    slot.sentence ? el("p", { class: "memory-card-said", text: `“${slot.sentence}”` }) : null,
    el(
      "div",
      { class: "memory-card-actions" },
      el("button", { class: "button button-primary", type: "button", text: t("memory.yes"), on: { click: settle(true) } }),
      el("button", { class: "button", type: "button", text: t("memory.no"), on: { click: settle(false) } }),
      el("a", { class: "button", href: toAddress("/settings/memory"), text: t("memory.edit") }),
    ),
  );
}
