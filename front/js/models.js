// Language models: which one answers the next question, and two answers to one question side by side.

import { saveChoice } from "./chat_actions.js";
import { announce, byId, el, placeChildren } from "./dom.js";
import { openMenu } from "./message.js";
import { t, tn } from "./strings.js";

/** The model button of the composer. `models` are those that the reader may choose, the default first. */
export class ModelPicker {
  constructor({ models, chosen, getChatId }) {
    this.models = models;
    this.chosen = chosen ?? "";
    this.getChatId = getChatId; // a function: a new chat has none yet
    this.button = byId("model-button");
    this.text = byId("model-text");
    this.button.addEventListener("click", () => this.openMenu());
    this.render();
  }

  /** The model sent with the next question; empty: the chat's, else the default. */
  get value() {
    return this.isKnown ? this.chosen : "";
  }

  /** Whether the chosen model is still available. */
  get isKnown() {
    return !this.chosen || this.models.some((one) => one.id === this.chosen);
  }

  get current() {
    return this.chosen || this.models[0]?.id || "";
  }

  /** The models that another answer to the message may be asked of. */
  listOthers(message) {
    return this.models.filter((one) => one.id !== message.model);
  }

  /** A model's name, if there are several models. */
  getName(id) {
    if (!id || this.models.length < 2) return "";
    return this.models.find((one) => one.id === id)?.name ?? id;
  }

  openMenu() {
    const entries = this.models.map((one) => ({
      name: "model",
      icon: one.id === this.current ? "check" : "sparkles",
      label: one.default ? t("model.usual", { name: one.name }) : one.name,
      checked: one.id === this.current,
      run: () => this.choose(one.id),
    }));
    openMenu(this.button, entries, t("model"));
  }

  /** Let a model answer in this chat from now on. */
  async choose(id) {
    if (id === this.current && this.isKnown) return;
    const before = this.chosen;
    this.chosen = id;
    this.render();
    if (await saveChoice(this.getChatId(), { model: id })) {
      announce(t("model.chosen", { name: this.getName(id) }));
      return;
    }
    this.chosen = before;
    this.render();
  }

  render() {
    const needed = this.models.length > 1 || (!this.isKnown && this.models.length > 0);
    this.button.hidden = !needed;
    this.button.classList.toggle("model-gone", !this.isKnown);
    const name = this.models.find((one) => one.id === this.current)?.name;
    this.text.textContent = name ?? t("model.gone");
    this.button.setAttribute("aria-label", `${t("model")}: ${this.text.textContent}`);
  }
}

/** The button of the composer that switches on tools of other servers for the chat. */
export class ToolPicker {
  constructor({ servers, chosen, getChatId }) {
    this.servers = servers;
    this.chosen = new Set((chosen ?? []).filter((id) => servers.some((one) => one.id === id)));
    this.getChatId = getChatId;
    this.button = byId("tools-button");
    this.button.addEventListener("click", () => this.openMenu());
    this.render();
  }

  get ids() {
    return [...this.chosen];
  }

  openMenu() {
    const entries = this.servers.map((one) => ({
      name: "tools",
      icon: this.chosen.has(one.id) ? "check" : "plus",
      label: tn("tools.server", one.tools.length, { name: one.name }),
      checked: this.chosen.has(one.id),
      role: "menuitemcheckbox",
      run: () => this.toggle(one.id),
    }));
    openMenu(this.button, entries, t("tools"));
  }

  async toggle(id) {
    const before = new Set(this.chosen);
    if (!this.chosen.delete(id)) this.chosen.add(id);
    this.render();
    if (await saveChoice(this.getChatId(), { tool_ids: this.ids })) return;
    this.chosen = before;
    this.render();
  }

  render() {
    this.button.hidden = !this.servers.length;
    byId("tools-text").textContent = this.chosen.size ? t("tools.on", { count: this.chosen.size }) : t("tools");
  }
}

/** The tool calls of an answer; one that writes waits for the reader's consent. Null if there were none. */
export function createToolCalls({ tool_calls: calls }, confirm) {
  if (!calls?.length) return null;
  const items = calls.map((call, place) => {
    const told = Object.entries(call.arguments).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
    const button = el(
      "button",
      { type: "button", class: "button branching", data: { action: "confirm" }, on: { click: () => confirm(place) } },
      t("tools.confirm"),
    );
    return el(
      "li",
      { data: { state: call.state } },
      el("span", {}, el("strong", { text: `${call.server} · ${call.tool}` }), ` (${told.join(", ")}) `),
      el("span", { class: "tool-state", text: t(`tools.${call.state}`) }),
      call.state === "asks" ? button : null,
    );
  });
  const asks = calls.some((call) => call.state === "asks");
  return el("details", { class: "tool-calls", open: asks }, el("summary", {}, tn("tools.used", calls.length)), el("ul", {}, items));
}

/** Two answers to one question side by side, until the reader continues with one. `getView(id)` returns an answer's view. */
export class Comparison {
  constructor({ ids, getView, getModelName, pick }) {
    this.ids = ids;
    this.getView = getView;
    this.sides = ids.map((id) => {
      const name = getModelName(getView(id).message.model);
      const button = el("button", { type: "button", class: "button", data: { action: "pick" }, on: { click: () => pick(id) } }, t("compare.pick"));
      const head = el("div", { class: "compare-head" }, el("strong", { text: name }), button);
      return { id, head, root: el("section", { class: "compare-side", "aria-label": name }, head) };
    });
    this.root = el("div", { class: "compare", role: "group", "aria-label": t("compare") }, ...this.sides.map((side) => side.root));
  }

  /** Whether the current branch ends with one of the two. */
  includes(message) {
    return this.ids.includes(message?.id);
  }

  /** The two as they are now, as one element of the thread. */
  arrangeSides() {
    for (const side of this.sides) placeChildren(side.root, [side.head, this.getView(side.id).root]);
    return this.root;
  }
}
