// The menus of the composer: `#` for a document or library, `@` for an assistant or model, `/` at the beginning for a command or
// prompt. The field keeps the focus.

import { getJson } from "./api.js";
import { byId } from "./dom.js";
import { OptionList } from "./option_list.js";
import { describeSize, findLibraries, findReadyDocuments } from "./scope.js";
import { t } from "./strings.js";

const MAX_OPTIONS = 8;
const MAX_LIBRARIES = 3; // of them
const SEARCH_WAIT_MS = 120;
const NAMED = /(^|\s)#([^\s#]{0,60})$/;
const ADDRESSED = /(^|\s)@([^\s@]{0,40})$/;
const COMMANDED = /^\/(\S{0,20})$/;
const PLACE = /\{\{[^{}\n]{1,60}\}\}/g;
const MAX_COMMANDS = 30;
const LIST_SIZE = 100; // assistants and prompts offered

/**
 * Opens while the words before the caret ask for it. `commands()` gives those that can be used now:
 * {name, icon, label, hint, aliases, run}; `pick(document)` takes a document in, `ask(assistant)` and `choose(model)`, of
 * `models`, say who answers, `insertPrompt(text)` writes a prompt.
 */
export class ComposerMenu extends OptionList {
  constructor({ input, commands, pick, ask, models, choose, insertPrompt }) {
    super(input, byId("composer-menu"));
    this.commands = commands;
    this.pick = pick;
    this.ask = ask;
    this.models = models;
    this.chooseModel = choose;
    this.insertPrompt = insertPrompt;
    this.kept = new Map();
    this.dismissed = "";
    input.addEventListener("click", () => this.update());
  }

  /** What the text before the caret asks for: {kind, word, from}; null for nothing. */
  readTrigger() {
    const { selectionStart: caret, selectionEnd, value } = this.input;
    if (caret !== selectionEnd) return null;
    const before = value.slice(0, caret);
    const command = COMMANDED.exec(before);
    if (command) return { kind: "command", word: command[1], from: 0, to: caret };
    const addressed = ADDRESSED.exec(before);
    if (addressed) return { kind: "addressee", word: addressed[2], from: caret - addressed[2].length - 1, to: caret };
    const named = NAMED.exec(before);
    return named ? { kind: "document", word: named[2], from: caret - named[2].length - 1, to: caret } : null;
  }

  update() {
    const trigger = this.readTrigger();
    if (!trigger) this.dismissed = "";
    if (!trigger || this.dismissed === trigger.kind) return this.close();
    this.trigger = trigger;
    clearTimeout(this.timer);
    if (trigger.kind === "command") {
      this.open(this.findCommands(trigger.word));
      this.offerPrompts(trigger);
      return undefined;
    }
    const find = trigger.kind === "addressee" ? () => this.findAddressees(trigger) : () => this.findDocuments(trigger);
    this.timer = setTimeout(find, SEARCH_WAIT_MS);
    return undefined;
  }

  findCommands(word) {
    const wanted = word.toLowerCase();
    const fits = ({ label, aliases }) => [label, ...aliases].some((one) => one.toLowerCase().replaceAll(" ", "").startsWith(wanted));
    return this.commands()
      .filter(fits)
      .map((command) => ({ ...command, choose: () => this.replaceTrigger("", command.run) }));
  }

  /** Commands first, and behind them the prompts that fit. */
  async offerPrompts(trigger) {
    const wanted = trigger.word.toLowerCase().normalize("NFC");
    const prompts = await this.fetchOnce(`/prompts?page_size=${LIST_SIZE}`);
    const now = this.readTrigger(); // without a command that fits the menu is closed by now
    if (now?.kind !== trigger.kind || now.word !== trigger.word || this.dismissed || !prompts.length) return;
    this.trigger = now;
    const fits = (words) => words.toLowerCase().replaceAll(" ", "").includes(wanted);
    const fitting = prompts.filter(({ title, folder }) => fits(title) || fits(folder));
    const toOption = ({ title, folder, text }) => ({
      icon: folder ? "folder" : "quote",
      label: title,
      hint: [folder, text.slice(0, 60)].filter(Boolean).join(" · "),
      choose: () => this.replaceTrigger("", () => this.insertPrompt(text)),
    });
    this.open([...this.findCommands(trigger.word), ...fitting.map(toOption)]);
  }

