// "2 / 3" with two arrows: which of several branches a message shows.

import { el, iconButton } from "./dom.js";
import { t } from "./strings.js";

/** Hidden while there is but one branch. */
export class Switcher {
  /** `onStep(step)` is called with -1 or 1. */
  constructor(onStep) {
    this.previous = iconButton("chevron-left", t("branch_previous"), { data: { branch: "previous" } });
    this.next = iconButton("chevron-right", t("branch_next"), { data: { branch: "next" } });
    this.count = el("span", { class: "branch-count" });
    this.previous.addEventListener("click", () => onStep(-1));
    this.next.addEventListener("click", () => onStep(1));
    this.root = el(
      "span",
      { class: "branches", role: "group", "aria-label": t("branches"), hidden: true },
      this.previous,
      this.count,
      this.next,
    );
  }

  show({ index, ids }) {
    this.root.hidden = ids.length < 2;
    this.count.textContent = `${index + 1}/${ids.length}`;
    this.previous.disabled = index <= 0;
    this.next.disabled = index >= ids.length - 1;
  }

  /** Keep the keyboard where it was after the other branch came; the end of the row gives it to the way back. */
  focus(step) {
    const wished = step < 0 ? this.previous : this.next;
    const other = step < 0 ? this.next : this.previous;
    (wished.disabled ? other : wished).focus({ preventScroll: true });
  }
}
