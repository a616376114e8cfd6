// Suggests people while a name is typed in a field with `data-suggests-people`: "several" if it takes names with commas between.

import { getJson } from "./api.js";
import { el } from "./dom.js";
import { OptionList } from "./option_list.js";
import { t } from "./strings.js";

const SEARCH_WAIT_MS = 120;
const LAST_NAME = /[^,，]*$/;
const LEAST_ROOM_PX = 160; // below the field
const GAP_PX = 4;

let count = 0;
const watched = new WeakSet();

class PeopleMenu extends OptionList {
  constructor(input) {
    count += 1;
    const root = el("div", { class: "menu option-list", id: `people-${count}`, popover: "manual", role: "listbox", "aria-label": t("people") });
    input.after(root); // in its dialog: what is outside of an open dialog cannot be used
    for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-controls": root.id })) {
      input.setAttribute(name, value);
    }
    super(input, root);
    this.takesSeveral = input.dataset.suggestsPeople === "several";
    this.showState();
  }

  showState() {
    this.input.setAttribute("aria-expanded", String(this.isOpen));
  }

  /** What has been typed of the name at the caret; empty where a group is named. */
  readName() {
    if (this.input.form?.elements.kind?.value === "group") return "";
    const before = this.input.value.slice(0, this.input.selectionStart);
    return (this.takesSeveral ? LAST_NAME.exec(before)[0] : before).trim();
  }

  update() {
    clearTimeout(this.timer);
    const name = this.readName();
    if (name) this.timer = setTimeout(() => this.suggest(name), SEARCH_WAIT_MS);
    else this.close();
  }

  async suggest(name) {
    const found = await getJson(`/people?q=${encodeURIComponent(name)}`).catch(() => []);
    if (name !== this.readName() || document.activeElement !== this.input) return;
    this.open(
      found.map((person) => ({
        icon: "user",
        label: person.name,
        hint: person.name === person.username ? "" : person.username,
        choose: () => this.insertName(person.username),
      })),
    );
  }

  insertName(name) {
    const { value, selectionStart: caret } = this.input;
    const from = this.takesSeveral ? caret - LAST_NAME.exec(value.slice(0, caret))[0].trimStart().length : 0;
    const isLast = this.takesSeveral && !value.slice(caret).trim();
    this.input.setRangeText(isLast ? `${name}, ` : name, from, this.takesSeveral ? caret : value.length, "end");
    this.close();
  }

  open(options) {
    super.open(options);
    this.showState();
  }

  close() {
    super.close();
    this.showState();
  }

  placeRoot() {
    const box = this.input.getBoundingClientRect();
    const isBelow = innerHeight - box.bottom > LEAST_ROOM_PX;
    Object.assign(this.root.style, {
      left: `${box.left}px`,
      width: `${box.width}px`,
      top: isBelow ? `${box.bottom + GAP_PX}px` : "auto",
      bottom: isBelow ? "auto" : `${innerHeight - box.top + GAP_PX}px`,
    });
  }
}

// Dialogs are filled later than the page.
document.addEventListener("focusin", ({ target }) => {
  if (!(target instanceof HTMLInputElement) || !target.dataset.suggestsPeople || watched.has(target)) return;
  watched.add(target);
  new PeopleMenu(target);
});