  /** Assistants first, then language models where there is a choice. */
  async findAddressees(trigger) {
    const wanted = trigger.word.toLowerCase().normalize("NFC");
    const fits = ({ name }) => name.toLowerCase().replaceAll(" ", "").includes(wanted);
    const assistants = await this.fetchOnce(`/assistants?page_size=${LIST_SIZE}`);
    if (trigger !== this.trigger || document.activeElement !== this.input) return;
    const asked = assistants.filter(fits).map((one) => ({
      icon: "bot",
      label: one.name,
      hint: one.description || one.owner,
      choose: () => this.replaceTrigger("", () => this.ask(one)),
    }));
    const chosen = (this.models.length > 1 ? this.models : []).filter(fits).map((one) => ({
      icon: "sparkles",
      label: one.name,
      hint: t("model"),
      choose: () => this.replaceTrigger("", () => this.chooseModel(one)),
    }));
    this.open([...asked, ...chosen]);
  }

  /** What others share may be less or more by now: it is asked for anew. */
  forgetLists() {
    this.kept.clear();
  }

  /** The rows of a list, asked for until that may have changed; none where the server cannot be reached. */
  async fetchOnce(path) {
    if (!this.kept.has(path)) {
      const found = await getJson(path).catch(() => null);
      if (!found) return [];
      this.kept.set(path, found.results);
    }
    return this.kept.get(path);
  }

  async findDocuments(trigger) {
    const word = trigger.word.normalize("NFC");
    const [libraries, found] = await Promise.all([
      findLibraries(word, MAX_LIBRARIES).catch(() => []),
      findReadyDocuments(word, MAX_OPTIONS).catch(() => null),
    ]);
    if (trigger !== this.trigger || document.activeElement !== this.input) return;
    const toOption = (one) => ({
      icon: one.is_library ? "folder" : "file-text",
      label: one.name,
      hint: describeSize(one),
      choose: () => this.replaceTrigger("", () => this.pick(one)),
    });
    this.open([...libraries, ...(found?.results ?? [])].map(toOption));
  }

  open(options) {
    super.open(options.slice(0, MAX_COMMANDS));
    if (this.options.length) this.highlight(0);
  }

  placeRoot() {
    const box = this.input.closest(".composer-box").getBoundingClientRect();
    Object.assign(this.root.style, { left: `${box.left}px`, width: `${box.width}px`, bottom: `${innerHeight - box.top + 6}px` });
  }

  close() {
    this.trigger = null;
    super.close();
  }

  dismiss() {
    this.dismissed = this.trigger?.kind ?? "";
    this.close();
  }

  /** Put `text` where the word of the trigger stands, then `run`. */
  replaceTrigger(text, run) {
    const trigger = this.readTrigger() ?? this.trigger;
    if (trigger) this.input.setRangeText(text, trigger.from, trigger.to, "end");
    this.close();
    this.input.dispatchEvent(new Event("input"));
    run();
  }
}

/** Select the first place to fill in at or behind the caret; false where there is none, so that Tab leaves the field. */
export function selectPlace(input, from = input.selectionEnd) {
  const places = [...input.value.matchAll(PLACE)];
  const next = places.find((place) => place.index >= from);
  if (!next) return false;
  input.setSelectionRange(next.index, next.index + next[0].length);
  return true;
}

/**
 * The commands of a chat. `setText(text)` writes into the field; `hasModel`: only then anything is summarised, compared or put
 * into a table.
 */
export function listCommands({ hasModel, hasAnswers, setText, attach, beginTopic, exportAs }) {
  const write = (name, icon) => ({ name, icon, run: () => setText(t(`command.${name}.text`)) });
  const all = [
    hasModel && write("summary", "quote"),
    hasModel && write("compare", "files"),
    hasModel && hasAnswers && write("table", "table"),
    hasAnswers && { name: "topic", icon: "sparkles", run: beginTopic },
    { name: "attach", icon: "paperclip", run: attach },
    hasAnswers && { name: "export_pdf", icon: "download", run: () => exportAs("pdf") },
    hasAnswers && { name: "export_md", icon: "file-text", run: () => exportAs("md") },
  ];
  return all.filter(Boolean).map((command) => ({
    ...command,
    label: t(`command.${command.name}`),
    hint: t(`command.${command.name}.hint`),
    aliases: t(`command.${command.name}.aliases`).split(" "),
  }));
}
