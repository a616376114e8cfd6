// How many exchanges a chat keeps in mind, set in its menu.

import { get, patch } from "./api.js";
import { byId } from "./dom.js";
import { tn } from "./strings.js";
import { toast } from "./toast.js";

const dialog = byId("history-dialog");
const input = byId("history-pairs");
let chatId = null;

/** Open the dialog for a chat. */
export async function editHistory(id) {
  chatId = id;
  try {
    const chat = await get(`/chats/${id}`);
    input.value = chat.history_pairs;
  } catch (error) {
    toast(error.message, { kind: "toast-error" });
    return;
  }
  dialog.showModal();
  input.select();
}

async function save(pairs) {
  try {
    const chat = await patch(`/chats/${chatId}`, { history_pairs: pairs });
    dialog.close();
    toast(tn("history_saved", chat.history_pairs));
  } catch (error) {
    toast(error.message, { kind: "toast-error" });
  }
}

dialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (input.checkValidity()) save(Number(input.value));
});
byId("history-usual").addEventListener("click", () => save(null));
byId("history-cancel").addEventListener("click", () => dialog.close());
