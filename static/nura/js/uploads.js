// Files on their way: sent, read, split, embedded, indexed; each as a chip that says how far it is.

import { csrfToken, get, post, problem } from "./api.js";
import { el, fileIcon, icon, iconButton } from "./dom.js";
import { fileSize, has, percent, t } from "./strings.js";

const AT_ONCE = 3;
const POLL = 4000;
const ICONS = { failed: "circle-alert", completed: "circle-check" };

/** Events: `changed` whenever a chip changes its state, `completed` (detail: the document). */
export class Uploads extends EventTarget {
  constructor({ root, limitMb, isLive }) {
    super();
    this.root = root;
    this.limit = limitMb * 1024 * 1024;
    this.limitMb = limitMb;
    this.items = [];
    this.isLive = isLive;
    setInterval(() => this.poll(), POLL);
    addEventListener("beforeunload", (event) => {
      if (this.items.some((item) => item.state === "uploading")) event.preventDefault();
    });
  }

  get working() {
    return this.items.filter((item) => item.state === "waiting" || item.state === "uploading" || item.state === "processing");
  }

  get completed() {
    return this.items.filter((item) => item.state === "completed").map((item) => item.document);
  }

  get failed() {
    return this.items.filter((item) => item.state === "failed");
  }

  add(files) {
    for (const file of files) {
      const item = { file, name: file.name.normalize("NFC"), size: file.size, state: "waiting", fraction: 0 };
      this.items.push(item);
      this.root.append(this.chip(item));
      if (file.size > this.limit) this.fail(item, t("too_large", { size: this.limitMb }));
    }
    this.next();
    this.changed();
    this.root.scrollTop = this.root.scrollHeight;
  }

  next() {
    const room = AT_ONCE - this.items.filter((item) => item.state === "uploading").length;
    const waiting = this.items.filter((item) => item.state === "waiting");
    for (const item of waiting.slice(0, Math.max(room, 0))) this.start(item);
  }

  start(item) {
    const request = new XMLHttpRequest();
    item.request = request;
    item.state = "uploading";
    request.open("POST", "/api/v1/documents");
    request.setRequestHeader("X-CSRFToken", csrfToken());
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Accept-Language", document.documentElement.lang);
    request.responseType = "json";
    request.upload.onprogress = (event) => {
      item.fraction = event.lengthComputable ? event.loaded / event.total : 0;
      this.draw(item);
    };
    request.onload = () => this.uploaded(item, request.status, request.response);
    request.onerror = () => this.fail(item, problem(0).message);
    request.onloadend = () => this.next();
    const body = new FormData();
    body.append("file", item.file, item.file.name);
    request.send(body);
    this.draw(item);
  }

  uploaded(item, status, body) {
    if (status !== 201) return this.fail(item, problem(status, body).message);
    item.file = null;
    return this.take(item, body);
  }

  /** News of a document, from the socket or a poll. */
  update(document) {
    const item = this.items.find((one) => one.document?.id === document.id);
    if (item) this.take(item, document);
  }

  take(item, document) {
    const before = item.state;
    const older = item.document && document.updated_at < item.document.updated_at;
    if (older) return;
    item.document = document;
    item.heard = Date.now();
    item.fraction = document.progress ?? 0;
    item.state = { COMPLETED: "completed", FAILED: "failed" }[document.status] ?? "processing";
    item.error = document.error?.detail ?? "";
    this.draw(item);
    if (before === item.state) return;
    if (item.state === "completed") this.dispatchEvent(new CustomEvent("completed", { detail: document }));
    this.changed();
  }

  fail(item, reason) {
    item.state = "failed";
    item.error = reason;
    this.draw(item);
    this.changed();
  }

  async poll() {
    for (const item of this.items) {
      if (item.state !== "processing") continue;
      if (this.isLive() && Date.now() - item.heard < POLL * 3) continue;
      const document = await get(`/documents/${item.document.id}`).catch(() => null);
      if (document) this.take(item, document);
    }
  }

  remove(item) {
    if (item.state === "uploading") item.request.abort();
    if (item.state === "processing") post(`/documents/${item.document.id}/cancel`).catch(() => {});
    this.items = this.items.filter((one) => one !== item);
    item.node.remove();
    this.next();
    this.changed();
  }

  async retry(item) {
    if (!item.document) {
      item.state = "waiting";
      this.draw(item);
      this.next();
      this.changed();
      return;
    }
    try {
      const document = await post(`/documents/${item.document.id}/reprocess`);
      item.state = "processing";
      item.document = document?.id ? document : { ...item.document, status: "PROCESSING", error: null };
      item.heard = 0;
      this.draw(item);
      this.changed();
    } catch (error) {
      this.fail(item, error.message);
    }
  }

  /** Files that went with a message leave the list; others stay. */
  clearCompleted() {
    for (const item of this.items) if (item.state === "completed") item.node.remove();
    this.items = this.items.filter((item) => item.state !== "completed");
    this.changed();
  }

  changed() {
    this.root.hidden = !this.items.length;
    this.dispatchEvent(new Event("changed"));
  }

  chip(item) {
    const part = (name) => el("span", { class: name });
    item.parts = {
      name: el("span", { class: "upload-name", text: item.name, title: item.name }),
      state: part("upload-state"),
      bar: part("upload-bar"),
      sign: el("span", { class: "upload-sign" }),
      retry: iconButton("rotate-ccw", t("retry"), { on: { click: () => this.retry(item) } }),
    };
    const { name, state, bar, sign, retry } = item.parts;
    const remove = iconButton("x", t("remove_file", { name: item.name }), { on: { click: () => this.remove(item) } });
    const track = el("span", { class: "upload-track" }, bar);
    item.node = el("li", { class: "upload" }, sign, el("span", { class: "upload-text" }, name, state), retry, remove, track);
    this.draw(item);
    return item.node;
  }

  draw(item) {
    const { state, bar, sign, retry } = item.parts;
    item.node.dataset.state = item.state;
    state.textContent = describe(item);
    state.title = item.error ?? "";
    bar.style.width = percent(item.state === "completed" ? 1 : item.fraction);
    retry.hidden = item.state !== "failed";
    const shown = ICONS[item.state] ?? fileIcon(item.document?.content_type, item.name);
    if (sign.dataset.icon !== shown) sign.replaceChildren(icon(shown));
    sign.dataset.icon = shown;
  }
}

/** One line on where a file stands. */
function describe(item) {
  const size = fileSize(item.size);
  if (item.state === "failed") return item.error || t("failed");
  if (item.state === "waiting") return `${size} · ${t("upload.waiting")}`;
  if (item.state === "uploading") return `${size} · ${t("upload.uploading")} ${percent(item.fraction)}`;
  if (item.state === "completed") return `${size} · ${t("upload.completed")}`;
  return `${size} · ${stageText(item.document)}`;
}

/** Stage and percent of a document that is being read. */
export function stageText(document) {
  const key = `stage.${document.stage}`;
  const stage = has(key) ? t(key) : t("stage.queued");
  return document.progress > 0 ? `${stage} ${percent(document.progress)}` : stage;
}
