// The chats of the sidebar: their menu, folders, drag and drop, bulk actions. The server renders the list
// (templates/panels/sidebar_chats.html): each change is sent to it, then the list is fetched again.

import { toAddress } from "./address.js";
import { getJson, isSignedOut, patchJson, postJson, sendDelete } from "./api.js";
import { editHistoryPairs, exportChat } from "./chat_actions.js";
import { byId, el, placeBeside } from "./dom.js";
import { askConfirmation, noteSignedOut, sendUnlessUndone, showError, showToast } from "./notify.js";
import { openShareDialog } from "./sharing.js";
import { t, tn } from "./strings.js";

const LEFT_KEY = "nura.left";
const LEFT_FOR_MS = 1500;
const REFRESH_AFTER_MS = 100; // several changes in a row lead to one refresh
const MAX_CHATS_A_CALL = 1000;
const SHORT_ID_CHARACTERS = 8; // of a folder in the cookie, as chats/views.py
const YEAR_SECONDS = 31_536_000;
const DRAGGED = "application/x-nura-chats";

const list = byId("chat-list");
const leavingChats = new Set();
const chosen = new Set(); // ids, while several are being chosen
let isChoosing = false;
let isDragging = false;
let refreshTimer = null;
let menuRow = null;
let menuFolder = null;

/** Whether a name is being typed or a chat dragged: until then the list must not be replaced. */
const isHeld = () => isDragging || Boolean(list.querySelector(".side-rename"));

/** Fetch the list again soon, unless it is held. */
export function refreshChats() {
  refreshTimer ??= setTimeout(() => {
    refreshTimer = null;
    if (isHeld()) return;
    document.body.dispatchEvent(new Event("chats-changed"));
  }, REFRESH_AFTER_MS);
}

/** Remove the dot of a chat that the reader sees; if the tab is hidden, once it is shown. */
export function markSeen(id) {
  if (document.visibilityState === "visible") {
    // A chat deleted elsewhere leaves the list.
    patchJson(`/chats/${id}`, { unread: false }).catch((error) => (error.status === 404 ? refreshChats() : showError(error)));
  } else document.addEventListener("visibilitychange", () => markSeen(id), { once: true });
}

const findRows = (ids) => [...list.querySelectorAll(".side-chat")].filter((row) => ids.includes(row.dataset.chatId));

function readChat(row) {
  return { id: row.dataset.chatId, title: row.querySelector(".side-title").textContent.trim() };
}

/** Send changes of these chats to the server; false if it refused. */
async function changeChats(ids, changes) {
  try {
    for (let at = 0; at < ids.length; at += MAX_CHATS_A_CALL) {
      await postJson("/chats/bulk", { chat_ids: ids.slice(at, at + MAX_CHATS_A_CALL), ...changes });
    }
    return true;
  } catch (error) {
    showError(error);
    return false;
  } finally {
    refreshChats();
  }
}

// Renaming in place

function renameInPlace(holder, name, save) {
  const input = el("input", { type: "text", class: "side-rename", value: name, maxlength: "200", "aria-label": t("new_name") });
  let done = false;
  const end = async (keep, isByKey = false) => {
    if (done) return;
    done = true;
    const wanted = input.value.trim();
    input.remove();
    holder.hidden = false;
    if (isByKey) (holder.querySelector("summary") ?? holder).focus();
    if (keep && wanted && wanted !== name) {
      holder.querySelector(".side-title").textContent = wanted;
      await save(wanted).catch(showError);
    }
    refreshChats();
  };
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.isComposing) return;
    if (event.key === "Enter") {
      event.preventDefault(); // it would press what gets the focus
      end(true, true);
    }
    if (event.key === "Escape") end(false, true);
  });
  input.addEventListener("blur", () => end(true));
  holder.before(input);
  holder.hidden = true;
  input.select();
  input.focus();
}

function renameChat(row) {
  const { id, title } = readChat(row);
  renameInPlace(row.querySelector(".side-link"), title, async (name) => {
    await patchJson(`/chats/${id}`, { title: name });
    document.dispatchEvent(new CustomEvent("chat-renamed", { detail: { id, title: name } }));
  });
}

// Deleting, with undo

