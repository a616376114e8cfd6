// The chat page: creates its parts and connects them.

import "./theme.js";
import { toAddress } from "./address.js";
import { forgetChunks, getJson, postJson, sendDelete } from "./api.js";
import { exportChat } from "./chat_actions.js";
import { Composer } from "./composer.js";
import { Addressee } from "./addressee.js";
import { ComposerMenu, listCommands, selectPlace } from "./composer_menu.js";
import { ConnectionNote } from "./connection.js";
import { ContextView } from "./context.js";
import { byId, readPageData } from "./dom.js";
import { watchFileInput } from "./file_input.js";
import { readSearchedWords, highlightWords } from "./found.js";
import { refreshMemoryCards } from "./memory_cards.js";
import { noteSignedOut, showError, showToast } from "./notify.js";
import { ModelPicker, ToolPicker } from "./models.js";
import { Panel } from "./panel.js";
import { Place, readPlace } from "./place.js";
import { Runs } from "./runs.js";
import { Scope } from "./scope.js";
import { openShareDialog } from "./sharing.js";
import { markSeen, refreshChats, setAltArrowAction, setEscapeAction } from "./shell.js";
import { Socket } from "./socket.js";
import { stopReading } from "./speech.js";
import { t } from "./strings.js";
import { Thread } from "./thread.js";
import { explainAnswer } from "./trace.js";
import { Uploads } from "./uploads.js";

const page = readPageData("page");
let chatId = page.chat?.id ?? null;

const socket = new Socket();
const runs = new Runs(socket);
const uploads = new Uploads({ root: byId("uploads"), accept: byId("file-input").accept, limitMb: page.upload_limit_mb, isLive: () => socket.isOpen });
const scope = new Scope({
  selected: page.selected,
  chatDocuments: page.chat?.documents ?? [],
  libraries: page.libraries,
  gone: page.chat?.documents_gone ?? 0,
  total: page.documents_total,
  uploads,
});
const composer = new Composer({ chatId, limit: page.content_limit, blockers: findBlocker });
const models = new ModelPicker({ models: page.models, chosen: page.chat?.model, getChatId: () => chatId });
const addressee = new Addressee({ kept: page.assistant, getChatId: () => chatId });
const tools = new ToolPicker({ servers: page.tools, chosen: page.chat?.tool_ids, getChatId: () => chatId });
const panel = new Panel({ askOnly });
const connection = new ConnectionNote(socket, runs);
const thread = new Thread({
  runs,
  getDocument: (id) => scope.getDocument(id),
  hooks: {
    limit: page.content_limit,
    administration: page.administration,
    openSource: (...what) => panel.open(...what),
    explain: (message, opener, part) => explainAnswer(panel, message, opener, thread.hooks, part),
    setText: (text) => composer.setText(text),
    listOtherModels: (message) => models.listOthers(message),
    getModelName: (id) => models.getName(id),
    continueWith: (message) => {
      if (models.getName(message.model)) models.choose(message.model);
      composer.input.focus({ preventScroll: true });
    },
    send: (content, documents) => findBlocker() || ask(content, documents),
  },
});
const place = new Place({ thread, panel, getChatId: () => chatId });

const context = new ContextView(panel, {
  getBranch: () => (thread.runId ? "" : (thread.parentId ?? "")),
  goTo: showMessage,
  refreshMemory: () => scope.refreshMemory(chatId),
});
byId("context-open").addEventListener("click", (event) => context.open(chatId, event.currentTarget));
byId("share-open").addEventListener("click", () => openShareDialog(chatId));

/** Go to an answer of this chat, even if it is on another branch or not loaded. */
function showMessage(id) {
  if (matchMedia("(max-width: 760px)").matches) panel.requestClose();
  if (!thread.goTo({ message: id })) location.assign(toAddress(`/c/${chatId}?message=${id}`));
}

function findBlocker() {
  if (uploads.working.length) return "documents";
  return thread?.runId || runs.outbox.size ? "answer" : "";
}

function askOnly(source) {
  scope.selectOnly({ id: source.document_id, name: source.document_name });
  if (matchMedia("(max-width: 760px)").matches) panel.requestClose();
  composer.input.focus({ preventScroll: true });
}

// Asking

composer.addEventListener("send", ({ detail: content }) => ask(content));

/** Send a question; `documents` are the ones it names. */
async function ask(content, documents = listChosenDocuments()) {
  if (!chatId && byId("temporary")?.checked && !(await beginTemporaryChat(content))) return;
  byId("welcome")?.remove();
  document.body.classList.remove("first-screen");
  const pending = runs.ask({
    chat_id: chatId,
    parent_id: thread.parentId,
    content,
    document_ids: listIds(documents.filter((one) => !one.is_library)),
    library_ids: listIds(documents.filter((one) => one.is_library)),
    topic: scope.takeTopic(),
    model: models.value,
    assistant_id: addressee.useForQuestion(),
    tool_ids: tools.ids,
  });
  connection.watchPending(pending);
  thread.showPending(pending, documents);
  composer.setBusy(Boolean(findBlocker()));
}

