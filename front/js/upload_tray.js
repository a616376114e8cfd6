// The list of files being uploaded. Of a long list only the visible rows are drawn, at most once per frame.

import { toAddress } from "./address.js";
import { chooseFileIcon, createIcon, createIconButton, el, placeChildren } from "./dom.js";
import { describeStage, formatFileSize, formatPercent, formatTimeLeft } from "./format.js";
import { t, tn } from "./strings.js";

const LONG_LIST = 30;
const ROW_PIXELS = 52; // pixels, as .uploads-long .upload in composer.css
const ROWS_AROUND = 6;
const MIN_ENDED_FILES = 5; // files that must have ended before their pace says anything

const LOCKED = "encrypted"; // the code of a file with a password, or made for reading only

/** Whether a failed file can be tried again as it is; a locked one cannot. */
export function mayRetry(item) {
  return item.state === "failed" && Boolean(item.file || item.document) && item.document?.error?.code !== LOCKED;
}

export class UploadTray {
  constructor(root, uploads) {
    this.root = root;
    this.uploads = uploads;
    this.rows = new Map();
    this.known = new Set();
    this.onlyFailed = false;
    this.frame = 0;
    this.head = this.createHead();
    root.before(this.head);
    root.addEventListener("scroll", () => this.scheduleRender());
  }

  /** Something changed: of `item`, or of the list. */
  scheduleRender(item) {
    const row = item && this.rows.get(item);
    if (row) row.stale = true;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  render() {
    const { items } = this.uploads;
    const failed = items.filter((item) => item.state === "failed");
    if (!failed.length) this.onlyFailed = false;
    const shown = this.onlyFailed ? failed : [...failed, ...items.filter((item) => item.state !== "failed")];
    const added = shown.findIndex((item) => !this.known.has(item));
    this.known = new Set(items);
    this.root.hidden = !shown.length;
    this.renderHead(items, failed);
    const [first, last] = this.findVisibleRows(shown.length);
    const drawn = shown.slice(first, last);
    for (const item of this.rows.keys()) if (!drawn.includes(item)) this.rows.delete(item);
    placeChildren(this.root, drawn.map((item, at) => this.renderRow(item, first + at, shown.length)));
    if (added >= 0 && shown.length <= LONG_LIST) this.scrollToRow(added);
  }

  /** Rows were added from this one on: it comes to the top, as far as there is enough below it. */
  scrollToRow(at) {
    const row = this.root.children[at];
    this.root.scrollTop += row.getBoundingClientRect().top - this.root.getBoundingClientRect().top;
  }

  /** First row to draw and the one after the last; what is above and below takes its room as padding. */
  findVisibleRows(count) {
    const isLong = count > LONG_LIST;
    this.root.classList.toggle("uploads-long", isLong);
    const first = isLong ? Math.max(0, Math.floor(this.root.scrollTop / ROW_PIXELS) - ROWS_AROUND) : 0;
    const last = isLong ? Math.min(count, first + Math.ceil(this.root.clientHeight / ROW_PIXELS) + 2 * ROWS_AROUND) : count;
    this.root.style.setProperty("--above", `${first * ROW_PIXELS}px`);
    this.root.style.setProperty("--below", `${(count - last) * ROW_PIXELS}px`);
    return [first, last];
  }

  renderRow(item, at, count) {
    if (!this.rows.has(item)) this.rows.set(item, new UploadRow(item, this.uploads));
    const row = this.rows.get(item);
    if (row.stale) row.render();
    row.node.setAttribute("aria-posinset", String(at + 1));
    row.node.setAttribute("aria-setsize", String(count));
    return row.node;
  }

  // The line above many files

  createHead() {
    const button = (name, run) => el("button", { type: "button", class: "link-button", data: { all: name }, on: { click: run } });
    const { uploads } = this;
    this.words = el("span", { class: "uploads-words", role: "status" });
    this.trouble = el("span", { class: "uploads-trouble", role: "alert" });
    this.buttons = {
      pause: button("pause", () => uploads.pauseAll()),
      resume: button("resume", () => uploads.resumeAll()),
      retry: button("retry", () => uploads.retryAll()),
      failed: button("failed", () => this.toggleFailed()),
      cancel: button("cancel", () => uploads.cancelAll()),
      clear: button("clear", () => uploads.clearEnded()),
    };
    this.bar = el("span", { class: "uploads-fill" });
    const track = el("span", { class: "uploads-share", "aria-hidden": "true" }, this.bar);
    const tools = el("span", { class: "uploads-tools" }, Object.values(this.buttons));
    return el("div", { class: "uploads-head", hidden: true }, track, this.words, tools, this.trouble);
  }

  toggleFailed() {
    this.onlyFailed = !this.onlyFailed;
    this.root.scrollTop = 0;
    this.scheduleRender();
  }

  renderHead(items, failed) {
    const { skipped } = this.uploads;
    this.head.hidden = items.length < 2 && !skipped;
    if (this.head.hidden) return;
    const count = (state) => items.filter((item) => item.state === state).length;
    const working = this.uploads.working.length;
    const [ready, paused] = [count("completed"), count("paused")];
    this.words.textContent = this.describeItems({ items, ready, paused, failed: failed.length, skipped });
    this.bar.style.width = `${(100 * (ready + failed.length)) / Math.max(items.length, 1)}%`;
    const can = {
      pause: working > 0,
      resume: paused > 0,
      retry: failed.filter(mayRetry).length > 1,
      failed: failed.length > 0 && items.length > failed.length,
      cancel: working + paused > 0,
      clear: ready + failed.length + skipped > 0,
    };
    for (const [name, button] of Object.entries(this.buttons)) {
      button.hidden = !can[name];
      button.textContent = t(name === "failed" && this.onlyFailed ? "uploads.all" : `uploads.${name}`);
    }
  }

  describeItems({ items, ready, paused, failed, skipped }) {
    const parts = items.length ? [t("uploads.ready", { count: formatCount(ready), total: formatCount(items.length) })] : [];
    if (failed) parts.push(tn("uploads.failed_count", failed));
    if (paused) parts.push(tn("uploads.paused_count", paused));
    if (skipped) parts.push(tn("uploads.skipped", skipped));
    const left = this.uploads.working.length ? this.estimateSecondsLeft() : 0;
    if (left) parts.push(formatTimeLeft(left));
    return parts.join(" · ");
  }

  /** The longer of what the server reckons, with as much for each file that it has not yet, and what the pace so far says. */
  estimateSecondsLeft() {
    const { queue, working, unsent, pace } = this.uploads;
    const there = working.length - unsent.length;
    const reckoned = there ? ((queue?.seconds_left ?? 0) * working.length) / there : 0;
    if (pace.ended < MIN_ENDED_FILES) return reckoned;
    return Math.max(reckoned, ((Date.now() - pace.since) / 1000) * (working.length / pace.ended));
  }

  /** Say why something asked for all files was not done; "" takes it back. */
  showRefusal(text) {
    this.trouble.textContent = text;
  }
}

function formatCount(count) {
  return count.toLocaleString(document.documentElement.lang);
}

const STATE_ICONS = { failed: "circle-alert", completed: "circle-check", paused: "pause" };

export class UploadRow {
  constructor(item, uploads) {
    this.item = item;
    this.stale = true;
    this.name = el("span", { class: "upload-name", title: item.name }, item.name);
    this.state = el("span", { class: "upload-state" });
    this.bar = el("span", { class: "upload-bar" });
    this.sign = el("span", { class: "upload-sign" });
    const does = (what) => ({ on: { click: () => uploads[what](item) } });
    this.pause = createIconButton("pause", t("pause_file", { name: item.name }), does("pause"));
    this.resume = createIconButton("play", t("resume_file", { name: item.name }), does("resume"));
    this.retry = createIconButton("rotate-ccw", t("retry"), does("retry"));
    this.remove = createIconButton("x", t("remove_file", { name: item.name }), does("remove"));
    const text = el("span", { class: "upload-text" }, this.name, this.state);
    const tools = [this.pause, this.resume, this.retry, this.remove];
    this.node = el("li", { class: "upload" }, this.sign, text, tools, el("span", { class: "upload-track" }, this.bar));
  }