/** Remove chats from the list at once and from the server a little later, so that it can be undone. */
function removeChatsSoon(rows) {
  const chats = rows.map(readChat);
  const ids = chats.map((chat) => chat.id);
  const bringBack = () => {
    for (const id of ids) leavingChats.delete(id);
    hideLeavingChats();
  };
  const send = async (options) => {
    try {
      await postJson("/chats/bulk", { chat_ids: ids, deleted: true }, options);
      for (const id of ids) leavingChats.delete(id);
      for (const id of ids) document.dispatchEvent(new CustomEvent("chat-deleted", { detail: { id } }));
    } catch (error) {
      showError(error);
      bringBack();
    }
  };
  for (const id of ids) leavingChats.add(id);
  hideLeavingChats();
  const words = chats.length === 1 ? t("chat_deleted", { title: chats[0].title }) : tn("chats_deleted", chats.length);
  sendUnlessUndone(words, { send, undo: bringBack });
}

function hideLeavingChats() {
  const active = list.querySelector(".side-chat:focus-within");
  for (const row of list.querySelectorAll(".side-chat")) row.hidden = leavingChats.has(row.dataset.chatId);
  if (active?.hidden) focusFirst(findNeighbours(active));
}

/** Hide chats deleted on the previous page: this one may have been rendered before. */
function hideChatsLeftBehind() {
  const ids = JSON.parse(sessionStorage.getItem(LEFT_KEY) ?? "[]");
  sessionStorage.removeItem(LEFT_KEY);
  if (!ids.length) return;
  for (const id of ids) leavingChats.add(id);
  hideLeavingChats();
  setTimeout(() => {
    for (const id of ids) leavingChats.delete(id);
    refreshChats();
  }, LEFT_FOR_MS);
}

addEventListener("pagehide", () => {
  if (leavingChats.size) sessionStorage.setItem(LEFT_KEY, JSON.stringify([...leavingChats]));
});

// Moving chats: pinned, into a folder, into the archive

/** `place`: "pinned", "recent", or the id of a folder. */
async function moveChats(ids, place) {
  const places = { pinned: { pinned: true }, recent: { pinned: false, category_id: null } };
  const moved = await changeChats(ids, places[place] ?? { pinned: false, category_id: place });
  const folder = list.querySelector(`[data-folder-id="${CSS.escape(place)}"]`)?.dataset.name;
  if (moved) showToast(folder ? t("chats_moved", { name: folder }) : t(`chats_moved.${place}`));
}

async function archiveChats(ids, archived) {
  if (!(await changeChats(ids, { archived }))) return;
  const undo = () => changeChats(ids, { archived: !archived });
  showToast(tn(archived ? "chats_archived" : "chats_restored", ids.length), { action: { label: t("undo"), run: undo } });
}

const moveDialog = byId("move-dialog");
const movePlaces = byId("move-places");
let movingIds = [];

/** Ask where to move chats: the way into a folder without a mouse. */
async function askForPlace(ids) {
  movingIds = ids;
  let folders;
  try {
    folders = await fetchFolders();
  } catch (error) {
    showError(error);
    return;
  }
  const place = (name, id) => el("button", { type: "button", class: "menu-item", data: { place: id }, text: name });
  movePlaces.replaceChildren(place(t("no_folder"), "recent"), ...folders.map(({ name, id }) => place(name, id)));
  moveDialog.showModal();
  movePlaces.querySelector("button").focus();
}

async function fetchFolders() {
  const found = [];
  let page = 1;
  let answer;
  do {
    answer = await getJson(`/categories?page_size=100&page=${page}`);
    found.push(...answer.results);
    page += 1;
  } while (answer.next);
  return found;
}

movePlaces.addEventListener("click", (event) => {
  const { place } = event.target.closest("[data-place]")?.dataset ?? {};
  if (!place) return;
  moveDialog.close();
  moveChats(movingIds, place);
});
byId("move-cancel").addEventListener("click", () => moveDialog.close());
byId("move-new").addEventListener("click", () => {
  moveDialog.close();
  askForFolder(movingIds);
});

const folderDialog = byId("folder-dialog");
const folderName = byId("folder-name");
const folderTrouble = byId("folder-trouble");
let folderIds = [];

/** Ask for the name of a new folder; the chats are moved into it. */
function askForFolder(ids = []) {
  folderIds = ids;
  folderName.value = "";
  folderTrouble.hidden = true;
  folderDialog.showModal();
  folderName.focus();
}

