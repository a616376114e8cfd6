// The list of files on their way. Of a long list only the rows in sight are drawn, a frame at most once.

import { el, place } from "./dom.js";
import { timeLeft } from "./progress.js";
import { t, tn } from "./strings.js";
import { UploadRow } from "./upload_row.js";

const LONG = 30;
const ROW = 52; // pixels, as .uploads-long .upload in uploads.css
const AROUND = 6;
const ENOUGH = 5; // files that must have ended before their pace says anything

export class UploadTray {
  constructor(root, uploads) {
    this.root = root;
    this.uploads = uploads;
    this.rows = new Map();
    this.onlyFailed = false;
    this.frame = 0;
    this.head = this.makeHead();
    root.before(this.head);
    root.addEventListener("scroll", () => this.touch());
  }

  /** Something changed: of `item`, or of the list. */
  touch(item) {
    const row = item && this.rows.get(item);
    if (row) row.stale = true;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    const { items } = this.uploads;
    const failed = items.filter((item) => item.state === "failed");
    if (!failed.length) this.onlyFailed = false;
    const shown = this.onlyFailed ? failed : items;
    const grown = shown.length > (this.shown ?? 0);
    this.shown = shown.length;
    this.root.hidden = !shown.length;
    this.drawHead(items, failed);
    const [first, last] = this.inSight(shown.length);
    const drawn = shown.slice(first, last);
    for (const item of this.rows.keys()) if (!drawn.includes(item)) this.rows.delete(item);
    place(this.root, drawn.map((item, at) => this.row(item, first + at, shown.length)));
    if (grown && shown.length <= LONG) this.root.scrollTop = this.root.scrollHeight;
  }

  /** First row to draw and the one after the last; what is above and below takes its room as padding. */
  inSight(count) {
    const isLong = count > LONG;
    this.root.classList.toggle("uploads-long", isLong);
    const first = isLong ? Math.max(0, Math.floor(this.root.scrollTop / ROW) - AROUND) : 0;
    const last = isLong ? Math.min(count, first + Math.ceil(this.root.clientHeight / ROW) + 2 * AROUND) : count;
    this.root.style.setProperty("--above", `${first * ROW}px`);
    this.root.style.setProperty("--below", `${(count - last) * ROW}px`);
    return [first, last];
  }

  row(item, at, count) {
    if (!this.rows.has(item)) this.rows.set(item, new UploadRow(item, this.uploads));
    const row = this.rows.get(item);
    if (row.stale) row.draw();
    row.node.setAttribute("aria-posinset", String(at + 1));
    row.node.setAttribute("aria-setsize", String(count));
    return row.node;
  }

  // The line above many files

  makeHead() {
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
    this.touch();
  }

  drawHead(items, failed) {
    const { skipped } = this.uploads;
    this.head.hidden = items.length < 2 && !skipped;
    if (this.head.hidden) return;
    const count = (state) => items.filter((item) => item.state === state).length;
    const working = this.uploads.working.length;
    const [ready, paused] = [count("completed"), count("paused")];
    this.words.textContent = this.summary({ items, ready, paused, failed: failed.length, skipped });
    this.bar.style.width = `${(100 * (ready + failed.length)) / Math.max(items.length, 1)}%`;
    const can = {
      pause: working > 0,
      resume: paused > 0,
      retry: failed.filter((item) => item.file || item.document).length > 1,
      failed: failed.length > 0 && items.length > failed.length,
      cancel: working + paused > 0,
      clear: ready + failed.length + skipped > 0,
    };
    for (const [name, button] of Object.entries(this.buttons)) {
      button.hidden = !can[name];
      button.textContent = t(name === "failed" && this.onlyFailed ? "uploads.all" : `uploads.${name}`);
    }
  }

  summary({ items, ready, paused, failed, skipped }) {
    const parts = items.length ? [t("uploads.ready", { count: number(ready), total: number(items.length) })] : [];
    if (failed) parts.push(tn("uploads.failed_count", failed));
    if (paused) parts.push(tn("uploads.paused_count", paused));
    if (skipped) parts.push(tn("uploads.skipped", skipped));
    const left = this.uploads.working.length ? this.secondsLeft() : 0;
    if (left) parts.push(timeLeft(left));
    return parts.join(" · ");
  }

  /** The longer of what the server reckons, with as much for each file that it has not yet, and what the pace so far says. */
  secondsLeft() {
    const { queue, working, unsent, pace } = this.uploads;
    const there = working.length - unsent.length;
    const reckoned = there ? ((queue?.seconds_left ?? 0) * working.length) / there : 0;
    if (pace.ended < ENOUGH) return reckoned;
    return Math.max(reckoned, ((Date.now() - pace.since) / 1000) * (working.length / pace.ended));
  }

  /** Say why something asked for all files was not done; "" takes it back. */
  refused(text) {
    this.trouble.textContent = text;
  }
}

function number(count) {
  return count.toLocaleString(document.documentElement.lang);
}
