// Several documents chosen in the table, and what is done with all of them.

import { calls, possible } from "./document_actions.js";
import { t, tn } from "./strings.js";
import { confirmed, toast } from "./toast.js";

const AT_ONCE = 4;
const MOST_ASKED = 50; // documents that an address may name

/** Events: `done` once an action has ended. */
export class Bulk extends EventTarget {
  constructor({ table, bar }) {
    super();
    this.table = table;
    this.bar = bar;
    this.chosen = new Map(); // id -> what the row said of it
    this.words = bar.querySelector("[data-words]");
    table.addEventListener("change", (event) => this.toggled(event.target));
    document.body.addEventListener("htmx:afterSwap", () => this.restore());
    bar.addEventListener("click", (event) => {
      const action = event.target.closest("[data-bulk]")?.dataset.bulk;
      if (action === "none") this.clear();
      else if (calls[action]) this.run(action);
    });
  }

  get boxes() {
    return [...this.table.querySelectorAll("[data-choose]")];
  }

  toggled(box) {
    if (box.matches("[data-choose-all]")) for (const one of this.boxes) this.put(one, box.checked);
    else if (box.matches("[data-choose]")) this.put(box, box.checked);
    else return;
    this.show();
  }

  put(box, on) {
    box.checked = on;
    const row = box.closest("[data-document-id]");
    if (on) this.chosen.set(row.dataset.documentId, row);
    else this.chosen.delete(row.dataset.documentId);
  }

  /** The table was drawn anew: the same documents are chosen in it. */
  restore() {
    for (const box of this.boxes) {
      const row = box.closest("[data-document-id]");
      box.checked = this.chosen.has(row.dataset.documentId);
      if (box.checked) this.chosen.set(row.dataset.documentId, row);
    }
    this.show();
  }

  clear() {
    this.chosen.clear();
    this.restore();
  }

  /** The ids for which `action` makes sense. */
  fit(action) {
    return [...this.chosen].filter(([, row]) => possible(row.dataset)[action]).map(([id]) => id);
  }

  show() {
    this.bar.hidden = !this.chosen.size;
    const all = this.table.querySelector("[data-choose-all]");
    const chosen = this.boxes.filter((box) => box.checked).length;
    if (all) {
      all.checked = chosen > 0 && chosen === this.boxes.length;
      all.indeterminate = chosen > 0 && chosen < this.boxes.length;
    }
    this.words.textContent = tn("bulk.chosen", this.chosen.size);
    for (const button of this.bar.querySelectorAll("[data-bulk]")) {
      if (button.dataset.bulk !== "none") button.hidden = !this.fit(button.dataset.bulk).length;
    }
    const ask = this.bar.querySelector("[data-bulk=ask]");
    ask.href = `/?documents=${this.fit("ask").join(",")}`;
    ask.hidden ||= this.fit("ask").length > MOST_ASKED;
  }

  async run(action) {
    const ids = this.fit(action);
    if (action === "delete" && !(await this.isSure(ids.length))) return;
    const refused = [];
    const rest = [...ids];
    const work = async () => {
      while (rest.length) await calls[action](rest.shift()).catch((error) => refused.push(error.message));
    };
    this.bar.inert = true;
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    this.bar.inert = false;
    if (refused.length) toast(`${tn("bulk.refused", refused.length)} ${refused[0]}`, { kind: "toast-error" });
    else toast(tn(`bulk.${action}`, ids.length));
    this.clear();
    this.dispatchEvent(new Event("done"));
  }

  isSure(count) {
    return confirmed({ title: tn("bulk.delete_sure", count), text: t("delete_document_text"), yes: t("delete") });
  }
}
