// Actions on one chat besides those in the sidebar: export, its choices, what it remembers, how much of its history is read.

import { getJson, getResponse, patchJson, sendDelete } from "./api.js";
import { announce, byId, el } from "./dom.js";
import { showError, showToast } from "./notify.js";
import { t, tn } from "./strings.js";

const MAX_EXPORT_MS = 150_000; // for the PDF of a long chat

/** Save the chat as `format`: md, json or pdf. */
export async function exportChat(id, format) {
  const close = showToast(t("exporting"), { stay: MAX_EXPORT_MS });
  try {
    const response = await getResponse(`/chats/${id}/export?format=${format}`);
    saveBlob(await response.blob(), readFileName(response) || `chat.${format}`);
  } catch (error) {
    showError(error);
  } finally {
    close();
  }
}

/** The file name that the server gives. */
function readFileName(response) {
  const header = response.headers.get("content-disposition") ?? "";
  const coded = /filename\*=utf-8''([^;]+)/i.exec(header)?.[1];
  return coded ? decodeURIComponent(coded) : (/filename="([^"]+)"/.exec(header)?.[1] ?? "");
}

function saveBlob(blob, name) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address)); // by then the download has begun
}

/** Store a choice with the chat; false, with a note, if that failed. A chat without an id gets it with its first question. */
export async function saveChoice(id, fields) {
  try {
    if (id) await patchJson(`/chats/${id}`, fields);
    return true;
  } catch (error) {
    showError(error);
    return false;
  }
}

/** Let a chat forget which documents it is about; false, with a note, if that failed. */
export async function forgetDocuments(id) {
  try {
    await sendDelete(`/chats/${id}/memory`);
  } catch (error) {
    showError(error);
    return false;
  }
  announce(t("memory.forgotten"));
  return true;
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
    showError(error);
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
    showError(error);
  }
}

historyDialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (historyInput.checkValidity()) saveHistoryPairs(Number(historyInput.value));
});
byId("history-usual").addEventListener("click", () => saveHistoryPairs(null));
byId("history-cancel").addEventListener("click", () => historyDialog.close());
