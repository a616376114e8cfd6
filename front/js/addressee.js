// Who answers the next question: the assistant of the chat, or one that was picked with `@`.

import { saveChoice } from "./chat_actions.js";
import { byId } from "./dom.js";

/** `kept`: the chat's assistant {id, name, symbol} or null. One picked in a chat is asked once; a new chat keeps it. */
export class Addressee {
  constructor({ kept, getChatId }) {
    this.kept = kept ?? null;
    this.picked = null;
    this.getChatId = getChatId;
    this.root = byId("asked");
    byId("asked-remove").addEventListener("click", () => this.remove());
    this.render();
  }

  get id() {
    return (this.picked ?? this.kept)?.id ?? null;
  }

  setAssistant(assistant) {
    this.picked = assistant;
    this.render();
  }

  /** The assistant's id for the next question. One picked for that alone is dropped then; a new chat keeps it. */
  useForQuestion() {
    const isNew = !this.getChatId();
    const id = this.picked?.id ?? (isNew ? (this.kept?.id ?? null) : null);
    if (isNew && this.picked) this.kept = this.picked;
    this.picked = null;
    this.render();
    return id;
  }

  /** Remove the picked assistant if there is one, else the chat's. */
  async remove() {
    if (this.picked) this.picked = null;
    else {
      const before = this.kept;
      this.kept = null;
      if (!(await saveChoice(this.getChatId(), { assistant_id: null }))) this.kept = before;
    }
    this.render();
    byId("composer-input").focus();
  }

  render() {
    const shown = this.picked ?? this.kept;
    this.root.hidden = !shown;
    byId("asked-name").textContent = shown?.name ?? "";
  }
}
