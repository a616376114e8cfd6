// Libraries on the document pages: create, edit and delete them, manage members, and move documents.

import { toAddress } from "./address.js";
import { getJson, patchJson, postJson, sendDelete } from "./api.js";
import { byId, createIconButton, el } from "./dom.js";
import { askConfirmation, showError } from "./notify.js";
import { t } from "./strings.js";

const ROLES = ["reader", "contributor", "manager"];
const MEMBERS_A_PAGE = 100;

/** The bar above the list: choose a library, create one, change the one shown. */
export function watchLibraryBar(page) {
  const choice = byId("library");
  choice.addEventListener("change", ({ target }) => openLibrary(target.value));
  watchLibraryOptions(choice);
  const dialog = new LibraryDialog();
  byId("library-new").addEventListener("click", () => dialog.open(null));
  document.getElementById("library-manage")?.addEventListener("click", () => dialog.open(page.library));
}

/**
 * Replace the options with those of the new list. htmx would move them one by one, after which browsers select the last one,
 * and would close the menu while the reader has it open.
 */
function watchLibraryOptions(choice) {
  let options = "";
  const show = () => {
    if (options) choice.innerHTML = options;
    options = "";
  };
  document.body.addEventListener("htmx:oobBeforeSwap", ({ detail }) => {
    if (detail.target !== choice) return;
    detail.shouldSwap = false;
    options = detail.fragment.innerHTML;
    if (document.activeElement !== choice) show();
  });
  choice.addEventListener("blur", show);
}

function openLibrary(id) {
  location.assign(toAddress(`/documents${id ? `?library=${id}` : ""}`));
}

class LibraryDialog {
  constructor() {
    this.root = byId("library-dialog");
    this.form = byId("library-form");
    this.members = byId("library-members");
    this.list = byId("member-list");
    this.root.querySelector("[data-close]").addEventListener("click", () => this.root.close());
    this.form.addEventListener("submit", (event) => this.runAction(event, () => this.save()));
    byId("member-form").addEventListener("submit", (event) => this.runAction(event, () => this.addMember(event.target)));
    byId("library-delete").addEventListener("click", () => this.deleteLibrary());
  }

  /** `library` is null for a new one. */
  async open(library) {
    this.library = library;
    byId("library-dialog-title").textContent = library ? library.name : t("library.new");
    this.form.elements.name.value = library?.name ?? "";
    this.form.elements.description.value = library?.description ?? "";
    this.members.hidden = !library;
    this.showTrouble("");
    this.root.showModal();
    if (library) await this.showMembers();
  }

  get path() {
    return `/libraries/${this.library.id}`;
  }

  async runAction(event, call) {
    event.preventDefault();
    this.showTrouble("");
    await call().catch((error) => this.showTrouble(error.message));
  }

  showTrouble(trouble) {
    byId("library-trouble").textContent = trouble;
    byId("library-trouble").hidden = !trouble;
  }

  async save() {
    const { name, description } = this.form.elements;
    const fields = { name: name.value, description: description.value };
    const saved = this.library ? await patchJson(this.path, fields) : await postJson("/libraries", fields);
    openLibrary(saved.id);
  }

  async showMembers() {
    const found = [];
    for (let number = 1, list = null; number === 1 || list?.next; number += 1) {
      list = await getJson(`${this.path}/members?page_size=${MEMBERS_A_PAGE}&page=${number}`).catch((error) => this.showTrouble(error.message));
      found.push(...(list?.results ?? []));
    }
    this.list.replaceChildren(...found.map((member) => this.createMemberRow(member)));
  }

  createMemberRow(member) {
    const { name } = member;
    const role = el(
      "select",
      { "aria-label": t("member.role", { name }) },
      ROLES.map((one) => el("option", { value: one, text: t(`role.${one}`), selected: one === member.role })),
    );
    role.addEventListener("change", (event) =>
      this.runAction(event, async () => {
        try {
          await patchJson(`${this.path}/members/${member.id}`, { role: role.value });
          member.role = role.value;
        } finally {
          role.value = member.role;
        }
      }),
    );
    const remove = createIconButton("x", t("member.remove", { name }));
    remove.addEventListener("click", (event) =>
      this.runAction(event, async () => {
        await sendDelete(`${this.path}/members/${member.id}`);
        await this.showMembers();
      }),
    );
    const account = member.user === name ? null : member.user;
    const kind = member.group ? t("member.group") : account;
    return el("li", {}, el("span", { class: "member-name" }, name, kind ? el("small", { text: kind }) : null), role, remove);
  }

  async addMember(form) {
    const { kind, name, role } = form.elements;
    await postJson(`${this.path}/members`, { [kind.value]: name.value, role: role.value });
    name.value = "";
    await this.showMembers();
  }

  async deleteLibrary() {
    this.root.close();
    const said = await askConfirmation({
      title: t("library.delete_sure", { name: this.library.name }),
      text: t("library.delete_text"),
      yes: t("delete"),
      choice: t("library.delete_documents"),
    });
    if (!said) return;
    try {
      await sendDelete(`${this.path}?documents=${said.chosen ? "delete" : "owners"}`);
      openLibrary("");
    } catch (error) {
      showError(error);
    }
  }
}

/**
 * Ask where to move documents. `libraries` are those of the page.
 *
 * @param {{id: string, name: string, role: string}[]} libraries
 * @param {string} current the id of the library that they are in, empty for private documents
 * @returns {Promise<{library_id: string | null} | null>} null if cancelled
 */
export function askForLibrary(libraries, current = "") {
  const dialog = /** @type {HTMLDialogElement} */ (byId("library-target"));
  const choice = /** @type {HTMLSelectElement} */ (byId("library-target-choice"));
  const open = libraries.filter(({ role }) => role !== "reader");
  const option = (value, text) => el("option", { value, text, selected: value === current });
  choice.replaceChildren(option("", t("library.private")), ...open.map(({ id, name }) => option(id, name)));
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((answer) => {
    const told = () => (dialog.returnValue === "yes" ? { library_id: choice.value || null } : null);
    dialog.addEventListener("close", () => answer(told()), { once: true });
  });
}
