// Follows the end of the thread while it grows, until the reader scrolls up.

import { byId } from "./dom.js";

const NEAR = 90;

export class Scrolling {
  constructor(root) {
    this.scroller = byId("scroller");
    this.stick = true;
    this.before = 0;
    this.down = byId("to-end");
    this.scroller.addEventListener("scroll", () => this.moved(), { passive: true });
    this.down.addEventListener("click", () => this.toEnd(true));
    const resized = new ResizeObserver(() => this.stick && this.toEnd());
    resized.observe(root);
    resized.observe(this.scroller); // rows come and go under it
  }

  moved() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const gap = scrollHeight - clientHeight - scrollTop;
    if (scrollTop < this.before - 2 && gap > 4) this.stick = false;
    if (gap < NEAR / 2) this.stick = true;
    this.before = scrollTop;
    this.down.hidden = gap < NEAR * 2;
  }

  toEnd(smooth = false) {
    this.stick = true;
    this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: smooth ? "smooth" : "instant" });
  }

  /** Change the thread while what is below `anchor` stays where it is; `change` may give another anchor. */
  hold(anchor, change) {
    const before = anchor.getBoundingClientRect().top;
    this.stick = false;
    const after = change() ?? anchor;
    this.scroller.scrollTop += after.getBoundingClientRect().top - before;
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.stick = scrollHeight - clientHeight - scrollTop < 4;
    this.before = scrollTop;
  }
}
