// Options for what is typed in a field, which keeps the focus: arrow keys move among them, Enter or Tab takes the highlighted one.

import { announce, createIcon, el } from "./dom.js";
import { isEnter } from "./ime.js";
import { tn } from "./strings.js";

const DOUBLED_ENTER_MS = 150; // an Enter that closed a syllable may be reported again
const STEPS = { ArrowDown: 1, ArrowUp: -1 };

/** `root` is the popover for the options. */
export class OptionList {
  constructor(input, root) {
    this.input = input;
    this.root = root;
    this.options = [];
    this.at = -1;
    this.ignoreUntil = 0;
    this.timer = 0;
    input.addEventListener("input", () => this.update());
    input.addEventListener("blur", () => this.close());
    input.addEventListener("keydown", (event) => this.handleKey(event), { capture: true });
    root.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
    addEventListener("resize", () => this.isOpen && this.placeRoot());
  }

  get isOpen() {
    return this.root.matches(":popover-open");
  }

  /** Offer options for what the field holds now. */
  update() {}

  /** Place the list beside the field. */
  placeRoot() {}

  /** Show options, {icon, label, hint, choose}, none of them highlighted; closes where there are none. */
  open(options) {
    this.options = options;
    if (!options.length) {
      this.close();
      return;
    }
    this.root.replaceChildren(...options.map((option, index) => this.createRow(option, index)));
    if (!this.isOpen) {
      this.root.showPopover();
      announce(tn("menu.options", options.length));
    }
    this.placeRoot();
    this.at = -1;
    this.input.removeAttribute("aria-activedescendant");
  }

  createRow({ icon, label, hint, choose }, index) {
    const row = el(
      "div",
      { class: "menu-item option", role: "option", id: `${this.root.id}-${index}`, "aria-selected": "false" },
      createIcon(icon),
      el("span", { class: "option-name", text: label }),
      hint ? el("small", { text: hint }) : null,
    );
    row.addEventListener("click", choose);
    return row;
  }

  highlight(index) {
    this.at = (index + this.options.length) % this.options.length;
    [...this.root.children].forEach((row, at) => row.setAttribute("aria-selected", String(at === this.at)));
    const row = this.root.children[this.at];
    this.input.setAttribute("aria-activedescendant", row.id);
    this.root.scrollTop = row.offsetTop - this.root.clientHeight / 2;
  }

  close() {
    clearTimeout(this.timer);
    this.input.removeAttribute("aria-activedescendant");
    if (this.isOpen) this.root.hidePopover();
  }

  /** Close because the reader pressed Escape. */
  dismiss() {
    this.close();
  }

  /** Before anybody else hears of the key: a highlighted option is chosen, and nothing sent. */
  handleKey(event) {
    if (isEnter(event) && event.timeStamp < this.ignoreUntil) {
      consumeEvent(event);
      return;
    }
    if (!this.isOpen) return;
    const step = STEPS[event.key];
    if (step) {
      consumeEvent(event);
      this.highlight(this.at < 0 && step < 0 ? -1 : this.at + step);
    } else if (event.key === "Escape") {
      consumeEvent(event);
      this.dismiss();
    } else if (this.at >= 0 && ((isEnter(event) && !event.shiftKey) || event.key === "Tab")) {
      consumeEvent(event);
      this.chooseHighlighted(event);
    }
  }

  /** A syllable that is still open is closed first: its end may come after the key. */
  chooseHighlighted(event) {
    const option = this.options[this.at];
    if (!event.isComposing) {
      option.choose();
      return;
    }
    this.input.addEventListener(
      "compositionend",
      (end) => {
        this.ignoreUntil = end.timeStamp + DOUBLED_ENTER_MS;
        setTimeout(() => option.choose());
      },
      { once: true },
    );
  }
}

function consumeEvent(event) {
  event.preventDefault();
  event.stopImmediatePropagation();
}
