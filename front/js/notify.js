// Toasts, confirmation dialogs, and the clipboard.

import { toAddress } from "./address.js";
import { byId, createIconButton, el } from "./dom.js";
import { t } from "./strings.js";

const TOAST_MS = 5000;
const SIGNED_OUT = 401;

/**
 * Show a note for `stay` ms. `onClose` runs once it is gone without the action.
 *
 * @param {string} text
 * @param {{action?: {label: string, run: () => void}, kind?: string, stay?: number, onClose?: () => void}} [options]
 */
export function showToast(text, { action, kind = "", stay = action ? 7000 : TOAST_MS, onClose } = {}) {
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
  node.append(createIconButton("x", t("close"), { on: { click: () => close(false) } }));
  byId("toasts").append(node);
  const timer = Number.isFinite(stay) ? setTimeout(() => close(false), stay) : undefined;
  return close;
}

const undoableSends = new Set();

/**
 * Show `text` with a button to undo. Unless that is pressed, `send` runs once the note is gone, or when the page is left.
 *
 * @param {string} text
 * @param {{send: (options?: {keepalive: boolean}) => Promise<unknown>, undo: () => void}} actions
 * @returns {() => void} a function that takes the note away without sending
 */
export function sendUnlessUndone(text, { send, undo }) {
  const sendOnce = (options) => {
    if (!undoableSends.delete(sendOnce)) return undefined;
    close(true);
    return send(options);
  };
  const run = () => undoableSends.delete(sendOnce) && undo();
  undoableSends.add(sendOnce);
  addEventListener("pagehide", () => sendOnce({ keepalive: true }), { once: true });
  const close = showToast(text, { action: { label: t("undo"), run }, onClose: () => sendOnce() });
  return () => {
    undoableSends.delete(sendOnce);
    close(true);
  };
}

/** Send at once what could still be undone. */
export async function sendUndoable() {
  await Promise.all([...undoableSends].map((send) => send()));
}

let isReloadOffered = false;

/** Offer once to reload a page that comes from another release than the server's. */
export function noteRelease(release) {
  if (isReloadOffered || release === document.documentElement.dataset.release) return;
  isReloadOffered = true;
  const action = { label: t("release.reload"), run: () => location.reload() };
  showToast(t("release.new"), { action, stay: Infinity });
}

let isSignInOffered = false;

/** Offer once to sign in and return here. */
export function noteSignedOut() {
  if (isSignInOffered) return;
  isSignInOffered = true;
  const next = encodeURIComponent(location.pathname + location.search);
  const action = { label: t("sign_in"), run: () => location.assign(toAddress(`/accounts/login/?next=${next}`)) };
  showToast(t("signed_out"), { kind: "toast-error", action, stay: Infinity, onClose: () => (isSignInOffered = false) });
}

/**
 * Show an error for `stay` ms. If the user is signed out, the offer to sign in is shown instead.
 *
 * @param {Error & {status?: number}} error
 * @param {{stay?: number}} [options]
 */
export function showError(error, { stay } = {}) {
  if (error.status !== SIGNED_OUT) showToast(error.message, { kind: "toast-error", stay });
}

/**
 * Ask before something that cannot be undone. `list` names what it is about, `choice` is an additional option.
 *
 * @param {{title: string, text: string, yes: string, list?: string[], choice?: string}} question
 * @returns {Promise<{chosen: boolean} | null>} null: no; `chosen`: with the additional option
 */
export function askConfirmation({ title, text, yes, list = [], choice = "" }) {
  const dialog = byId("confirm");
  byId("confirm-list").replaceChildren(...list.map((line) => el("li", { text: line })));
  byId("confirm-list").hidden = !list.length;
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  const box = byId("confirm-choice");
  box.checked = false;
  box.parentElement.hidden = !choice;
  byId("confirm-choice-text").textContent = choice;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => answer(dialog.returnValue === "yes" ? { chosen: box.checked } : null), { once: true });
  });
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text);
  }
  const use = button?.querySelector("use");
  if (!use) return;
  const before = use.getAttribute("href");
  use.setAttribute("href", `${document.documentElement.dataset.icons}#check`);
  setTimeout(() => use.setAttribute("href", before), 1600);
}

// Pages on plain http have no clipboard API.
function copyBySelection(text) {
  const area = el("textarea", { class: "visually-hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
