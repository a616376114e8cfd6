// Thumbs under an answer. A verdict is given once; a reason may be added to a bad one.

import { post } from "./api.js";
import { el, iconButton, placeBeside } from "./dom.js";
import { t } from "./strings.js";
import { toast } from "./toast.js";

/** Two buttons that show and change `message.feedback`. */
export function thumbs(message) {
  const up = iconButton("thumbs-up", t("helpful"), { data: { thumb: "1" } });
  const down = iconButton("thumbs-down", t("not_helpful"), { data: { thumb: "-1" }, "aria-haspopup": "dialog" });
  const show = () => {
    up.setAttribute("aria-pressed", String(message.feedback?.value === 1));
    down.setAttribute("aria-pressed", String(message.feedback?.value === -1));
  };
  let sent = Promise.resolve();
  const give = async (value, reason = "") => {
    const before = message.feedback;
    message.feedback = { value, reason };
    show();
    const sending = sent.then(() => post(`/messages/${message.id}/feedback`, { value, reason }));
    sent = sending.catch(() => {}); // one after the other: what was said last is what stays
    try {
      await sending;
      return true;
    } catch (error) {
      message.feedback = before;
      show();
      toast(error.message, { kind: "toast-error" });
      return false;
    }
  };
  up.addEventListener("click", () => message.feedback?.value !== 1 && give(1));
  down.addEventListener("click", () => {
    if (message.feedback?.value !== -1) give(-1);
    askReason(down, message.feedback.reason, (reason) => give(-1, reason));
  });
  show();
  return [up, down];
}

/** A small popover at the thumb; closing it sends nothing. */
function askReason(anchor, known, send) {
  const input = el("input", { type: "text", maxlength: "1000", placeholder: t("reason"), "aria-label": t("reason"), value: known });
  const form = el("form", { class: "feedback" }, input, el("button", { class: "button", type: "submit", text: t("send") }));
  const popover = el("div", { class: "menu feedback-popover", popover: "auto", role: "dialog", "aria-label": t("reason") }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const reason = input.value.trim();
    popover.hidePopover();
    if (reason !== known && (await send(reason)) && reason) toast(t("thanks"));
  });
  popover.addEventListener("toggle", (event) => {
    if (event.newState === "open") return;
    if (popover.contains(document.activeElement)) anchor.focus({ preventScroll: true });
    popover.remove();
  });
  document.body.append(popover);
  popover.showPopover();
  placeBeside(popover, anchor);
  input.focus({ preventScroll: true });
}