const listIds = (chosen) => (chosen.length ? chosen.map((one) => one.id) : null);

/** Create a temporary chat before its first question; false if that failed. */
async function beginTemporaryChat(content) {
  composer.setBusy(true);
  try {
    const chat = await postJson("/chats", { temporary: true, model: models.value, assistant_id: addressee.id, tool_ids: tools.ids });
    enterChat(chat.id, content);
    return true;
  } catch (error) {
    composer.restoreRefused(content, error.message);
    return false;
  } finally {
    composer.setBusy(Boolean(findBlocker()));
  }
}

function listChosenDocuments() {
  const known = (id) => scope.getDocument(id) ?? uploads.completed.find((one) => one.id === id);
  return scope.ids.map(known).filter(Boolean);
}

composer.addEventListener("stop", () => thread.runId && runs.stop(thread.runId));

runs.addEventListener("acknowledged", ({ detail: { pending, frame } }) => {
  thread.acceptPending(pending, frame);
  composer.markSent();
  const id = frame.chat_id ?? frame.data.user_message.chat_id;
  if (!chatId) enterChat(id, pending.content);
  updateScope(id);
  refreshChats();
});

runs.addEventListener("refused", async ({ detail: { pending, error } }) => {
  thread.removePending(pending);
  if (pending.topic === "new") scope.beginTopic();
  composer.restoreRefused(pending.content, error.message ?? t("failed"));
  composer.setBusy(Boolean(findBlocker()));
  if (error.code === "not_found" && (await isChatGone())) composer.showNote(t("chat_gone"));
});

/** Whether this chat was deleted meanwhile; a 404 may also mean something else named in the question. */
async function isChatGone() {
  return Boolean(chatId) && getJson(`/chats/${chatId}`).then(() => false, (failure) => failure.status === 404);
}

thread.addEventListener("busy", () => {
  composer.setBusy(Boolean(thread.runId));
  if (!thread.runId) scope.refreshMemory(chatId);
  if (!thread.runId) context.refresh();
  if (!thread.runId) refreshMemoryCards(byId("memory-cards"));
  refreshChats();
});

if (chatId) refreshMemoryCards(byId("memory-cards"));

function enterChat(id, title) {
  chatId = id;
  composer.openChat(id);
  localStorage.removeItem("nura.draft.new");
  composer.saveDraft();
  history.replaceState(null, "", toAddress(`/c/${id}`));
  byId("chat-current").value = id;
  byId("context-open").hidden = false;
  byId("share-open").hidden = false;
  /** @type {NodeListOf<HTMLInputElement>} */
  const nexts = document.querySelectorAll("input[name=next]");
  for (const next of nexts) next.value = location.pathname;
  showTitle(title.length > 50 ? `${title.slice(0, 49).trimEnd()}…` : title);
}

function showTitle(title) {
  byId("chat-title").textContent = title;
  document.title = `${title} · Nura`;
}

async function updateScope(id) {
  const chat = await getJson(`/chats/${id}`).catch(() => null);
  const ids = [...(chat?.library_ids ?? []), ...(chat?.document_ids ?? [])];
  scope.noteDocuments(uploads.completed);
  const known = ids.map((one) => scope.getDocument(one)).filter(Boolean);
  scope.settleAfterSending(known.length === ids.length ? known : null);
}

// Events from the server

/** Hide what the reader may no longer read, and drop it from this page's caches. */
function hideUnreadable() {
  forgetChunks();
  thread.hideUnreadable().catch(showError);
}

thread.addEventListener("hidden", ({ detail: message }) => panel.message?.id === message.id && panel.requestClose());

runs.addEventListener("notice", ({ detail: frame }) => {
  if (frame.type === "document") {
    uploads.update(frame.data);
    if (frame.data.deleted) scope.remove(frame.data.id);
    if (frame.data.status !== "PROCESSING" || frame.data.deleted) {
      scope.recount();
      refreshWelcome();
    }
  }
  if (frame.type === "rights.changed") {
    hideUnreadable();
    scope.removeUnreadable();
  }
  if (frame.type === "shared.changed") menu.forgetLists();
  if (frame.type === "title" && frame.chat_id === chatId) showTitle(frame.data.title);
  if (frame.type === "follow_ups" && frame.data.chat_id === chatId) thread.showFollowUps(frame.data.message_id, frame.data.questions);
  if (frame.type === "chat") {
    refreshChats();
    if (frame.data.id === chatId) {
      if (frame.data.unread) markSeen(chatId);
      if (frame.data.title) showTitle(frame.data.title);
      if (!runs.outbox.size) thread.catchUp();
      if (!thread.runId) scope.refreshMemory(chatId);
      if (!thread.runId) context.refresh();
    }
  }
});

