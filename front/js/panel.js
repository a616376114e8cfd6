// The panel on the right: one source at a time, with the page or the text it stands in.

import { byId, createIcon, el } from "./dom.js";
import { formatPages } from "./format.js";
import { drawSource } from "./passage.js";
import { t } from "./strings.js";

const MIN_WIDTH_PIXELS = 300;
const WIDTH_STEP_PIXELS = 24;
const WIDTH_KEY = "nura.panel";

export class Panel {
  /** `hooks`: askOnly(source). */
  constructor(hooks) {
    this.root = byId("panel");
    this.body = byId("panel-body");
    this.title = byId("panel-title");
    this.sourceTitle = this.title.textContent;
    this.hooks = hooks;
    this.list = [];
    this.at = 0;
    this.opener = null;
    byId("panel-close").addEventListener("click", () => this.close());
    byId("panel-previous").addEventListener("click", () => this.go(-1));
    byId("panel-next").addEventListener("click", () => this.go(1));
    this.watchGrip();
  }

  get isOpen() {
    return !this.root.hidden;
  }

  /** `claim`: what the answer says there, to be found in the passage. */
  open(message, source, opener, claim = "") {
    const all = (message.sources ?? []).map((one) => ({ ...one, message_id: message.id }));
    const cited = all.filter((one) => one.cited !== false);
    this.list = [...cited, ...all.filter((one) => one.cited === false)];
    this.at = Math.max(0, this.list.findIndex((one) => one.chunk_id === source.chunk_id && one.slot === source.slot));
    this.reveal(this.sourceTitle, opener);
    this.show(claim);
  }

  /** Show something else than a source. */
  openPart(title, part, opener) {
    this.list = [];
    this.reveal(title, opener);
    this.body.ticket = null;
    this.body.replaceChildren(part);
    this.body.scrollTop = 0;
  }

  reveal(title, opener) {
    if (opener) this.opener = opener;
    this.title.textContent = title;
    this.root.classList.toggle("panel-plain", !this.list.length);
    const wasClosed = this.root.hidden;
    this.root.hidden = false;
    document.body.classList.add("panel-open");
    if (wasClosed) byId("panel-close").focus({ preventScroll: true });
  }

  close() {
    if (this.root.hidden) return;
    this.root.hidden = true;
    document.body.classList.remove("panel-open");
    this.body.replaceChildren();
    if (this.opener?.isConnected) this.opener.focus();
    this.opener = null;
  }

  go(step) {
    const next = this.at + step;
    if (next < 0 || next >= this.list.length) return;
    this.at = next;
    this.show();
  }

  show(claim = "") {
    const source = this.list[this.at];
    byId("panel-count").textContent = `${this.at + 1} / ${this.list.length}`;
    byId("panel-previous").disabled = this.at === 0;
    byId("panel-next").disabled = this.at === this.list.length - 1;
    byId("panel-sources").replaceChildren(...createSourceTabs(this.list, source, (step) => this.go(step)));
    const only = el(
      "button",
      { type: "button", class: "button", on: { click: () => this.hooks.askOnly(source) } },
      createIcon("target", "icon-s"),
      t("only_this"),
    );
    drawSource(this.body, source, only, claim);
    this.body.scrollTop = 0;
  }

  // Width

  watchGrip() {
    const grip = byId("panel-grip");
    const set = (width) => {
      const widest = Math.max(MIN_WIDTH_PIXELS, innerWidth * 0.6);
      this.width = Math.min(Math.max(width, MIN_WIDTH_PIXELS), widest);
      this.root.style.width = `${this.width}px`;
      grip.setAttribute("aria-valuenow", String(Math.round(this.width)));
    };
    const stored = Number(localStorage.getItem(WIDTH_KEY));
    if (stored) set(stored);
    const keep = () => localStorage.setItem(WIDTH_KEY, String(Math.round(this.width)));
    grip.addEventListener("pointerdown", (event) => {
      grip.setPointerCapture(event.pointerId);
      const move = (moved) => set(this.root.getBoundingClientRect().right - moved.clientX);
      grip.addEventListener("pointermove", move);
      const end = () => {
        grip.removeEventListener("pointermove", move);
        keep();
      };
      grip.addEventListener("lostpointercapture", end, { once: true });
    });
    grip.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: WIDTH_STEP_PIXELS, ArrowRight: -WIDTH_STEP_PIXELS }[event.key];
      if (!step || event.altKey) return;
      event.preventDefault();
      set(this.root.getBoundingClientRect().width + step);
      keep();
    });
  }
}

/** Both groups as rows of buttons; `go(step)` moves from the source shown. Nothing where there is but one. */
export function createSourceTabs(list, shown, go) {
  if (list.length < 2) return [];
  const at = list.indexOf(shown);
  const button = (source) => createTab(source, source === shown, () => go(list.indexOf(source) - at));
  const group = (name, sources) =>
    sources.length
      ? el(
          "div",
          { class: "panel-group", role: "group", "aria-label": t(name) },
          el("span", { class: "panel-group-name", "aria-hidden": "true", text: t(name) }),
          sources.map(button),
        )
      : null;
  const cited = list.filter((one) => one.cited !== false);
  const reviewed = list.filter((one) => one.cited === false);
  return [group("cited", cited), group("looked_at", reviewed)].filter(Boolean);
}

function createTab(source, isShown, run) {
  const page = formatPages(source);
  const where = [source.document_name, page].filter(Boolean).join(", ");
  return el(
    "button",
    {
      type: "button",
      class: "panel-tab",
      title: where,
      "aria-label": t("source_label", { slot: source.slot, where }),
      "aria-current": isShown ? "true" : null,
      on: { click: run },
    },
    el("span", { class: "slot", text: String(source.slot) }),
    page ? el("span", { text: page }) : null,
  );
}
