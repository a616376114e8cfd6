// Uploads: three files at a time, retried when the connection fails, and followed until they are ready.

import { toAddress } from "./address.js";
import { ApiError, getJson, postJson, readCsrfToken, sendDelete, toApiError } from "./api.js";
import { findFault, findForeignBeginning } from "./file_check.js";
import { t } from "./strings.js";
import { mayRetry, UploadTray } from "./upload_tray.js";

const MAX_SENDING = 3;
const LOOK_EVERY_MS = 4000;
const PAGE_SIZE = 100;
const UNSUPPORTED = 415;
const REFUSED = new Set([413, UNSUPPORTED, 422]); // the file itself is what is wrong
const AT_WORK = new Set(["waiting", "uploading", "processing"]);

/** Events: `changed` whenever a file changes its state, `completed` (detail: the document). */
export class Uploads extends EventTarget {
  /** `libraryId` is where the files go; empty: they are the reader's own. `accept` names the extensions, as a file input does. */
  constructor({ root, accept, limitMb, isLive, libraryId = "" }) {
    super();
    this.libraryId = libraryId;
    this.limits = { accept, limitMb };
    this.items = [];
    this.skipped = 0;
    this.queue = null; // how far the server is with all documents of the reader
    this.pace = { since: Date.now(), ended: 0 }; // of the files that were added together
    this.isLive = isLive;
    this.tray = new UploadTray(root, this);
    setInterval(() => this.poll(), LOOK_EVERY_MS);
    addEventListener("beforeunload", (event) => {
      if (this.unsent.length) event.preventDefault();
    });
  }

  /** Files that the server does not have yet and that are not held back. */
  get unsent() {
    return this.items.filter((item) => item.state === "uploading" || item.state === "waiting");
  }

  get working() {
    return this.items.filter((item) => AT_WORK.has(item.state));
  }

  get completed() {
    return this.items.filter((item) => item.state === "completed").map((item) => item.document);
  }

  add(files, skipped = 0) {
    this.skipped += skipped;
    if (!this.working.length) this.pace = { since: Date.now(), ended: 0 };
    for (const file of files) {
      const item = { file, name: file.name.normalize("NFC"), size: file.size, state: "waiting", fraction: 0, error: "" };
      this.items.push(item);
      const fault = findFault(file, this.limits);
      if (!fault) continue;
      item.file = null;
      this.setState(item, "failed", { error: t(fault, { size: this.limits.limitMb }) });
    }
    this.sendNext();
    this.notifyChanged();
  }

  sendNext() {
    const room = MAX_SENDING - this.items.filter((item) => item.state === "uploading").length;
    const waiting = this.items.filter((item) => item.state === "waiting");
    for (const item of waiting.slice(0, Math.max(room, 0))) this.send(item);
  }

  async send(item) {
    item.sending = new AbortController();
    const { signal } = item.sending;
    this.setState(item, "uploading");
    const onProgress = (fraction) => {
      item.fraction = fraction;
      this.tray.scheduleRender(item);
    };
    try {
      const fields = this.libraryId ? { library_id: this.libraryId } : {};
      const answer = await sendFile({ path: "/documents", file: item.file, fields, onProgress, signal });
      item.file = null;
      // A file that had to be sent again may have arrived the first time.
      item.duplicate = Boolean(answer.body.duplicate) && !answer.again;
      if (this.items.includes(item)) this.applyDocument(item, answer.body);
      else if (!answer.body.duplicate && !this.hasDocument(answer.body.id)) await sendDelete(`/documents/${answer.body.id}`);
    } catch (error) {
      if (REFUSED.has(error.status)) item.file = null; // sent again it would be refused again
      if (error.name !== "AbortError") this.setState(item, "failed", { error: error.message });
    }
    this.sendNext();
  }

  /** News of a document, from the socket or a list. */
  update(document) {
    const items = this.items.filter((item) => item.document?.id === document.id);
    if (document.deleted) this.removeItems(items);
    else for (const item of items) this.applyDocument(item, document);
  }