runs.addEventListener("event", ({ detail: frame }) => {
  if (frame.type === "title" && frame.chat_id === chatId) showTitle(frame.data.title ?? frame.data);
});

uploads.addEventListener("changed", () => composer.sendQueued());

uploads.addEventListener("completed", refreshWelcome);

/** Once there is a document, the welcome screen suggests questions. */
async function refreshWelcome() {
  if (!document.querySelector("#welcome [data-choose-files]")) return;
  const response = await fetch(toAddress("/")).catch(() => null);
  if (!response?.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("welcome");
  if (fresh) byId("welcome")?.replaceWith(document.adoptNode(fresh));
}

let hasBeenOpen = false;
socket.addEventListener("open", () => {
  if (hasBeenOpen || document.querySelector(".dot-busy")) refreshChats(); // answers shown as running may have ended
  if (hasBeenOpen) scope.removeUnreadable(); // notices sent while the connection was down are lost
  hasBeenOpen = true;
  uploads.catchUp();
  thread.catchUp();
  hideUnreadable();
  menu.forgetLists();
});
socket.addEventListener("signedout", noteSignedOut);

document.addEventListener("chat-renamed", ({ detail }) => detail.id === chatId && showTitle(detail.title));
document.addEventListener("chat-deleted", ({ detail }) => detail.id === chatId && location.assign(toAddress("/")));

// Input

watchFileInput({
  input: byId("file-input"),
  button: byId("attach"),
  onFiles: (...found) => {
    uploads.add(...found);
    composer.input.focus();
  },
});
const menu = new ComposerMenu({
  input: composer.input,
  pick: (document) => scope.toggle(document, true),
  ask: (assistant) => addressee.setAssistant(assistant),
  models: page.models,
  choose: (model) => models.choose(model.id),
  insertPrompt,
  commands: () =>
    listCommands({
      hasModel: page.has_model,
      hasAnswers: Boolean(chatId),
      setText: (text) => composer.setText(text),
      attach: () => byId("file-input").click(),
      beginTopic: () => scope.beginTopic(),
      exportAs: (format) => exportChat(chatId, format),
    }),
});
/** Insert a prompt and select its first placeholder; Tab moves to the next. */
function insertPrompt(text) {
  composer.setText(text);
  selectPlace(composer.input, 0);
}
composer.input.addEventListener("keydown", (event) => {
  if (event.key !== "Tab" || event.shiftKey || event.isComposing || !composer.input.value) return;
  if (selectPlace(composer.input)) event.preventDefault();
});
composer.addEventListener("paste", ({ detail: { file, text } }) => {
  uploads.add([file]);
  const item = uploads.items.find((one) => one.file === file);
  const undo = () => {
    uploads.remove(item);
    if (item.document && !item.duplicate) sendDelete(`/documents/${item.document.id}`).catch((error) => showToast(error.message));
    composer.insertAtCaret(text);
  };
  showToast(t("pasted"), { action: { label: t("undo"), run: undo } });
});
setEscapeAction(() => {
  if (panel.isOpen) panel.requestClose();
  else if (thread.runId) runs.stop(thread.runId);
  else return stopReading();
  return true;
});
setAltArrowAction((step) => {
  const marker = thread.stepCitation(step);
  if (marker && panel.isOpen) thread.openMarker(marker);
  return Boolean(marker);
});
composer.input.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowUp" || event.isComposing || event.altKey || composer.input.value) return;
  if (thread.editLast()) event.preventDefault();
});
document.addEventListener("click", (event) => {
  const example = event.target.closest("[data-example]");
  if (example) composer.setText(example.textContent.trim());
});
byId("thread").addEventListener("click", (event) => {
  if (event.target.closest("a, button, input, form, .prose, .reasoning") || getSelection().toString()) return;
  if (matchMedia("(pointer: fine)").matches) composer.input.focus();
});

// The keyboard of a phone must not cover the composer. Chromium shrinks the page (interactive-widget in base.html); Safari
// only shrinks what is in sight, and would move the page up under its own bars.
const MIN_KEYBOARD_PIXELS = 120;
visualViewport?.addEventListener("resize", () => {
  const covered = innerHeight - visualViewport.height * visualViewport.scale;
  document.body.style.height = covered > MIN_KEYBOARD_PIXELS && visualViewport.scale === 1 ? `${visualViewport.height}px` : "";
  if (covered > MIN_KEYBOARD_PIXELS) scrollTo(0, 0);
});

scope.refreshMemory(chatId);
if (chatId) {
  if (page.chat.unread) markSeen(chatId);
  thread
    .load(chatId, readPlace().message, history.state?.newest)
    .then(async (view) => {
      const words = readSearchedWords();
      await place.restore();
      if (view && words.length) highlightWords(view.root, words);
    })
    .catch((error) => showError(error, { stay: 60000 }));
}
if (matchMedia("(pointer: fine)").matches) composer.input.focus();
