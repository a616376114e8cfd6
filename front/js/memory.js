// The documents that the conversation is about, above the composer: the next question keeps to them, or leaves them.

import { get, remove } from "./api.js";
import { announce, byId } from "./dom.js";
import { t, tn } from "./strings.js";
import { toast } from "./toast.js";

const AUTO = "auto";

/** Events: `forgotten`. `topic` is what was chosen for the next question. */
export class Memory extends EventTarget {
  constructor() {
    super();
    this.root = byId("memory");
    this.buttons = [...this.root.querySelectorAll("[data-topic]")];
    this.documents = [];
    this.chatId = null;
    this.covered = false;
    this.topic = AUTO;
    for (const button of this.buttons) button.addEventListener("click", () => this.choose(button.dataset.topic));
    byId("memory-forget").addEventListener("click", () => this.forget());
  }

  /** Look what the chat remembers now. */
  async refresh(chatId) {
    this.chatId = chatId;
    const found = chatId ? await get(`/chats/${chatId}/memory`).catch(() => null) : null;
    if (chatId !== this.chatId) return;
    this.documents = found?.documents ?? [];
    this.show();
  }

  /** Documents chosen for the next question outrank the remembered ones. */
  cover(covered) {
    this.covered = covered;
    this.show();
  }

  /** A second tap takes the choice back. */
  choose(topic) {
    this.topic = this.topic === topic ? AUTO : topic;
    this.show();
  }

  /** The choice, for one question. */
  take() {
    const topic = this.root.hidden ? AUTO : this.topic;
    this.topic = AUTO;
    this.show();
    return topic;
  }

  async forget() {
    try {
      await remove(`/chats/${this.chatId}/memory`);
    } catch (error) {
      toast(error.message, { kind: "toast-error" });
      return;
    }
    this.documents = [];
    this.topic = AUTO;
    this.show();
    announce(t("memory.forgotten"));
    this.dispatchEvent(new Event("forgotten"));
  }

  show() {
    const [first, ...others] = this.documents.map((document) => document.title);
    this.root.hidden = this.covered || !first;
    byId("memory-name").textContent = first ?? "";
    byId("memory-rest").textContent = others.length ? tn("names.others", others.length) : "";
    byId("memory-what").title = [first, ...others].filter(Boolean).join("\n");
    for (const button of this.buttons) button.setAttribute("aria-pressed", String(button.dataset.topic === this.topic));
  }
}
