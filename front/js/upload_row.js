// One file on its way, as a chip or a row that says how far it is.

import { el, fileIcon, icon, iconButton } from "./dom.js";
import { stageText } from "./progress.js";
import { fileSize, percent, t } from "./strings.js";

const ICONS = { failed: "circle-alert", completed: "circle-check", paused: "pause" };

export class UploadRow {
  constructor(item, uploads) {
    this.item = item;
    this.stale = true;
    this.name = el("span", { class: "upload-name", title: item.name }, item.name);
    this.state = el("span", { class: "upload-state" });
    this.bar = el("span", { class: "upload-bar" });
    this.sign = el("span", { class: "upload-sign" });
    const does = (what) => ({ on: { click: () => uploads[what](item) } });
    this.pause = iconButton("pause", t("pause_file", { name: item.name }), does("pause"));
    this.resume = iconButton("play", t("resume_file", { name: item.name }), does("resume"));
    this.retry = iconButton("rotate-ccw", t("retry"), does("retry"));
    this.remove = iconButton("x", t("remove_file", { name: item.name }), does("remove"));
    const text = el("span", { class: "upload-text" }, this.name, this.state);
    const tools = [this.pause, this.resume, this.retry, this.remove];
    this.node = el("li", { class: "upload" }, this.sign, text, tools, el("span", { class: "upload-track" }, this.bar));
  }

  draw() {
    this.stale = false;
    const { item } = this;
    this.node.dataset.state = item.state;
    this.node.toggleAttribute("data-duplicate", Boolean(item.duplicate));
    this.state.textContent = describe(item);
    this.state.title = item.error;
    this.bar.style.width = percent(item.state === "completed" ? 1 : item.fraction);
    this.pause.hidden = !(item.state === "processing" || item.state === "waiting");
    this.resume.hidden = item.state !== "paused";
    this.retry.hidden = item.state !== "failed" || !(item.file || item.document);
    this.drawSign(ICONS[item.state] ?? fileIcon(item.document?.content_type, item.name));
    this.link();
  }

  drawSign(name) {
    if (this.sign.dataset.icon !== name) this.sign.replaceChildren(icon(name));
    this.sign.dataset.icon = name;
  }

  /** The name of a file that the server has leads to its page. */
  link() {
    const { item, name } = this;
    if (!item.document || name.querySelector("a")) return;
    name.replaceChildren(el("a", { href: `/documents/${item.document.id}`, text: item.name }));
  }
}

/** One line on where a file stands. */
function describe(item) {
  if (item.error) return item.error;
  if (item.state === "failed") return t("failed");
  const there = item.duplicate ? t("upload.duplicate") : fileSize(item.size);
  return `${there} · ${stateText(item)}`;
}

function stateText({ state, fraction, document }) {
  if (state === "uploading") return `${t("upload.uploading")} ${percent(fraction)}`;
  if (state === "processing") return stageText(document);
  return t(`upload.${state}`);
}