  render() {
    this.stale = false;
    const { item } = this;
    this.node.dataset.state = item.state;
    this.node.toggleAttribute("data-duplicate", Boolean(item.duplicate));
    this.state.textContent = describeUpload(item);
    this.state.title = item.error;
    this.bar.style.width = formatPercent(item.state === "completed" ? 1 : item.fraction);
    this.pause.hidden = !(item.state === "processing" || item.state === "waiting");
    this.resume.hidden = item.state !== "paused";
    this.retry.hidden = !mayRetry(item);
    this.drawSign(STATE_ICONS[item.state] ?? chooseFileIcon(item.document?.content_type, item.name));
    this.linkName();
  }

  drawSign(name) {
    if (this.sign.dataset.icon !== name) this.sign.replaceChildren(createIcon(name));
    this.sign.dataset.icon = name;
  }

  /** The name of a file that the server has leads to its page. */
  linkName() {
    const { item, name } = this;
    if (!item.document || name.querySelector("a")) return;
    name.replaceChildren(el("a", { href: toAddress(`/documents/${item.document.id}`), text: item.name }));
  }
}

/** The state of a file in one line. */
function describeUpload(item) {
  if (item.error) return item.error;
  if (item.state === "failed") return t("failed");
  const there = item.duplicate ? t("upload.duplicate") : formatFileSize(item.size);
  return `${there} · ${describeState(item)}`;
}

function describeState({ state, fraction, document }) {
  if (state === "uploading") return `${t("upload.uploading")} ${formatPercent(fraction)}`;
  if (state === "processing") return describeStage(document);
  return t(`upload.${state}`);
}
