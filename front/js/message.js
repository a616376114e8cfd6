// What questions and answers share: the branch switcher, the menu, and plain text if rendering fails.

import { createIcon, createIconButton, el, placeBeside } from "./dom.js";
import { renderPlain } from "./markdown.js";
import { t } from "./strings.js";

/** Buttons that switch between branches; hidden if there is only one. */
export class BranchSwitcher {
  /** `onStep(step)` is called with -1 or 1. */
  constructor(onStep) {
    this.previous = createIconButton("chevron-left", t("branch_previous"), { data: { branch: "previous" } });
    this.next = createIconButton("chevron-right", t("branch_next"), { data: { branch: "next" } });
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

  /** Keep the focus after switching; at the last branch it moves to the button back. */
  focus(step) {
    const wished = step < 0 ? this.previous : this.next;
    const other = step < 0 ? this.next : this.previous;
    (wished.disabled ? other : wished).focus({ preventScroll: true });
  }
}

/** The menu button of the message that `getMessage()` returns; `hooks`: fork(message), remove(message), listOtherModels(message), compare(message, model), isBusy(). */
export function createMessageMenu(getMessage, hooks) {
  const button = createIconButton("ellipsis", t("more"), {
    class: "icon-button branching",
    data: { action: "more" },
    "aria-haspopup": "menu",
    "aria-expanded": "false",
  });
  button.addEventListener("click", () => {
    const others = getMessage().role === "assistant" && !hooks.isBusy() ? (hooks.listOtherModels?.(getMessage()) ?? []) : [];
    openMenu(button, [
      ...others.map((model) => ({
        name: "compare",
        icon: "sparkles",
        label: t("compare.with", { name: model.name }),
        run: () => hooks.compare(getMessage(), model.id),
      })),
      { name: "fork", icon: "git-fork", run: () => hooks.fork(getMessage()) },
      { name: "remove", icon: "trash-2", danger: true, run: () => hooks.remove(getMessage()) },
    ]);
  });
  return button;
}

const MENU_STEPS = { ArrowDown: 1, ArrowUp: -1 };

/** Open a menu at `anchor`, with arrow keys; each entry: {name, icon, label?, checked?, role?, danger?, run}. */
export function openMenu(anchor, entries, title = t("more")) {
  const items = entries.map(({ name, icon, label, checked, role, danger, run }) =>
    el(
      "button",
      {
        type: "button",
        class: `menu-item ${danger ? "menu-danger" : ""}`.trim(),
        role: checked === undefined ? "menuitem" : (role ?? "menuitemradio"),
        "aria-checked": checked === undefined ? null : String(checked),
        data: { action: name },
        on: {
          click: () => {
            menu.hidePopover();
            run();
          },
        },
      },
      createIcon(icon),
      label ?? t(`message.${name}`),
    ),
  );
  const menu = el("div", { class: "menu message-menu", popover: "auto", role: "menu", "aria-label": title }, items);
  menu.addEventListener("keydown", (event) => {
    const step = MENU_STEPS[event.key];
    const ends = { Home: 0, End: items.length - 1 }[event.key];
    if (!step && ends === undefined) return;
    event.preventDefault();
    const here = items.indexOf(/** @type {any} */ (document.activeElement));
    items[ends ?? (here + step + items.length) % items.length].focus();
  });
  menu.addEventListener("toggle", ({ newState }) => {
    anchor.setAttribute("aria-expanded", String(newState === "open"));
    if (newState === "open") return;
    if (menu.contains(document.activeElement)) anchor.focus({ preventScroll: true });
    menu.remove();
  });
  document.body.append(menu);
  menu.showPopover();
  placeBeside(menu, anchor);
  (items.find((one) => one.getAttribute("aria-checked") === "true") ?? items[0]).focus({ preventScroll: true });
}

/** Log to the console; the reader still gets the text. */
export function logDrawingError(error, message) {
  console.error(`Message ${message.id} could not be drawn`, error);
}

/** The text of a message as elements. */
export function renderPlainText({ content }) {
  return renderPlain(content ?? "");
}

/** A note that the formatting is missing. */
export function createPlainNote() {
  return el("p", { class: "note msg-told msg-plain", role: "note" }, createIcon("info"), el("span", { text: t("shown_plain") }));
}

/** The view that `make` returns; if it throws, one of the plain text. */
export function createViewOrPlain(message, hooks, make) {
  try {
    return make();
  } catch (error) {
    logDrawingError(error, message);
    return new PlainView(message, hooks);
  }
}

/** A question or answer of which only the text can be shown; `hooks`: switchBranch(message, by). */
export class PlainView {
  constructor(message, hooks) {
    this.message = message;
    this.switcher = new BranchSwitcher((by) => hooks.switchBranch(message, by));
    const isQuestion = message.role === "user";
    this.root = el(
      "article",
      { class: `msg ${isQuestion ? "msg-question" : "msg-answer"}`, data: { messageId: message.id } },
      el("h3", { class: "visually-hidden", text: t(isQuestion ? "your_question" : "answer") }),
      el("div", { class: isQuestion ? "bubble" : "prose" }, renderPlainText(message)),
      createPlainNote(),
      this.switcher.root,
    );
  }
}