  /** Whether a file in the list is this document; one that was chosen twice is so in two rows. */
  hasDocument(documentId) {
    return this.items.some((item) => item.document?.id === documentId);
  }

  applyDocument(item, document) {
    if (item.document && document.updated_at < item.document.updated_at) return;
    item.document = document;
    item.fraction = document.progress ?? 0;
    const was = item.state;
    this.setState(item, toUploadState(document), { error: document.error?.detail ?? "" });
    if (item.state === "completed" && was !== "completed") {
      this.dispatchEvent(new CustomEvent("completed", { detail: document }));
    }
  }

  setState(item, state, { error = "" } = {}) {
    const before = item.state;
    Object.assign(item, { state, error });
    this.tray.scheduleRender(item);
    if (before === state) return;
    if (state === "completed" || state === "failed") this.pace.ended += 1;
    this.notifyChanged();
  }

  /** Ask how far the server is: one call for all files. What it says is missing here is fetched. */
  async poll() {
    const open = this.items.filter((item) => item.state === "processing");
    if (!open.length) return;
    const queue = await getJson("/documents/queue").catch(() => null);
    this.queue = queue;
    this.tray.scheduleRender();
    const atWork = queue ? queue.waiting + queue.working : 0;
    if (!this.isLive() || atWork < open.length) await this.catchUp();
  }

  /** Fetch where the open files stand, newest first: notices may have been missed. */
  async catchUp() {
    const unended = this.items.filter((item) => item.state === "processing" || (item.state === "paused" && item.document));
    const open = new Set(unended.map((item) => item.document.id));
    for (let page = 1; open.size; page += 1) {
      const list = await getJson(`/documents?page_size=${PAGE_SIZE}&page=${page}`).catch(() => null);
      if (!list) return;
      for (const document of list.results) {
        open.delete(document.id);
        this.update(document);
      }
      if (!list.next) break;
    }
    for (const id of open) {
      await getJson(`/documents/${id}`).catch((error) => error.status === 404 && this.update({ id, deleted: true }));
    }
  }

  // What the reader does with one file

  async pause(item) {
    if (item.document) return this.postAction(item, "pause");
    item.sending?.abort();
    this.setState(item, "paused");
    return this.sendNext();
  }

  async resume(item) {
    if (item.document) return this.postAction(item, "resume");
    this.setState(item, "waiting");
    return this.sendNext();
  }

  async retry(item) {
    if (item.document) return this.postAction(item, "reprocess");
    this.setState(item, "waiting");
    return this.sendNext();
  }

  remove(item) {
    stopSending(item);
    this.removeItems([item]);
    // What has ended meanwhile cannot be cancelled, and needs not.
    const isOpen = item.document && (item.state === "processing" || item.state === "paused");
    if (isOpen && !this.hasDocument(item.document.id)) this.postAction(item, "cancel");
    this.sendNext();
  }

  async postAction(item, what) {
    try {
      const document = await postJson(`/documents/${item.document.id}/${what}`);
      if (document?.id) this.applyDocument(item, document);
    } catch (error) {
      if (this.items.includes(item)) this.setState(item, item.state, { error: error.message });
    }
  }

  // What the reader does with all

  pauseAll() {
    for (const item of this.items.filter((one) => one.state === "waiting")) this.setState(item, "paused");
    return this.postActionForAll("pause");
  }

  resumeAll() {
    for (const item of this.items.filter((one) => one.state === "paused" && !one.document)) this.setState(item, "waiting");
    this.sendNext();
    return this.postActionForAll("resume");
  }

  cancelAll() {
    const local = this.items.filter((item) => !item.document && item.state !== "failed");
    for (const item of local) stopSending(item);
    this.removeItems(local);
    return this.postActionForAll("cancel");
  }

  retryAll() {
    for (const item of this.items.filter(mayRetry)) this.retry(item);
  }

  async postActionForAll(what) {
    if (!this.items.some((item) => item.document)) return;
    this.tray.showRefusal("");
    try {
      await postJson(`/documents/${what}`);
      if (!this.isLive()) await this.catchUp();
    } catch (error) {
      this.tray.showRefusal(error.message);
    }
  }

