// Shared by all pages with a sidebar: the sidebar itself, and the shortcuts.

import { toAddress } from "./address.js";
import { byId, placeBeside } from "./dom.js";
import { replaceFileButtons } from "./file_input.js";
import { togglePalette } from "./palette.js";
import "./people.js";
import { runShortcut, setShortcut, showShortcuts } from "./shortcuts.js";
import "./sidebar.js";

export { markSeen, refreshChats } from "./sidebar.js";

setShortcut("search", togglePalette);
setShortcut("new_chat", () => location.assign(document.querySelector(".side-new").getAttribute("href")));
setShortcut("sidebar", toggleSidebar);
setShortcut("write", () => byId("composer-input")?.focus());
setShortcut("copy_answer", copyLastAnswer);
setShortcut("help", showShortcuts);
document.querySelector("[data-show-shortcuts]").addEventListener("click", showShortcuts);

function copyLastAnswer() {
  /** @type {NodeListOf<HTMLElement>} */
  const buttons = document.querySelectorAll(".msg-answer [data-action=copy]");
  buttons[buttons.length - 1]?.click();
}

let escapeAction = () => false;
/** @type {(step: number) => boolean} */
let altArrowAction = () => false;

export function setEscapeAction(run) {
  escapeAction = run;
}

export function setAltArrowAction(run) {
  altArrowAction = run;
}

addEventListener("keydown", (event) => {
  if (event.isComposing || event.defaultPrevented) return;
  if (runShortcut(event)) return;
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (event.altKey && step && altArrowAction(step)) event.preventDefault();
  if (event.key !== "Escape" || document.querySelector("dialog[open], :popover-open:not(.hover-card)")) return;
  if (closeDrawer() || escapeAction()) event.preventDefault();
});

const narrowScreen = matchMedia("(max-width: 900px)");

export function toggleSidebar() {
  const { classList } = document.body;
  if (narrowScreen.matches) {
    const open = classList.toggle("side-open");
    if (open) byId("sidebar").querySelector("a, button")?.focus();
    else document.querySelector(".main [data-side-toggle]")?.focus();
  } else {
    const closed = classList.toggle("side-closed");
    document.cookie = `sidebar=${closed ? "closed" : ""}; path=${toAddress("/")}; max-age=${closed ? 31536000 : 0}; samesite=lax`;
  }
  showSidebarState();
}

export function closeDrawer() {
  if (!document.body.classList.contains("side-open")) return false;
  toggleSidebar();
  return true;
}

function showSidebarState() {
  const { classList } = document.body;
  const open = narrowScreen.matches ? classList.contains("side-open") : !classList.contains("side-closed");
  for (const button of document.querySelectorAll("[data-side-toggle]")) {
    button.setAttribute("aria-expanded", String(open));
  }
}

function watchUserMenu() {
  const menu = byId("user-menu");
  const button = document.querySelector("[popovertarget=user-menu]");
  menu.addEventListener("toggle", (event) => {
    if (event.newState === "open") placeBeside(menu, button, { above: true });
  });
}

for (const button of document.querySelectorAll("[data-side-toggle]")) button.addEventListener("click", toggleSidebar);
/** If the keyboard covers the page instead of making it smaller (iOS), end the page above it. */
function watchKeyboard() {
  const { visualViewport: seen } = globalThis;
  const { style } = document.documentElement;
  const show = () => {
    const isZoomed = seen.scale !== 1; // then the reader chose to see only a part
    style.setProperty("--covered", isZoomed ? "0px" : `${Math.max(0, innerHeight - seen.height)}px`);
    style.setProperty("--shown-top", isZoomed ? "0px" : `${seen.offsetTop}px`);
  };
  seen?.addEventListener("resize", show);
  seen?.addEventListener("scroll", show);
}

document.querySelector("[data-side-close]").addEventListener("click", closeDrawer);
narrowScreen.addEventListener("change", showSidebarState);
watchUserMenu();
watchKeyboard();
showSidebarState();
replaceFileButtons();

// The service worker shows the offline page and caches nothing else. Browsers allow it on https and on localhost only.
addEventListener("load", () => navigator.serviceWorker?.register(document.documentElement.dataset.serviceWorker));