folderDialog.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const folder = await postJson("/categories", { name: folderName.value.trim() });
    rememberFolder(folder.id, true);
    folderDialog.close();
    if (folderIds.length) await changeChats(folderIds, { pinned: false, category_id: folder.id });
    refreshChats();
  } catch (error) {
    folderTrouble.textContent = error.message;
    folderTrouble.hidden = false;
  }
});
byId("folder-cancel").addEventListener("click", () => folderDialog.close());

/** Note in a cookie whether a folder is open, for the server to render it so. */
function rememberFolder(id, isOpen) {
  const opened = /(?:^|; )folders=([^;]*)/.exec(document.cookie)?.[1].split(".").filter(Boolean) ?? [];
  const short = id.slice(0, SHORT_ID_CHARACTERS);
  const rest = opened.filter((one) => one !== short);
  const next = isOpen ? [...rest, short] : rest;
  document.cookie = `folders=${next.join(".")}; path=${toAddress("/")}; max-age=${next.length ? YEAR_SECONDS : 0}; samesite=lax`;
}

list.addEventListener(
  "toggle",
  (event) => {
    const folder = event.target.closest(".side-folder");
    if (folder) rememberFolder(folder.dataset.folderId, event.target.open);
  },
  true,
);

async function deleteFolder(folder) {
  const { folderId: id, name } = folder.dataset;
  if (!(await askConfirmation({ title: t("delete_folder", { name }), text: t("delete_folder_text"), yes: t("delete") }))) return;
  await sendDelete(`/categories/${id}`).catch(showError);
  rememberFolder(id, false);
  refreshChats();
}

// Drag and drop

list.addEventListener("dragstart", (event) => {
  const row = event.target.closest(".side-chat");
  if (!row) return;
  const { id, title } = readChat(row);
  isDragging = true;
  event.dataTransfer.setData(DRAGGED, JSON.stringify(isChoosing && chosen.has(id) ? [...chosen] : [id]));
  event.dataTransfer.setData("text/plain", title);
  event.dataTransfer.effectAllowed = "move";
  requestAnimationFrame(() => list.classList.add("side-dragging")); // if the list moved now, the drag would end
});
list.addEventListener("dragend", () => endDrag());
list.addEventListener("dragover", (event) => {
  const target = event.target.closest("[data-drop]");
  if (!event.dataTransfer.types.includes(DRAGGED)) return;
  showTarget(target);
  if (target) event.preventDefault();
});
list.addEventListener("dragleave", (event) => !list.contains(event.relatedTarget) && showTarget(null));
list.addEventListener("drop", (event) => {
  const target = event.target.closest("[data-drop]");
  const carried = event.dataTransfer.getData(DRAGGED);
  if (!target || !carried) return;
  event.preventDefault();
  endDrag();
  moveChats(JSON.parse(carried), target.dataset.drop);
});

function showTarget(target) {
  for (const one of list.querySelectorAll(".side-target")) one.classList.toggle("side-target", one === target);
  target?.classList.add("side-target");
}

function endDrag() {
  isDragging = false;
  list.classList.remove("side-dragging");
  showTarget(null);
}

// Bulk actions

const bulk = byId("side-bulk");

function startChoosing(row) {
  isChoosing = true;
  chosen.clear();
  if (row) chosen.add(row.dataset.chatId);
  showChosen();
  list.querySelector("[data-choose-chat]:checked")?.focus();
}

function stopChoosing() {
  isChoosing = false;
  chosen.clear();
  showChosen();
}

function showChosen() {
  bulk.hidden = !isChoosing;
  list.classList.toggle("side-choosing", isChoosing);
  for (const box of list.querySelectorAll("[data-choose-chat]")) {
    box.hidden = !isChoosing;
    box.checked = chosen.has(box.closest(".side-chat").dataset.chatId);
  }
  byId("side-bulk-words").textContent = tn("chats_chosen", chosen.size);
  for (const button of bulk.querySelectorAll("[data-needs-chosen]")) button.disabled = !chosen.size;
}

