// A message that cannot be drawn as it should: its text as it was written, so that the thread around it stays.

import { el, icon } from "./dom.js";
import { plainFragment } from "./markdown.js";
import { t } from "./strings.js";
import { Switcher } from "./switcher.js";

/** Tell the console; the reader gets the text all the same. */
export function report(error, message) {
  console.error(`Message ${message.id} could not be drawn`, error);
}

/** The text of a message as elements. */
export function plainText({ content }) {
  return plainFragment(content ?? "");
}

/** A quiet word that something is missing. */
export function plainNote() {
  return el("p", { class: "note msg-told msg-plain", role: "note" }, icon("info"), el("span", { text: t("shown_plain") }));
}

/** The view that `make` gives; where it fails, one of the bare text. */
export function orPlain(message, hooks, make) {
  try {
    return make();
  } catch (error) {
    report(error, message);
    return new PlainView(message, hooks);
  }
}

/** Stands for a question or an answer of which nothing but the text can be shown; `hooks`: step(message, by). */
export class PlainView {
  constructor(message, hooks) {
    this.message = message;
    this.switcher = new Switcher((by) => hooks.step(message, by));
    const isQuestion = message.role === "user";
    this.root = el(
      "article",
      { class: `msg ${isQuestion ? "msg-question" : "msg-answer"}`, data: { messageId: message.id } },
      el("h3", { class: "visually-hidden", text: t(isQuestion ? "your_question" : "answer") }),
      el("div", { class: isQuestion ? "bubble" : "prose" }, plainText(message)),
      plainNote(),
      this.switcher.root,
    );
  }
}
