// What the model thought before it answered: one live line while it thinks, folded afterwards.

import { createIcon, el } from "./dom.js";
import { StreamedMarkdown } from "./markdown.js";
import { t, tn } from "./strings.js";

const TAIL_CHARACTERS = 160;
const REDRAW_MS = 120;

export class Reasoning {
  /** `keepInPlace(anchor, change)` changes the page while `anchor` stays where it is. */
  constructor(keepInPlace) {
    this.label = el("span", { class: "reasoning-label" });
    this.words = el("span");
    this.tail = el("span", { class: "reasoning-tail", "aria-hidden": "true" }, this.words);
    this.clock = el("span", { class: "reasoning-clock", "aria-hidden": "true" });
    const summary = el(
      "summary",
      {},
      el("span", { class: "pulse" }),
      this.label,
      this.tail,
      this.clock,
      createIcon("chevron-down", "icon-s"),
    );
    this.text = el("div", { class: "reasoning-words" });
    this.box = el("div", { class: "reasoning-text", tabindex: "0", role: "region", "aria-label": t("reasoning") }, this.text);
    this.root = el("details", { class: "reasoning", hidden: true }, summary, this.box);
    this.drawn = new StreamedMarkdown(this.text, () => ({}));
    summary.addEventListener("click", (event) => {
      event.preventDefault();
      keepInPlace(summary, () => this.toggle());
    });
    this.growth = new ResizeObserver(() => this.scrollToEnd());
    this.box.addEventListener("scroll", () => this.handleScroll(), { passive: true });
    this.reset();
  }

  /** Nothing was thought yet. */
  reset() {
    this.said = "";
    this.begun = null;
    this.seconds = 0;
    this.follows = true;
    this.drawn.reset();
    this.endThinking();
    this.root.hidden = true;
    this.root.open = false;
  }

  /** More of it. `live`: the answer has not begun yet. */
  append(text, live) {
    this.said += text;
    this.root.hidden = !this.said.trim();
    if (this.root.open) this.drawn.append(text);
    if (live && !this.root.hidden) this.showThinking();
  }

  showThinking() {
    if (this.begun === null) {
      this.begun = performance.now();
      this.root.classList.add("reasoning-live");
      this.label.textContent = t("reasoning.now");
      this.ticking = setInterval(() => this.updateClock(), 1000);
      this.updateClock();
    }
    this.redraw ??= setTimeout(() => this.showTail(), REDRAW_MS);
  }

  updateClock() {
    this.seconds = Math.round((performance.now() - this.begun) / 1000);
    this.clock.textContent = this.seconds ? t("trace.seconds", { seconds: this.seconds }) : "";
  }

  /** The last words on one line; what does not fit fades out before them. */
  showTail() {
    this.redraw = null;
    this.words.textContent = this.said.slice(-TAIL_CHARACTERS).replace(/[\s*_`#>|-]+/g, " ");
    this.tail.classList.toggle("reasoning-long", this.words.offsetWidth > this.tail.clientWidth);
  }

  /** The answer begins, or there will be none. */
  endThinking() {
    clearInterval(this.ticking);
    clearTimeout(this.redraw);
    this.redraw = null;
    if (this.begun !== null) this.updateClock();
    this.begun = null;
    this.root.classList.remove("reasoning-live");
    this.tail.classList.remove("reasoning-long");
    this.words.textContent = this.clock.textContent = "";
    this.label.textContent = this.seconds ? tn("reasoning.took", this.seconds) : t("reasoning");
  }

  /** The whole of it, as it stays. */
  complete(text) {
    this.endThinking();
    this.said = text;
    this.root.hidden = !text.trim();
    this.follows = false;
    if (this.root.open) this.drawn.finish(text);
  }

  toggle() {
    this.root.open = !this.root.open;
    if (!this.root.open) return;
    this.growth.observe(this.text);
    this.drawn.reset();
    if (this.begun === null) this.drawn.finish(this.said);
    else this.drawn.append(this.said);
  }

  handleScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    this.follows = this.begun !== null && scrollHeight - clientHeight - scrollTop < 24;
  }

  scrollToEnd() {
    if (this.follows && this.begun !== null) this.box.scrollTop = this.box.scrollHeight;
  }
}