list.addEventListener("change", (event) => {
  if (!event.target.matches("[data-choose-chat]")) return;
  const { chatId } = event.target.closest(".side-chat").dataset;
  if (event.target.checked) chosen.add(chatId);
  else chosen.delete(chatId);
  showChosen();
});
list.addEventListener("click", (event) => {
  const link = event.target.closest(".side-chat .side-link");
  if (!isChoosing || !link) return;
  event.preventDefault();
  link.parentElement.querySelector("[data-choose-chat]").click();
});
bulk.addEventListener("click", (event) => {
  const { sideBulk: action } = event.target.closest("[data-side-bulk]")?.dataset ?? {};
  const ids = [...chosen];
  if (action === "all") {
    for (const row of list.querySelectorAll(".side-chat:not([hidden])")) chosen.add(row.dataset.chatId);
    showChosen();
    return;
  }
  if (action === "move") askForPlace(ids);
  if (action === "archive") archiveChats(ids, byId("chat-view").value !== "archived");
  if (action === "delete") removeChatsSoon(findRows(ids));
  if (action) stopChoosing();
});

// Menus

/** Open `menu` beside `button`; arrow keys move through it. */
function openMenu(menu, button) {
  menu.showPopover({ source: button });
  placeBeside(menu, button);
  menu.querySelector("button:not([hidden])").focus();
}

const chatMenu = byId("chat-menu");
const folderMenu = byId("folder-menu");

/** Close `menu`. The focus goes back to its button, also if the list has been replaced meanwhile. */
function closeMenu(menu) {
  menu.hidePopover();
  if (list.contains(document.activeElement)) return;
  const button = menu === chatMenu ? `${toRowSelector(menuRow)} [data-chat-menu]` : `${toFolderSelector(menuFolder)} [data-folder-menu]`;
  list.querySelector(button)?.focus();
}

const chatActions = {
  rename: renameChat,
  pin: (row) => moveChats([row.dataset.chatId], "pinned"),
  unpin: (row) => changeChats([row.dataset.chatId], { pinned: false }),
  move: (row) => askForPlace([row.dataset.chatId]),
  archive: (row) => archiveChats([row.dataset.chatId], true),
  restore: (row) => archiveChats([row.dataset.chatId], false),
  read: (row) => changeChats([row.dataset.chatId], { unread: false }),
  unread: (row) => changeChats([row.dataset.chatId], { unread: true }),
  choose: startChoosing,
  history: (row) => editHistoryPairs(row.dataset.chatId),
  share: (row) => openShareDialog(row.dataset.chatId),
  delete: (row) => removeChatsSoon([row]),
};

function fitChatMenu({ pinned, archived, unread }) {
  const is = { pinned: pinned !== undefined, archived: archived !== undefined, unread: unread !== undefined };
  const shown = {
    pin: !is.pinned && !is.archived,
    unpin: is.pinned && !is.archived,
    move: !is.archived,
    archive: !is.archived,
    restore: is.archived,
    read: is.unread,
    unread: !is.unread,
  };
  for (const [action, on] of Object.entries(shown)) chatMenu.querySelector(`[data-action=${action}]`).hidden = !on;
}

list.addEventListener("click", (event) => {
  const button = event.target.closest("[data-chat-menu], [data-folder-menu], [data-new-folder], [data-side-view]");
  if (!button) return;
  if ("newFolder" in button.dataset) askForFolder();
  else if ("sideView" in button.dataset) showView(button.dataset.sideView);
  else if ("folderMenu" in button.dataset) {
    menuFolder = button.closest(".side-folder");
    openMenu(folderMenu, button);
  } else {
    menuRow = button.closest(".side-chat");
    fitChatMenu(menuRow.dataset);
    openMenu(chatMenu, button);
  }
});

function showView(view) {
  byId("chat-view").value = view;
  stopChoosing();
  refreshChats();
}

chatMenu.addEventListener("click", (event) => {
  const { action, format } = event.target.closest("[data-action]")?.dataset ?? {};
  if (!action || !menuRow) return;
  closeMenu(chatMenu);
  if (action === "export") exportChat(menuRow.dataset.chatId, format);
  else chatActions[action](findRows([menuRow.dataset.chatId])[0] ?? menuRow); // the list may be a new one by now
});
folderMenu.addEventListener("click", (event) => {
  const { action } = event.target.closest("[data-action]")?.dataset ?? {};
  if (!action || !menuFolder) return;
  closeMenu(folderMenu);
  const { folderId: id, name } = menuFolder.dataset;
  const folder = [...list.querySelectorAll(".side-folder")].find((one) => one.dataset.folderId === id) ?? menuFolder;
  if (action === "delete") deleteFolder(folder);
  else renameInPlace(folder.querySelector("details"), name, (wanted) => patchJson(`/categories/${id}`, { name: wanted }));
});
for (const menu of [chatMenu, folderMenu]) {
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      closeMenu(menu);
      return;
    }
    const items = [...menu.querySelectorAll("button:not([hidden])")];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    items.at(to % items.length).focus();
  });
}

