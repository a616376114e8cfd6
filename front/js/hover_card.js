// A small card beside something in the thread while that is pointed at or has the focus.

import { byId, el, placeBeside } from "./dom.js";

const LINGER = 120;

/** `fill(card, target)` writes the card for what matches `selector`; false where there is nothing to say. */
export function hoverCard(root, selector, { id, fill }) {
  const card = el("div", { class: "hover-card", popover: "manual", id, role: "tooltip" });
  document.body.append(card);
  let leaving = null;
  const close = () => card.matches(":popover-open") && card.hidePopover();
  const show = (target) => {
    if (fill(card, target) === false) return;
    clearTimeout(leaving);
    if (!card.matches(":popover-open")) card.showPopover();
    placeBeside(card, target, { above: true, centred: true });
  };
  const hide = () => {
    clearTimeout(leaving);
    leaving = setTimeout(close, LINGER);
  };
  const on = (type, run) =>
    root.addEventListener(type, (event) => {
      const target = event.target.closest?.(selector);
      if (target) run(target, event);
    });
  on("mouseover", show);
  on("focusin", show);
  on("mouseout", hide);
  on("focusout", hide);
  on("keydown", (target, event) => {
    if (event.key !== "Escape" || !card.matches(":popover-open")) return;
    event.preventDefault();
    close();
  });
  byId("scroller")?.addEventListener("scroll", hide, { passive: true });
  return { hide };
}
