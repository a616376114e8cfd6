// A chat as a file of the reader's.

import { getResponse } from "./api.js";
import { el } from "./dom.js";
import { t } from "./strings.js";
import { toast } from "./toast.js";

const LONGEST = 150_000; // ms that the server may take for a long chat on paper

/** Save the chat as `format`: md, json or pdf. */
export async function exportChat(id, format) {
  const close = toast(t("exporting"), { stay: LONGEST });
  try {
    const response = await getResponse(`/chats/${id}/export?format=${format}`);
    save(await response.blob(), nameOf(response) || `chat.${format}`);
  } catch (error) {
    toast(error.message, { kind: "toast-error" });
  } finally {
    close();
  }
}

/** What the server calls the file. */
function nameOf(response) {
  const told = response.headers.get("content-disposition") ?? "";
  const coded = /filename\*=utf-8''([^;]+)/i.exec(told)?.[1];
  return coded ? decodeURIComponent(coded) : (/filename="([^"]+)"/.exec(told)?.[1] ?? "");
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address)); // the download has begun by then
}
