// Editor of a document's metadata: fields are added, changed and emptied, then saved together.

import { patchJson } from "./api.js";
import { byId, createIconButton, el } from "./dom.js";
import { t } from "./strings.js";

const MAX_VALUE_CHARACTERS = 1000;

/** Events: `saved`. `page` holds `metadata`, the names of its known keys, and the document. */
export class MetadataEditor extends EventTarget {
  constructor(page) {
    super();
    this.page = page;
    this.form = byId("metadata-form");
    const part = (name) => this.form.querySelector(`[data-${name}]`);
    this.fields = part("fields");
    this.keys = part("key");
    this.ownKey = part("own-key");
    this.trouble = part("trouble");
    byId("metadata-edit").addEventListener("click", () => this.open());
    part("cancel").addEventListener("click", () => this.close());
    part("add").addEventListener("click", () => this.addField());
    this.keys.addEventListener("change", () => this.showOwnKey());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save();
    });
  }

  get shown() {
    return byId("metadata-shown");
  }

  /** Keys that have a field now, in their order. */
  get inputs() {
    return [...this.fields.querySelectorAll("input")];
  }

  open() {
    const { metadata, metadata_names: names } = this.page;
    const known = Object.keys(names).filter((key) => key in metadata);
    const keys = new Set([...known, ...Object.keys(metadata)]);
    this.before = metadata;
    this.fields.replaceChildren(...[...keys].filter((key) => isText(metadata[key])).map((key) => this.createField(key, metadata[key])));
    this.offerKeys();
    this.showTrouble("");
    this.setOpen(true);
    (this.inputs[0] ?? this.keys).focus();
  }

  close() {
    this.setOpen(false);
    byId("metadata-edit").focus();
  }

  setOpen(isOpen) {
    this.form.hidden = !isOpen;
    this.shown.hidden = isOpen;
    byId("metadata-edit").hidden = isOpen;
  }

  /** Whether the reader may change the document: if not, what is open closes. */
  setMayChange(mayChange) {
    if (!mayChange) this.setOpen(false);
    byId("metadata-edit").hidden = !mayChange || !this.form.hidden;
  }

  createField(key, value) {
    const input = el("input", { type: "text", maxlength: MAX_VALUE_CHARACTERS, data: { key } });
    input.value = value;
    const name = this.page.metadata_names[key] ?? key;
    const remove = createIconButton("x", t("remove_field", { name }), { on: { click: () => this.removeField(label) } });
    const label = el("div", { class: "metadata-field" }, el("label", {}, el("span", { text: name }), input), remove);
    return label;
  }

  removeField(label) {
    label.remove();
    this.offerKeys();
    this.keys.focus();
  }

  /** Offer known fields that are missing, and a custom one. */
  offerKeys() {
    const there = new Set(this.inputs.map((input) => input.dataset.key));
    const free = Object.entries(this.page.metadata_names).filter(([key]) => !there.has(key));
    const option = ([key, name]) => el("option", { value: key, text: name });
    this.keys.replaceChildren(...free.map(option), option(["", t("own_field")]));
    this.showOwnKey();
  }

  showOwnKey() {
    this.ownKey.hidden = this.keys.value !== "";
  }

  addField() {
    const key = this.keys.value || this.ownKey.value.normalize("NFC").trim();
    if (!key) return this.ownKey.focus();
    const there = this.inputs.find((input) => input.dataset.key === key);
    if (!there) this.fields.append(this.createField(key, ""));
    this.ownKey.value = "";
    this.offerKeys();
    return (there ?? this.inputs.at(-1)).focus();
  }

  /** The changed fields; null removes a field. */
  get changes() {
    const now = Object.fromEntries(this.inputs.map((input) => [input.dataset.key, input.value.trim() || null]));
    const texts = Object.keys(this.before).filter((key) => isText(this.before[key]));
    const gone = texts.filter((key) => !(key in now)).map((key) => [key, null]);
    const changed = Object.entries(now).filter(([key, value]) => value !== (this.before[key] ?? null));
    return Object.fromEntries([...changed, ...gone]);
  }

  async save() {
    const { changes } = this;
    if (!Object.keys(changes).length) return this.close();
    this.form.inert = true;
    try {
      const saved = await patchJson(`/documents/${this.page.document.id}`, { metadata: changes });
      this.page.metadata = saved.metadata;
      this.close();
      this.dispatchEvent(new Event("saved"));
    } catch (error) {
      this.showTrouble(error.message);
    } finally {
      this.form.inert = false;
    }
    return undefined;
  }

  showTrouble(text) {
    this.trouble.hidden = !text;
    this.trouble.textContent = text;
  }
}

/** Lists and objects are set by programs only. */
function isText(value) {
  return typeof value === "string";
}
