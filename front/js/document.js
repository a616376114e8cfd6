// The page of one document: live progress, its metadata, versions, what was indexed, and searches tried on it.

import "./theme.js";
import { get } from "./api.js";
import { watchChunks } from "./chunk_pages.js";
import { forgetChunks } from "./chunks.js";
import { watchMenu } from "./document_actions.js";
import { showProgress } from "./document_rows.js";
import { pageData } from "./dom.js";
import { setEscape } from "./keys.js";
import { MetadataEditor } from "./metadata_editor.js";
import { NewVersion } from "./new_version.js";
import { Panel } from "./panel.js";
import { Socket } from "./socket.js";
import { t } from "./strings.js";
import { toast } from "./toast.js";
import { watchTrial } from "./trial.js";

const LOOK_EVERY = 5000;

const page = pageData("page");
const article = document.querySelector("article[data-document-id]");
const { id } = page.document;
const socket = new Socket();
const panel = new Panel({});

/** What the server makes of the document is drawn anew; what the reader is writing stays. */
async function renew() {
  const response = await fetch(location.pathname).catch(() => null);
  if (!response?.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const part of document.querySelectorAll("[data-renew]")) {
    const newer = document.adoptNode(fresh.getElementById(part.id));
    part.replaceWith(newer);
    window.htmx.process(newer);
  }
  forgetChunks();
  Object.assign(page, JSON.parse(fresh.getElementById("page").textContent));
  const state = fresh.querySelector("article[data-document-id]");
  Object.assign(article.dataset, state.dataset);
  for (const part of article.querySelectorAll("[data-needs-index]")) part.hidden = article.dataset.indexed !== "true";
}

async function heard(data) {
  if (data.id !== id) return;
  if (data.deleted) location.assign("/documents");
  const ended = article.dataset.status !== data.status;
  article.dataset.status = data.status;
  showProgress(article, data);
  if (ended) await renew();
}

socket.addEventListener("frame", ({ detail: frame }) => frame.type === "document" && heard(frame.data));
socket.addEventListener("open", async () => heard(await get(`/documents/${id}`).catch(() => ({}))));
setInterval(async () => {
  if (!socket.isOpen && article.dataset.status === "PROCESSING") heard(await get(`/documents/${id}`).catch(() => ({})));
}, LOOK_EVERY);

watchMenu(async (action) => {
  if (action === "delete") location.assign("/documents");
  if (action === "reprocess") toast(t("reprocess_started"));
  await renew();
});
const editor = new MetadataEditor(page);
editor.addEventListener("saved", renew);
const versions = new NewVersion({ id, limitMb: page.upload_limit_mb });
versions.addEventListener("sent", renew);
watchChunks({ page, panel, root: article });
watchTrial({ page });
setEscape(() => panel.isOpen && (panel.close(), true));
