// Keyboard shortcuts of all pages. The reader can change them or switch them off.

import { byId, el } from "./dom.js";
import { t } from "./strings.js";

const KEPT = "nura.shortcuts";
export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

/** The actions with their default keys; "Mod" is Ctrl, or ⌘ on a Mac. */
const USUAL = {
  search: "Mod+K",
  new_chat: "Mod+Shift+O",
  sidebar: "Mod+Shift+S",
  write: "Shift+Escape",
  copy_answer: "Mod+Shift+C",
  help: "Mod+/",
};
const SHOWN = { Mod: isMac ? "⌘" : "Ctrl", Shift: isMac ? "⇧" : "Shift", Alt: isMac ? "⌥" : "Alt", Escape: "Esc" };
const MODIFIERS = new Set(["Control", "Meta", "Shift", "Alt"]);

const dialog = byId("shortcuts");
const rows = byId("shortcut-rows");
const trouble = byId("shortcut-trouble");
const isOn = byId("shortcuts-on");
const actions = {};
let recording = null;
let kept = loadShortcuts();

function loadShortcuts() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return { off: found.off === true, keys: typeof found.keys === "object" && found.keys ? found.keys : {} };
  } catch {
    return { off: false, keys: {} }; // written by something else
  }
}

function saveShortcuts() {
  localStorage.setItem(KEPT, JSON.stringify(kept));
  draw();
}

const getKeys = (action) => kept.keys[action] ?? USUAL[action];

/** The keys of an event in the stored form; empty while only modifiers are down. */
function readKeys(event) {
  if (MODIFIERS.has(event.key)) return "";
  const held = { Mod: isMac ? event.metaKey : event.ctrlKey, Alt: event.altKey, Shift: event.shiftKey };
  // the key, not its letter: with a Korean keyboard K types ㅏ
  const letter = /^Key([A-Z])$/.exec(event.code)?.[1] ?? (event.code === "Slash" ? "/" : event.key);
  return [...Object.keys(held).filter((name) => held[name]), letter].join("+");
}

export const showKeys = (keys) => keys.split("+").map((one) => SHOWN[one] ?? one).join(" ");

/** Set what the keys of `action` do on this page. */
export function setShortcut(action, run) {
  actions[action] = run;
}

/** Run the action of the event's keys; false if they have none. */
export function runShortcut(event) {
  if (kept.off || recording || event.isComposing) return false;
  const keys = readKeys(event);
  const action = Object.keys(USUAL).find((one) => getKeys(one) === keys);
  if (!action || !actions[action] || (action !== "search" && document.querySelector("dialog[open]"))) return false;
  event.preventDefault();
  actions[action]();
  return true;
}

export function showShortcuts() {
  draw();
  dialog.showModal();
}

function draw() {
  isOn.checked = !kept.off;
  trouble.textContent = "";
  for (const node of document.querySelectorAll("[data-keys-of]")) node.textContent = showKeys(getKeys(node.dataset.keysOf));
  rows.replaceChildren(...Object.keys(USUAL).flatMap((action) => createRow(action)));
}

function createRow(action) {
  const isRecording = recording === action;
  const words = isRecording ? t("shortcut.press") : showKeys(getKeys(action));
  const name = t(`shortcut.${action}`);
  const button = el("button", {
    type: "button",
    class: "shortcut-keys",
    text: words,
    "aria-label": isRecording ? words : t("shortcut.change", { name, keys: words }),
    data: { action },
    on: { click: () => record(action) },
  });
  return [el("dt", { text: name }), el("dd", {}, button)];
}

function record(action) {
  recording = action;
  draw();
  rows.querySelector(`[data-action=${action}]`).focus();
}

function endRecording(action) {
  recording = null;
  draw();
  rows.querySelector(`[data-action=${action}]`).focus();
}

dialog.addEventListener("keydown", (event) => {
  if (!recording) return;
  event.preventDefault();
  event.stopPropagation();
  const action = recording;
  const keys = readKeys(event);
  if (!keys) return;
  if (keys === "Escape") {
    endRecording(action);
    return;
  }
  const other = Object.keys(USUAL).find((one) => one !== action && getKeys(one) === keys);
  const isPlain = !/Mod|Alt|Escape|^F\d+$/.test(keys);
  endRecording(action);
  if (other) trouble.textContent = t("shortcut.taken", { keys: showKeys(keys), name: t(`shortcut.${other}`) });
  else if (isPlain) trouble.textContent = t("shortcut.plain");
  else {
    kept.keys[action] = keys;
    saveShortcuts();
    rows.querySelector(`[data-action=${action}]`).focus();
  }
});
dialog.addEventListener("cancel", (event) => recording && event.preventDefault());
dialog.addEventListener("close", () => {
  recording = null;
});
isOn.addEventListener("change", () => {
  kept.off = !isOn.checked;
  saveShortcuts();
});
byId("shortcuts-usual").addEventListener("click", () => {
  kept = { off: false, keys: {} };
  saveShortcuts();
});
addEventListener("storage", (event) => {
  if (event.key !== KEPT) return;
  kept = loadShortcuts();
  draw();
});
draw();