// Replaced by the server's list. It is as long as the reader has made it by scrolling; what is beyond its first page comes
// without content, which the rows of the former list have.

let formerRows = new Map(); // by id
let isWholeNeeded = false;
let isReplaced = false;
let focused = [];
let scrolledTo = 0;

list.addEventListener("htmx:configRequest", (event) => {
  if (event.target !== list) return;
  const { parameters } = event.detail;
  parameters.shown = list.querySelectorAll("[data-drop=recent] .side-chat, #chat-list > .side-chats > .side-chat").length;
  if (!isWholeNeeded) parameters.brief = "1";
  isWholeNeeded = false;
});

list.addEventListener("htmx:beforeSwap", (event) => {
  if (isHeld()) event.detail.shouldSwap = false; // requested before
  isReplaced = event.detail.shouldSwap;
  if (!isReplaced || event.target !== list) return;
  formerRows = new Map([...list.querySelectorAll(".side-chat")].map((row) => [row.dataset.chatId, row]));
  focused = list.contains(document.activeElement) ? describeFocus() : [];
  scrolledTo = list.scrollTop;
});

// At once, before a key is pressed that would find no focus; for each part of the new list there is another such event.
list.addEventListener("htmx:afterSwap", () => {
  if (!isReplaced) return;
  isReplaced = false;
  if (formerRows.size) fillBriefRows();
  hideLeavingChats();
  if (isChoosing) showChosen();
  if (focused.length && document.activeElement === document.body) focusFirst(focused, { preventScroll: true });
  focused = [];
});

/** Put the former rows in their places. If one is missing or has changed, the whole list is fetched. */
function fillBriefRows() {
  for (const brief of list.querySelectorAll("[data-brief]")) {
    const pairs = brief.dataset.brief.split(" ").map((pair) => pair.split(":"));
    isWholeNeeded ||= pairs.some(([id, version]) => formerRows.get(id)?.dataset.version !== version);
    brief.replaceWith(...pairs.map(([id]) => formerRows.get(id)).filter(Boolean));
  }
  formerRows = new Map();
  list.scrollTop = scrolledTo; // it was short for a moment
  if (isWholeNeeded) refreshChats();
}

document.body.addEventListener("htmx:responseError", ({ detail }) => isSignedOut(detail.xhr.status) && noteSignedOut());

const CONTROLS = [
  ".side-choose",
  ".side-more",
  "summary",
  ".side-link",
  "[data-new-folder]",
  "[data-side-view]",
];

const toRowSelector = (row) => `[data-chat-id="${row.dataset.chatId}"]`;
const toFolderSelector = (folder) => `[data-folder-id="${folder.dataset.folderId}"]`;

/** Selectors of the chats that get the focus when this one leaves the list: the next ones, then those before. */
function findNeighbours(row) {
  const rows = [...list.querySelectorAll(".side-chat")];
  const at = rows.indexOf(row);
  return [...rows.slice(at + 1), ...rows.slice(0, at).reverse()].map((one) => `${toRowSelector(one)} .side-link`);
}

/** Selectors for restoring the focus in a new list: the focused control, then its neighbours. */
function describeFocus() {
  const control = CONTROLS.find((one) => document.activeElement.matches(one));
  if (!control) return [];
  const row = document.activeElement.closest(".side-chat");
  if (row) return [`${toRowSelector(row)} ${control}`, ...findNeighbours(row)];
  const folder = document.activeElement.closest(".side-folder");
  return [folder ? `${toFolderSelector(folder)} ${control}` : control];
}

function focusFirst(selectors, options = {}) {
  const found = selectors.map((one) => list.querySelector(one)).find((one) => one?.checkVisibility());
  (found ?? list.querySelector("[data-new-folder], [data-side-view]"))?.focus(options);
}

hideChatsLeftBehind();
