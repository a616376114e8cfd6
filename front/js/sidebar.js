// The list of chats: opening and closing it, renaming, deleting with a way back.

import { patch, remove } from "./api.js";
import { byId, el, placeBeside } from "./dom.js";
import { exportChat } from "./export_chat.js";
import { editHistory } from "./history_pairs.js";
import { t } from "./strings.js";
import { toast } from "./toast.js";

const NARROW = matchMedia("(max-width: 900px)");
const LEFT_KEY = "nura.left";
const LEFT_FOR = 1500;
const goingAway = new Map();
let menuRow = null;

/** Ask the server for the list again. */
export function refreshChats() {
  document.body.dispatchEvent(new Event("chats-changed"));
}

export function toggleSidebar() {
  const { classList } = document.body;
  if (NARROW.matches) {
    const open = classList.toggle("side-open");
    if (open) byId("sidebar").querySelector("a, button")?.focus();
    else document.querySelector(".main [data-side-toggle]")?.focus();
  } else {
    const closed = classList.toggle("side-closed");
    document.cookie = `sidebar=${closed ? "closed" : ""}; path=/; max-age=${closed ? 31536000 : 0}; samesite=lax`;
  }
  tellState();
}

export function openSidebar() {
  const { classList } = document.body;
  const hidden = NARROW.matches ? !classList.contains("side-open") : classList.contains("side-closed");
  if (hidden) toggleSidebar();
}

export function closeDrawer() {
  if (!document.body.classList.contains("side-open")) return false;
  toggleSidebar();
  return true;
}

function tellState() {
  const { classList } = document.body;
  const open = NARROW.matches ? classList.contains("side-open") : !classList.contains("side-closed");
  for (const button of document.querySelectorAll("[data-side-toggle]")) {
    button.setAttribute("aria-expanded", String(open));
  }
}

function chatOf(row) {
  return { id: row.dataset.chatId, title: row.querySelector(".side-title").textContent.trim() };
}

function rename(row) {
  const { id, title } = chatOf(row);
  const link = row.querySelector(".side-link");
  const input = el("input", { type: "text", class: "side-rename", value: title, maxlength: "200", "aria-label": t("new_name") });
  let done = false;
  const end = async (save) => {
    if (done) return;
    done = true;
    const name = input.value.trim();
    input.replaceWith(link);
    if (!save || !name || name === title) return;
    link.querySelector(".side-title").textContent = name;
    try {
      await patch(`/chats/${id}`, { title: name });
    } catch (error) {
      toast(error.message, { kind: "toast-error" });
    }
    document.dispatchEvent(new CustomEvent("chat-renamed", { detail: { id, title: name } }));
    refreshChats();
  };
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter") end(true);
    if (event.key === "Escape") {
      event.stopPropagation();
      end(false);
    }
  });
  input.addEventListener("blur", () => end(true));
  link.replaceWith(input);
  input.select();
  input.focus();
}

/** The chat leaves the list at once and the server a little later, so that it can be brought back. */
function removeSoon(row) {
  const { id, title } = chatOf(row);
  const send = (options) => {
    if (!goingAway.delete(id)) return;
    remove(`/chats/${id}`, options)
      .then(() => document.dispatchEvent(new CustomEvent("chat-deleted", { detail: { id } })))
      .catch((error) => {
        toast(error.message, { kind: "toast-error" });
        hideLeaving();
      });
  };
  goingAway.set(id, send);
  hideLeaving();
  const undo = () => {
    goingAway.delete(id);
    hideLeaving();
  };
  toast(t("chat_deleted", { title }), { action: { label: t("undo"), run: undo }, onClose: () => send() });
}

function hideLeaving() {
  for (const row of document.querySelectorAll(".side-chat")) row.hidden = goingAway.has(row.dataset.chatId);
}

/** The next page was asked for before its chats were deleted: keep them hidden until the list is fresh. */
function hideLeft() {
  const ids = JSON.parse(sessionStorage.getItem(LEFT_KEY) ?? "[]");
  sessionStorage.removeItem(LEFT_KEY);
  if (!ids.length) return;
  for (const id of ids) goingAway.set(id, () => {});
  hideLeaving();
  setTimeout(() => {
    for (const id of ids) goingAway.delete(id);
    refreshChats();
  }, LEFT_FOR);
}

function watchMenu() {
  const menu = byId("chat-menu");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-chat-menu]");
    if (!button) return;
    menuRow = button.closest(".side-chat");
    menu.showPopover({ source: button });
    placeBeside(menu, button);
    menu.querySelector("button").focus();
  });
  menu.addEventListener("click", (event) => {
    const { action, format } = event.target.closest("[data-action]")?.dataset ?? {};
    if (!action || !menuRow) return;
    menu.hidePopover();
    if (action === "rename") rename(menuRow);
    else if (action === "history") editHistory(chatOf(menuRow).id);
    else if (action === "export") exportChat(chatOf(menuRow).id, format);
    else removeSoon(menuRow);
  });
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = [...menu.querySelectorAll("button")];
    const next = (items.indexOf(document.activeElement) + step + items.length) % items.length;
    items[next].focus();
  });
}

function watchUserMenu() {
  const menu = byId("user-menu");
  const button = document.querySelector("[popovertarget=user-menu]");
  menu.addEventListener("toggle", (event) => {
    if (event.newState === "open") placeBeside(menu, button, { above: true });
  });
}

for (const button of document.querySelectorAll("[data-side-toggle]")) button.addEventListener("click", toggleSidebar);
document.querySelector("[data-side-close]").addEventListener("click", closeDrawer);
document.body.addEventListener("htmx:afterSettle", hideLeaving);
addEventListener("pagehide", () => {
  if (goingAway.size) sessionStorage.setItem(LEFT_KEY, JSON.stringify([...goingAway.keys()]));
  for (const send of [...goingAway.values()]) send({ keepalive: true });
});
hideLeft();
NARROW.addEventListener("change", tellState);
watchMenu();
watchUserMenu();
tellState();
