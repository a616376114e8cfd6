// Short notes at the foot of the page, with at most one thing to do about them.

import { byId, el, iconButton } from "./dom.js";
import { t } from "./strings.js";

const STAY = 5000;

/** Show a note. `action`: {label, run}. `onClose` runs once it is gone without the action. */
export function toast(text, { action, kind = "", stay = action ? 7000 : STAY, onClose } = {}) {
  let done = false;
  const close = (byAction) => {
    if (done) return;
    done = true;
    clearTimeout(timer);
    node.remove();
    if (!byAction) onClose?.();
  };
  const node = el("div", { class: `toast ${kind}` }, el("span", { text }));
  if (action) {
    const run = () => {
      close(true);
      action.run();
    };
    node.append(el("button", { type: "button", class: "toast-action", text: action.label, on: { click: run } }));
  }
  node.append(iconButton("x", t("close"), { on: { click: () => close(false) } }));
  byId("toasts").append(node);
  const timer = setTimeout(() => close(false), stay);
  return close;
}

/** A question before something that cannot be taken back. */
export function confirmed({ title, text, yes }) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
  });
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyTheOldWay(text);
  }
  const use = button?.querySelector("use");
  if (!use) return;
  const before = use.getAttribute("href");
  use.setAttribute("href", `${document.documentElement.dataset.icons}#check`);
  setTimeout(() => use.setAttribute("href", before), 1600);
}

// Pages on plain http have no clipboard interface.
function copyTheOldWay(text) {
  const area = el("textarea", { class: "visually-hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
