// Keyboard shortcuts of every page; a page may add what Escape does.

import { byId } from "./dom.js";
import { closeDrawer, openSidebar, toggleSidebar } from "./sidebar.js";

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

for (const node of document.querySelectorAll("[data-mod-key]")) {
  if (isMac) node.textContent = node.textContent.replace("Ctrl", "⌘");
}

/** Actions by key: with Ctrl or Cmd (`mod`), with Shift as well (`modShift`), alone (`plain`). */
const actions = {
  mod: {
    k: () => {
      openSidebar();
      byId("chat-search").focus();
      byId("chat-search").select();
    },
    "/": () => byId("shortcuts").showModal(),
  },
  modShift: {
    o: () => location.assign("/"),
    s: () => toggleSidebar(),
  },
};

let onEscape = () => false;
let onAltArrow = () => false;

export function setEscape(run) {
  onEscape = run;
}

export function setAltArrow(run) {
  onAltArrow = run;
}

addEventListener("keydown", (event) => {
  if (event.isComposing || event.defaultPrevented) return;
  const mod = isMac ? event.metaKey : event.ctrlKey;
  const action = mod && !event.altKey && actions[event.shiftKey ? "modShift" : "mod"][event.key.toLowerCase()];
  if (action) {
    event.preventDefault();
    action();
    return;
  }
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (event.altKey && step && onAltArrow(step)) event.preventDefault();
  if (event.key !== "Escape" || document.querySelector("dialog[open], :popover-open:not(.hover-card)")) return;
  if (event.shiftKey) byId("composer-input")?.focus();
  else if (closeDrawer() || onEscape()) event.preventDefault();
});
