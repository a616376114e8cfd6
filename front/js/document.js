// The page of one document: live progress, versions, what was indexed.

import "./theme.js";
import { toAddress } from "./address.js";
import { fetchChunk, fetchDocument, forgetChunks, getJson } from "./api.js";
import { handOverDeletion, showProgress, watchDocumentMenu } from "./document_actions.js";
import { byId, el, readPageData, scrollWithin } from "./dom.js";
import { findFault } from "./file_check.js";
import { formatPercent } from "./format.js";
import { MetadataEditor } from "./metadata_editor.js";
import { showError, showToast } from "./notify.js";
import { Panel } from "./panel.js";
import { readPlace } from "./place.js";
import { createNote, Reader } from "./reader.js";
import { setEscapeAction } from "./shell.js";
import { Socket } from "./socket.js";
import { t } from "./strings.js";
import { watchTrial } from "./trial.js";
import { sendFile } from "./uploads.js";

/** Open chunks and pictures in the panel: buttons `[data-show-page]` have a chunk's number, `[data-show-picture]` a picture. */
export function watchChunks({ page, panel, root }) {
  root.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-show-page], [data-show-picture]");
    if (!button) return;
    if ("showPicture" in button.dataset) return showPicture(panel, button);
    const [document_, chunk] = await Promise.all([
      fetchDocument(page.document.id).catch(showError),
      fetchChunk(page.document.id, Number(button.dataset.showPage)),
    ]);
    if (document_) panel.openDocument(document_, button, { passage: chunk });
  });
}

function showPicture(panel, button) {
  const image = button.querySelector("img").cloneNode();
  const words = button.parentElement.querySelector(".picture-words")?.textContent;
  panel.openPart(button.getAttribute("aria-label"), el("div", { class: "picture-shown" }, image, words ? el("p", { text: words }) : null), button);
}

/** Uploads a new version. Events: `sent` once the server has the file. */
export class VersionUpload extends EventTarget {
  constructor({ id, limitMb }) {
    super();
    this.id = id;
    this.news = byId("version-news");
    this.button = byId("version-upload");
    const input = byId("version-input");
    this.limits = { accept: input.accept, limitMb };
    this.button.addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length) this.send(input.files[0]);
      input.value = "";
    });
    addEventListener("beforeunload", (event) => this.button.disabled && event.preventDefault());
  }

  async send(file) {
    const fault = findFault(file, this.limits);
    if (fault) return this.showNews(t(fault, { size: this.limits.limitMb }), true);
    this.button.disabled = true;
    const onProgress = (share) => this.showNews(`${t("upload.uploading")} ${formatPercent(share)}`);
    try {
      const { body } = await sendFile({ method: "PUT", path: `/documents/${this.id}/file`, file, onProgress });
      this.showNews(t(body?.duplicate ? "version.duplicate" : "version.sent"));
      this.dispatchEvent(new Event("sent"));
    } catch (error) {
      this.showNews(error.message, true);
    } finally {
      this.button.disabled = false;
    }
    return undefined;
  }

  showNews(text, isTrouble = false) {
    this.news.hidden = false;
    this.news.textContent = text;
    this.news.classList.toggle("version-trouble", isTrouble);
  }
}

/** `?page=7` opens the document there; the address follows the page in view, and Back closes the panel. */
async function keepPage(panel) {
  const address = (number) => `${location.pathname}${number ? `?page=${number}` : ""}${location.hash}`;
  let isFollowing = false;
  const follow = async () => {
    const number = readPlace().page;
    isFollowing = true;
    const document_ = number && (await fetchDocument(page.document.id).catch(showError));
    if (document_) await panel.openDocument(document_, null, { page: number });
    else panel.close();
    isFollowing = false;
  };
  panel.addEventListener("opened", () => isFollowing || history.pushState({ panel: true }, "", address(panel.page)));
  panel.addEventListener("moved", () => isFollowing || history.replaceState(history.state, "", address(panel.page)));
  panel.addEventListener("closing", (event) => {
    event.preventDefault();
    if (history.state?.panel) return history.back();
    panel.close();
    return history.replaceState(null, "", address(null));
  });
  addEventListener("popstate", follow);
  if (readPlace().page) await follow();
}

/** The text of the document, once it can be read. */
class DocumentReading {
  constructor(id) {
    this.id = id;
    this.root = byId("document-reader");
    this.reader = null;
  }

  /** Show the current state; an earlier version as long as that is in use. */
  async open() {
    const isThere = article.dataset.indexed === "true";
    this.root.hidden = !isThere;
    byId("document-unread").hidden = isThere || article.dataset.status !== "PROCESSING";
    if (!isThere) return;
    this.reader ??= new Reader(this.root, { onPlace: () => {} });
    const document_ = await getJson(`/documents/${this.id}`).catch((error) => error);
    if (document_ instanceof Error) this.reader.showNotes(createNote("circle-alert", document_.message, "note-error"));
    else await this.reader.open(document_);
  }

