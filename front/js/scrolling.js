// Moves what scrolls: the thread, whose end is followed until the reader scrolls up, and panes within the page.

import { byId } from "./dom.js";

const NEAR = 90;
const MOVES = new Set(["auto", "scroll"]);

/**
 * Bring `node` to `share` (0..1) of the height of the pane that it scrolls in: 0 is its top, 0.5 its middle.
 * The browser's own scrollIntoView moves all around it too, even the page, which nobody could move back.
 */
export function scrollWithin(node, share = 0) {
  let pane = node.parentElement;
  while (pane && !MOVES.has(getComputedStyle(pane).overflowY)) pane = pane.parentElement;
  if (!pane) return;
  const box = node.getBoundingClientRect();
  const room = Math.max(0, pane.clientHeight - box.height);
  pane.scrollTop += box.top - pane.getBoundingClientRect().top - pane.clientTop - room * share;
}

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