  /** What can be asked about by now leaves the list; what failed stays to be read. */
  clearCompleted() {
    this.removeItems(this.items.filter((item) => item.state === "completed"));
  }

  /** Nothing more comes of these: they leave the list. */
  clearEnded() {
    this.skipped = 0;
    this.removeItems(this.items.filter((item) => item.state === "completed" || item.state === "failed"));
  }

  removeItems(items) {
    const gone = new Set(items);
    this.items = this.items.filter((item) => !gone.has(item));
    this.notifyChanged();
  }

  notifyChanged() {
    this.tray.scheduleRender();
    this.dispatchEvent(new Event("changed"));
  }
}

/** Stop an upload, unless all of it is sent: the server may have stored it, so `send` waits for the reply and deletes it. */
function stopSending(item) {
  if (item.fraction < 1) item.sending?.abort();
}

function toUploadState({ status, stage }) {
  if (status === "COMPLETED") return "completed";
  if (status === "FAILED") return "failed";
  return stage === "paused" ? "paused" : "processing";
}

const RETRY_WAITS_MS = [1000, 3000, 9000, 27000];
const MAX_RETRY_WAIT_MS = 60_000;
const GATEWAY_FAILURES = new Set([0, 502, 503, 504]);
const TOO_MANY_REQUESTS = 429;

/**
 * Send `file` as a form to `path`. `onProgress` is called with the share sent, `signal` aborts it.
 * Returns {status, body, again}: `again` if it took more than one try. Throws ApiError or AbortError.
 * A file whose first bytes contradict its name is not sent.
 *
 * @param {{method?: string, path: string, file: File, fields?: Record<string, string>, onProgress?: (share: number) => void, signal?: AbortSignal}} what
 */
export async function sendFile({ method = "POST", path, file, fields = {}, onProgress, signal }) {
  const fault = await findForeignBeginning(file);
  if (fault) throw new ApiError(UNSUPPORTED, fault, t(fault));
  for (let tries = 0; ; tries += 1) {
    signal?.throwIfAborted();
    onProgress?.(0);
    const answer = await sendOnce({ method, path, file, fields, onProgress, signal });
    if (answer.status >= 200 && answer.status < 300) return { ...answer, again: tries > 0 };
    if (!isTemporary(answer) || tries === RETRY_WAITS_MS.length) throw toApiError(answer.status, answer.body);
    await waitForRetry(Math.min(answer.wait || RETRY_WAITS_MS[tries], MAX_RETRY_WAIT_MS), signal);
  }
}

function sendOnce({ method, path, file, fields, onProgress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const stop = () => request.abort();
    const end = () => {
      signal?.removeEventListener("abort", stop);
      const wait = Number(request.getResponseHeader("Retry-After")) * 1000;
      resolve({ status: request.status, body: request.response, wait });
    };
    request.open(method, toAddress(`/api/v1${path}`));
    request.setRequestHeader("X-CSRFToken", readCsrfToken());
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Accept-Language", document.documentElement.lang);
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && onProgress?.(event.loaded / event.total);
    request.onload = end;
    request.onerror = end;
    request.onabort = () => reject(new DOMException("", "AbortError"));
    signal?.addEventListener("abort", stop, { once: true });
    const body = new FormData();
    for (const [name, value] of Object.entries(fields)) body.append(name, value);
    body.append("file", file, file.name);
    request.send(body);
  });
}

/** Whether to try again: failures of the connection or a gateway pass, errors of the server with a code do not. */
function isTemporary({ status, body }) {
  return status === TOO_MANY_REQUESTS || (GATEWAY_FAILURES.has(status) && !body?.code);
}

/** Wait, but at most until the connection is back. */
function waitForRetry(wait, signal) {
  return /** @type {Promise<void>} */ (new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      resolve();
    };
    const timer = setTimeout(end, wait);
    addEventListener("online", end);
    signal?.addEventListener("abort", () => reject(new DOMException("", "AbortError")), { once: true });
  }));
}