  /** Keep the reader in view, also when the window is resized, until somebody scrolls. */
  keepInSight() {
    const moved = new AbortController();
    const { signal } = moved;
    for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
      addEventListener(kind, () => moved.abort(), { passive: true, signal });
    }
    addEventListener("resize", () => scrollWithin(this.root, 1), { signal });
    scrollWithin(this.root, 1);
  }

  /** Mark a passage and scroll to it; in the text view also mark the words that found it. */
  async leadTo(chunk, words) {
    this.keepInSight();
    await this.reader?.setMarks([chunk], [], chunk);
    this.reader?.leadToWords(words, chunk);
  }
}

const PART = "part-"; // prefix of panel ids: else a browser would move the focus to a panel named in the address

/** Tabs that are named in the address, so that links and Back open the right one. */
export class Tabs {
  constructor(root) {
    this.tabs = [...root.querySelectorAll("[role=tab]")];
    root.addEventListener("click", (event) => {
      const tab = event.target.closest("[role=tab]");
      if (tab) this.choose(tab);
    });
    root.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = this.tabs[(this.tabs.indexOf(event.target) + step + this.tabs.length) % this.tabs.length];
      this.choose(next);
      next.focus();
    });
    addEventListener("hashchange", () => this.openFromAddress());
    this.openFromAddress();
  }

  openFromAddress() {
    this.open(location.hash.slice(1) || "read");
  }

  choose(tab) {
    const name = tab.getAttribute("aria-controls").slice(PART.length);
    history.replaceState(history.state, "", name === "read" ? location.pathname + location.search : `#${name}`);
    this.open(name);
  }

  open(name) {
    if (!this.tabs.some((tab) => tab.getAttribute("aria-controls") === PART + name)) return;
    for (const tab of this.tabs) {
      const panelName = tab.getAttribute("aria-controls");
      const isOpen = panelName === PART + name;
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
      byId(panelName).hidden = !isOpen;
    }
  }
}

const LOOK_EVERY_MS = 5000;

const page = readPageData("page");
const article = document.querySelector("article[data-document-id]");
const { id } = page.document;
const socket = new Socket();
const panel = new Panel({});

/** Redraw the parts that the server renders; what the reader is typing stays. */
async function refreshParts() {
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
  const mayChange = article.dataset.mayChange === "true";
  byId("version-upload").hidden = !mayChange;
  editor.setMayChange(mayChange);
  await reading.open();
  for (const part of article.querySelectorAll("[data-needs-index]")) part.hidden = article.dataset.indexed !== "true";
}

async function receiveDocument(data) {
  if (data.id !== id) return;
  if (data.deleted) {
    location.assign(toAddress("/documents"));
    return;
  }
  const ended = article.dataset.status !== data.status;
  article.dataset.status = data.status;
  showProgress(article, data);
  if (ended) await refreshParts();
}

/** Fetch the document's state. Readers who lost access see the page for a missing document. */
function refetchDocument() {
  return getJson(`/documents/${id}`).then(receiveDocument, (error) => error.status === 404 && location.reload());
}

/** The reader may have lost the document, or have another role in its library. */
async function checkRights() {
  await refetchDocument();
  await refreshParts();
}

socket.addEventListener("frame", ({ detail: frame }) => {
  if (frame.type === "document") receiveDocument(frame.data);
  if (frame.type === "rights.changed") checkRights();
});
let hasBeenOpen = false;
socket.addEventListener("open", () => {
  if (hasBeenOpen) checkRights(); // notices sent while the connection was down are lost
  else refetchDocument();
  hasBeenOpen = true;
});
setInterval(() => {
  if (!socket.isOpen && article.dataset.status === "PROCESSING") refetchDocument();
}, LOOK_EVERY_MS);

watchDocumentMenu(page.libraries, {
  onDelete: (ids, how) => {
    handOverDeletion(ids, how);
    location.assign(toAddress("/documents"));
  },
  onDone: async (action) => {
    if (action === "reprocess") showToast(t("reprocess_started"));
    await refreshParts();
  },
});
const editor = new MetadataEditor(page);
editor.addEventListener("saved", refreshParts);
const versions = new VersionUpload({ id, limitMb: page.upload_limit_mb });
versions.addEventListener("sent", refreshParts);
watchChunks({ page, panel, root: article });
watchTrial({ page });
const tabs = new Tabs(document.querySelector(".tabs"));
const reading = new DocumentReading(id);
const opened = reading.open();
openFoundPassage();

/** Open the passage that a search found, if one is in the address. */
async function openFoundPassage() {
  const index = new URLSearchParams(location.search).get("chunk");
  if (index === null) return;
  tabs.open("read");
  const [chunk] = await Promise.all([fetchChunk(id, Number(index)), opened]);
  if (chunk) await reading.leadTo(chunk, page.searched_words);
}

setEscapeAction(() => panel.isOpen && (panel.requestClose(), true));
keepPage(panel);
