// What all pages with a sidebar share: the list of chats with its menu, and the shortcuts.

import { getJson, getResponse, patchJson, sendDelete } from "./api.js";
import { byId, el, placeBeside } from "./dom.js";
import { showToast } from "./notify.js";
import { t, tn } from "./strings.js";

const MAX_EXPORT_MS = 150_000; // ms that the server may take for a long chat on paper

/** Save the chat as `format`: md, json or pdf. */
export async function exportChat(id, format) {
  const close = showToast(t("exporting"), { stay: MAX_EXPORT_MS });
  try {
    const response = await getResponse(`/chats/${id}/export?format=${format}`);
    saveBlob(await response.blob(), readFileName(response) || `chat.${format}`);
  } catch (error) {
    showToast(error.message, { kind: "toast-error" });
  } finally {
    close();
  }
}

/** What the server calls the file. */
function readFileName(response) {
  const told = response.headers.get("content-disposition") ?? "";
  const coded = /filename\*=utf-8''([^;]+)/i.exec(told)?.[1];
  return coded ? decodeURIComponent(coded) : (/filename="([^"]+)"/.exec(told)?.[1] ?? "");
}

function saveBlob(blob, name) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address)); // the download has begun by then
}

const historyDialog = byId("history-dialog");
const historyInput = byId("history-pairs");
let historyChatId = null;

/** Open the dialog for a chat. */
export async function editHistoryPairs(id) {
  historyChatId = id;
  try {
    const chat = await getJson(`/chats/${id}`);
    historyInput.value = chat.history_pairs;
  } catch (error) {
    showToast(error.message, { kind: "toast-error" });
    return;
  }
  historyDialog.showModal();
  historyInput.select();
}

async function saveHistoryPairs(pairs) {
  try {
    const chat = await patchJson(`/chats/${historyChatId}`, { history_pairs: pairs });
    historyDialog.close();
    showToast(tn("history_saved", chat.history_pairs));
  } catch (error) {
    showToast(error.message, { kind: "toast-error" });
  }
}

historyDialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (historyInput.checkValidity()) saveHistoryPairs(Number(historyInput.value));
});
byId("history-usual").addEventListener("click", () => saveHistoryPairs(null));
byId("history-cancel").addEventListener("click", () => historyDialog.close());

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

for (const node of document.querySelectorAll("[data-mod-key]")) {
  if (isMac) node.textContent = node.textContent.replace("Ctrl", "⌘");
}

/** Actions by key: with Ctrl or Cmd (`mod`), with Shift as well (`modShift`), alone (`plain`). */
const shortcuts = {
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
  const mod = isMac ? event.metaKey : event.ctrlKey;
  const action = mod && !event.altKey && shortcuts[event.shiftKey ? "modShift" : "mod"][event.key.toLowerCase()];
  if (action) {
    event.preventDefault();
    action();
    return;
  }
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (event.altKey && step && altArrowAction(step)) event.preventDefault();
  if (event.key !== "Escape" || document.querySelector("dialog[open], :popover-open:not(.hover-card)")) return;
  if (event.shiftKey) byId("composer-input")?.focus();
  else if (closeDrawer() || escapeAction()) event.preventDefault();
});

const narrowScreen = matchMedia("(max-width: 900px)");
const LEFT_KEY = "nura.left";
const LEFT_FOR_MS = 1500;
const leavingChats = new Map();
let menuRow = null;

/** Ask the server for the list again. */
export function refreshChats() {
  document.body.dispatchEvent(new Event("chats-changed"));
}

export function toggleSidebar() {
  const { classList } = document.body;
  if (narrowScreen.matches) {
    const open = classList.toggle("side-open");
    if (open) byId("sidebar").querySelector("a, button")?.focus();
    else document.querySelector(".main [data-side-toggle]")?.focus();
  } else {
    const closed = classList.toggle("side-closed");
    document.cookie = `sidebar=${closed ? "closed" : ""}; path=/; max-age=${closed ? 31536000 : 0}; samesite=lax`;
  }
  showSidebarState();
}

export function openSidebar() {
  const { classList } = document.body;
  const hidden = narrowScreen.matches ? !classList.contains("side-open") : classList.contains("side-closed");
  if (hidden) toggleSidebar();
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

function readChat(row) {
  return { id: row.dataset.chatId, title: row.querySelector(".side-title").textContent.trim() };
}

function renameChat(row) {
  const { id, title } = readChat(row);
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
      await patchJson(`/chats/${id}`, { title: name });
    } catch (error) {
      showToast(error.message, { kind: "toast-error" });
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
function removeChatSoon(row) {
  const { id, title } = readChat(row);
  const send = (options) => {
    if (!leavingChats.delete(id)) return;
    sendDelete(`/chats/${id}`, options)
      .then(() => document.dispatchEvent(new CustomEvent("chat-deleted", { detail: { id } })))
      .catch((error) => {
        showToast(error.message, { kind: "toast-error" });
        hideLeavingChats();
      });
  };
  leavingChats.set(id, send);
  hideLeavingChats();
  const undo = () => {
    leavingChats.delete(id);
    hideLeavingChats();
  };
  showToast(t("chat_deleted", { title }), { action: { label: t("undo"), run: undo }, onClose: () => send() });
}

function hideLeavingChats() {
  for (const row of document.querySelectorAll(".side-chat")) row.hidden = leavingChats.has(row.dataset.chatId);
}

/** The next page was asked for before its chats were deleted: keep them hidden until the list is fresh. */
function hideChatsLeftBehind() {
  const ids = JSON.parse(sessionStorage.getItem(LEFT_KEY) ?? "[]");
  sessionStorage.removeItem(LEFT_KEY);
  if (!ids.length) return;
  for (const id of ids) leavingChats.set(id, () => {});
  hideLeavingChats();
  setTimeout(() => {
    for (const id of ids) leavingChats.delete(id);
    refreshChats();
  }, LEFT_FOR_MS);
}

function watchChatMenu() {
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
    if (action === "rename") renameChat(menuRow);
    else if (action === "history") editHistoryPairs(readChat(menuRow).id);
    else if (action === "export") exportChat(readChat(menuRow).id, format);
    else removeChatSoon(menuRow);
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
document.body.addEventListener("htmx:afterSettle", hideLeavingChats);
addEventListener("pagehide", () => {
  if (leavingChats.size) sessionStorage.setItem(LEFT_KEY, JSON.stringify([...leavingChats.keys()]));
  for (const send of [...leavingChats.values()]) send({ keepalive: true });
});
hideChatsLeftBehind();
narrowScreen.addEventListener("change", showSidebarState);
watchChatMenu();
watchUserMenu();
showSidebarState();
