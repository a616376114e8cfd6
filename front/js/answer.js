// An answer in the thread: its text, notices, sources and actions.

import { toAddress } from "./address.js";
import { createScopeChip, describeFilters } from "./answer_scope.js";
import { postJson } from "./api.js";
import { tagMarkers, writeWithFootnotes } from "./citations.js";
import { createIcon, createIconButton, el, placeBeside } from "./dom.js";
import { formatDateTime, formatTime, formatTimeAgo } from "./format.js";
import { countVerdicts, markDoubts } from "./grounding.js";
import { showAskedColumn, StreamedMarkdown } from "./markdown.js";
import { BranchSwitcher, createMessageMenu, createPlainNote, renderPlainText, logDrawingError } from "./message.js";
import { createToolCalls } from "./models.js";
import { copyText, showError, showToast } from "./notify.js";
import { Reasoning } from "./reasoning.js";
import { createSourceCards } from "./source_cards.js";
import { createSpeechButton } from "./speech.js";
import { hasString, t, tn } from "./strings.js";

const BROKEN = new Set(["FAILED", "INTERRUPTED", "STOPPED"]);

/** An answer: complete from the start, or growing while events arrive. */
export class AnswerView {
  /**
   * `hooks`: openSource(message, source, opener, claim), regenerate(message, topic), switchBranch(message, by),
   * send(content, documents), setText(text), explain(message, opener, part), isBusy(), listEarlier(message), getDocumentName(id),
   * keepInPlace(anchor, change), getModelName(id), administration (where an administrator sees messages, else empty).
   */
  constructor(message, hooks) {
    this.message = message;
    this.hooks = hooks;
    this.switcher = new BranchSwitcher((by) => hooks.switchBranch(this.message, by));
    this.reasoning = new Reasoning(hooks.keepInPlace);
    this.step = el("p", { class: "msg-step" });
    this.notice = el("div", { class: "msg-notice" });
    this.body = el("div", { class: "prose" });
    this.foot = el("div", { class: "msg-end" });
    this.root = el(
      "article",
      { class: "msg msg-answer", data: { messageId: message.id } },
      el("h3", { class: "visually-hidden", text: t("answer") }),
      this.notice,
      this.reasoning.root,
      this.step,
      this.body,
      this.foot,
    );
    this.stream = new StreamedMarkdown(this.body, () => this.message);
    if (message.status === "STREAMING") this.begin();
    else this.complete(message);
  }

  begin() {
    this.root.setAttribute("aria-busy", "true");
    this.foot.replaceChildren(this.switcher.root);
    this.notice.replaceChildren();
    this.showStep(t("step.thinking"));
  }

  /** Start over: the log will be replayed from its beginning. */
  restart() {
    this.message.sources = null;
    this.clearText();
    this.reasoning.reset();
    this.begin();
  }

  showStep(text) {
    this.step.replaceChildren(el("span", { class: "pulse" }), el("span", { text }));
    this.step.hidden = false;
  }

  showStatus(data) {
    const key = `step.${data.step}`;
    if (data.step === "fallback") this.showNotices([{ ...data.detail, detail: describeFallback(data.detail?.code) }]);
    else if (data.step === "filter") this.message.scope = { ...this.message.scope, ...data.detail };
    else if (data.step === "scope") this.showSearchScope(data.detail ?? {});
    else if (hasString(key)) this.showStep(t(key, data.detail));
  }

  /** The search is limited to some documents, or no longer is. */
  showSearchScope({ reason, documents, widened }) {
    const key = `step.scope.${widened ? "widened" : reason}`;
    if (hasString(key)) this.showStep(tn(key, documents ?? 0));
  }

  /** A notice that the reader must see, while the answer is being written and afterwards. */
  showNotices(notices) {
    this.notice.replaceChildren(...createNotices(notices));
  }

  setSources(sources) {
    this.message.sources = sources;
    const documents = new Set(sources.map((source) => source.document_id)).size;
    this.showStep(tn("step.found", documents));
  }

  /** More of the model's reasoning; its line replaces the step. */
  appendReasoning(text) {
    const live = !this.stream.text;
    this.reasoning.append(text, live);
    if (live && !this.reasoning.root.hidden) this.step.hidden = true;
  }

  appendText(text) {
    if (!this.stream.text) {
      this.reasoning.endThinking();
      this.showStep(t("step.generate"));
    }
    this.stream.append(text);
  }

  /** Replace the text so far, drawn at once, so that nothing in view disappears in between. */
  replaceText(text) {
    this.clearText();
    this.stream.append(text);
    this.stream.cancel();
    this.stream.draw();
    this.body.classList.add("replaced");
    this.showStep(t("step.styled"));
  }

  clearText() {
    this.stream.reset();
  }

  /** Suggested questions have come, a moment after the answer. */
  showFollowUps(questions) {
    this.suggested = questions;
    if (this.message.status !== "COMPLETED") return;
    this.message = { ...this.message, follow_ups: questions };
    this.foot.querySelector(".followups")?.remove();
    this.foot.append(createFollowUps(this.message, this.hooks));
  }

  /** Draw the final message: text, label, sources, actions. Returns the view. */
  complete(message) {
    this.message = { ...message, follow_ups: this.suggested ?? message.follow_ups };
    this.root.removeAttribute("aria-busy");
    this.root.classList.toggle("msg-broken", message.status === "FAILED");
    this.step.hidden = true;
    this.reasoning.complete(message.reasoning ?? "");
    const note = this.drawText(message);
    const notices = message.notices ?? [];
    this.showNotices(notices.filter(isShownFirst));
    const parts = [
      note,
      ...createNotices(notices.filter((one) => !isShownFirst(one))),
      this.createBrokenNote(),
      createFilterNote(message),
      createToolCalls(message, (place) => this.hooks.confirmTool(this.message, place)),
      createKeptNote(message, this.hooks),
      createCandidateButtons(message, this.hooks),
      createPartBar(message, this.hooks),
      message.mode === "document" ? null : createSourceCards(message, this.hooks),
      this.createActions() ?? this.switcher.root,
      createFollowUps(this.message, this.hooks),
    ];
    this.foot.replaceChildren(...parts.filter(Boolean));
    return this;
  }

  /** Draw the final text. If that fails, the plain text is shown, and a note saying so is returned. */
  drawText(message) {
    try {
      this.stream.finish(tagMarkers(message));
      markDoubts(this.body, message);
      showAskedColumn(this.body, this.hooks.listEarlier(message).at(-1)?.content ?? "");
      return null;
    } catch (error) {
      logDrawingError(error, message);
      this.body.replaceChildren(renderPlainText(message));
      return createPlainNote();
    }
  }

  createBrokenNote() {
    const { id, status, error, content } = this.message;
    const { hooks } = this;
    if (!BROKEN.has(status)) return null;
    const words = [t(content ? `end.${status}.partial` : `end.${status}`), error?.detail].filter(Boolean);
    const again = el(
      "button",
      { type: "button", class: "button branching", on: { click: () => hooks.regenerate(this.message) } },
      createIcon("rotate-ccw", "icon-s"),
      t("regenerate"),
    );
    const goOn = content
      ? el(
          "button",
          { type: "button", class: "button button-primary", data: { action: "continue" }, on: { click: () => hooks.send(t("continue.text")) } },
          t("continue"),
        )
      : null;
    const look = status === "FAILED" && hooks.administration;
    const reasons = look
      ? el("a", { class: "button button-plain", href: `${look}${id}/change/` }, createIcon("external-link", "icon-s"), t("end.look"))
      : null;
    const kind = status === "STOPPED" ? "" : "note-error";
    const sign = createIcon(status === "STOPPED" ? "square" : "circle-alert");
    const buttons = el("div", { class: "msg-note-actions" }, goOn, again, reasons);
    return el("div", { class: `note msg-note ${kind}` }, sign, el("div", {}, el("p", { text: words.join(" ") }), buttons));
  }

  createActions() {
    if (!this.message.content) return null;
    const copy = createIconButton("copy", t("copy_answer"), { data: { action: "copy" } });
    copy.addEventListener("click", () => copyText(writeWithFootnotes(this.message), copy));
    const again = createIconButton("rotate-ccw", t("regenerate"), {
      class: "icon-button branching",
      data: { action: "regenerate" },
      on: { click: () => this.hooks.regenerate(this.message) },
    });
    const complete = !BROKEN.has(this.message.status);
    const aloud = createSpeechButton(this.message);
    const more = createMessageMenu(() => this.message, this.hooks);
    const buttons = [this.switcher.root, copy, aloud, complete && again, ...createThumbs(this.message), more];
    return el(
      "div",
      { class: "msg-actions" },
      createHonestLine(this.message, this.hooks),
      el("span", { class: "msg-buttons" }, createModelName(this.message, this.hooks), createTime(this.message), buttons),
    );
  }
}

const SHOWN_AT_THE_END = new Set(["answer_cut"]);

/** Whether a notice belongs before the answer, not after it. */
export function isShownFirst({ code }) {
  return !SHOWN_AT_THE_END.has(code);
}

/** What went wrong with the search of an answer. */
export function describeFallback(code) {
  const key = `step.${code}`;
  return t(hasString(key) ? key : "step.fallback");
}

/** Notices as elements; those with the same sentence once. */
export function createNotices(notices) {
  const sentences = new Set(notices.map(({ detail }) => detail).filter(Boolean));
  return [...sentences].map((text) =>
    el("p", { class: "note note-warning msg-told", role: "note" }, createIcon("triangle-alert"), el("span", { text })),
  );
}

const BADGES = {
  documents: "badge badge-accent",
  document: "badge badge-accent",
  passages: "badge badge-accent",
  partial: "badge badge-warn",
  insufficient: "badge badge-warn",
};
const UNCHECKED_MODES = new Set(["document", "clarify"]); // they contain only text of documents

/** The line below an answer: what it is based on, where Nura searched, and the other actions. */
export function createHonestLine(message, hooks) {
  const { mode, status, label, model } = message;
  const isOurs = label === "general" && !model; // a canned reply, such as to a greeting
  const badge = mode && status === "COMPLETED" && !isOurs ? createBadge(message, hooks) : null;
  const why = el("button", { type: "button", class: "link-button msg-why", data: { action: "why" }, "aria-haspopup": "dialog" }, t("why"));
  why.addEventListener("click", () => hooks.explain(message, why));
  const isOwn = Boolean(mode); // nothing is known of how an imported answer was made
  return el("span", { class: "msg-label" }, badge, createScopeChip(message, hooks), isOwn && status === "COMPLETED" ? why : null);
}

/** The model that wrote the answer, if there are several. */
function createModelName({ model }, hooks) {
  const name = hooks.getModelName?.(model);
  return name ? el("span", { class: "msg-model", text: name, title: t("model") }) : null;
}

/** When the answer was written; time and tokens used are in the tooltip. */
function createTime({ usage, created_at: time }) {
  return time ? el("time", { class: "msg-time", datetime: time, title: describeUsage(usage, time), text: formatTime(time) }) : null;
}

/** The label of an answer, or how it was made if it was not checked. With doubts: how many sentences were confirmed, and which. */
function createBadge(message, hooks) {
  const { mode, label: grounds } = message;
  const told = grounds && !UNCHECKED_MODES.has(mode);
  const name = (told ? BADGES[grounds] : BADGES[mode]) ?? "badge";
  const text = t(told ? `label.${grounds}` : `mode.${mode}`);
  const title = told ? t(`label.${grounds}.more`) : null;
  const { supported, unsupported, claims } = countVerdicts(message);
  if (!unsupported) return el("span", { class: name, text, title, data: { label: grounds ?? "" } });
  const shown = `${text} ${supported}/${claims}`;
  const words = tn("checks.some", claims, { supported });
  const button = el("button", {
    type: "button",
    class: `${name} msg-checks`,
    text: shown,
    title: words,
    "aria-label": `${shown}. ${words}. ${t("checks.more")}`,
    "aria-haspopup": "dialog",
    data: { label: grounds ?? "" },
  });
  button.addEventListener("click", () => hooks.explain(message, button, "checks"));
  return button;
}

/** Says that nothing was found in the named document and others were searched. */
export function createFilterNote({ scope, sources }) {
  const names = describeFilters(scope?.dropped_filters);
  if (!names || !sources) return null;
  return el("p", { class: "msg-dropped" }, createIcon("info", "icon-s"), el("span", { text: t("filter.dropped", { names }) }));
}

/** Says that the answer comes from the cache, and offers a new one. Null if it was written for this question. */
export function createKeptNote(message, hooks) {
  const { made_at: time } = message;
  if (!time) return null;
  const again = el(
    "button",
    { type: "button", class: "link-button branching", data: { action: "anew" }, on: { click: () => hooks.regenerate(message) } },
    t("kept.anew"),
  );
  const said = el("time", { datetime: time, title: formatDateTime(time), text: t("kept", { ago: formatTimeAgo(time) }) });
  return el("p", { class: "msg-dropped msg-kept" }, createIcon("clock", "icon-s"), el("span", {}, said, " · ", again));
}

function describeUsage(usage, time) {
  const tokens = usage?.total_tokens ?? (usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0);
  const spoken = tokens ? tn("tokens", tokens) : "";
  return [formatDateTime(time), spoken].filter(Boolean).join(" · ");
}

/** Two buttons that show and change `message.feedback`. */
export function createThumbs(message) {
  const up = createIconButton("thumbs-up", t("helpful"), { data: { thumb: "1" } });
  const down = createIconButton("thumbs-down", t("not_helpful"), { data: { thumb: "-1" }, "aria-haspopup": "dialog" });
  const show = () => {
    up.setAttribute("aria-pressed", String(message.feedback?.value === 1));
    down.setAttribute("aria-pressed", String(message.feedback?.value === -1));
  };
  let sent = Promise.resolve();
  const give = async (value, reason = "") => {
    const before = message.feedback;
    message.feedback = { value, reason };
    show();
    const sending = sent.then(() => postJson(`/messages/${message.id}/feedback`, { value, reason }));
    sent = sending.catch(() => {}); // one at a time, so that the last rating wins
    try {
      await sending;
      return true;
    } catch (error) {
      message.feedback = before;
      show();
      showError(error);
      return false;
    }
  };
  up.addEventListener("click", () => message.feedback?.value !== 1 && give(1));
  down.addEventListener("click", () => {
    if (message.feedback?.value !== -1) give(-1);
    askReason(down, message.feedback.reason, (reason) => give(-1, reason));
  });
  show();
  return [up, down];
}

/** A small popover at the thumb; closing it sends nothing. */
function askReason(anchor, known, send) {
  const input = el("input", { type: "text", maxlength: "1000", placeholder: t("reason"), "aria-label": t("reason"), value: known });
  const form = el("form", { class: "feedback" }, input, el("button", { class: "button", type: "submit", text: t("send") }));
  const popover = el("div", { class: "menu feedback-popover", popover: "auto", role: "dialog", "aria-label": t("reason") }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const reason = input.value.trim();
    popover.hidePopover();
    if (reason !== known && (await send(reason)) && reason) showToast(t("thanks"));
  });
  popover.addEventListener("toggle", (event) => {
    if (event.newState === "open") return;
    if (popover.contains(document.activeElement)) anchor.focus({ preventScroll: true });
    popover.remove();
  });
  document.body.append(popover);
  popover.showPopover();
  placeBeside(popover, anchor);
  input.focus({ preventScroll: true });
}

const MAX_CANDIDATES = 10;

/** The documents that a clarifying question offers, as buttons. Null if it offers none. */
export function createCandidateButtons(message, hooks) {
  const candidates = message.candidates ?? [];
  const question = hooks.listEarlier(message).at(-1);
  if (message.mode !== "clarify" || !candidates.length || !question) return null;
  const item = ({ slot, document_id: id, title }) =>
    el(
      "li",
      {},
      el(
        "button",
        { type: "button", class: "source-card candidate", on: { click: () => hooks.send(question.content, [{ id, name: title }]) } },
        el("span", { class: "slot", text: String(slot) }),
        el("span", { class: "source-text" }, el("span", { class: "source-name", text: title, title })),
      ),
    );
  const list = el("ul", { class: "card-list" }, candidates.slice(0, MAX_CANDIDATES).map(item));
  const section = el("section", { class: "cards candidates", "aria-label": t("candidates") }, list);
  const rest = candidates.slice(MAX_CANDIDATES);
  if (rest.length) section.append(createMoreButton(rest.length, () => list.append(...rest.map(item))));
  return section;
}

function createMoreButton(count, run) {
  const button = el("button", { type: "button", class: "cards-more" }, tn("names.rest", count));
  button.addEventListener("click", () => {
    run();
    button.remove();
  });
  return button;
}

/** Which part of a whole document this is, with buttons for the previous and next. Null for other answers. */
export function createPartBar(message, hooks) {
  const { mode, view } = message;
  if (mode !== "document" || !view) return null;
  const name = hooks.getDocumentName(view.document_id);
  const go = (way, sign) =>
    el(
      "button",
      {
        type: "button",
        class: "button part-step",
        data: { part: way },
        disabled: way === "next" ? view.part >= view.parts : view.part <= 1,
        on: { click: () => hooks.send(t(`part.ask_${way}`)) },
      },
      way === "previous" ? createIcon(sign, "icon-s") : null,
      t(`part.${way}`),
      way === "next" ? createIcon(sign, "icon-s") : null,
    );
  return el(
    "nav",
    { class: "part-bar", "aria-label": name || t("mode.document") },
    el("span", { class: "part-of", text: t("part.of", view) }),
    createOpener(message, hooks),
    view.parts > 1 ? el("span", { class: "part-steps" }, go("previous", "chevron-left"), go("next", "chevron-right")) : null,
  );
}

/** Opens a document beside the thread if the answer has passages of it, else on its own page. */
function createOpener(message, hooks) {
  const [source] = message.sources ?? [];
  const parts = [createIcon("panel-right", "icon-s"), t("part.open")];
  if (!source) return el("a", { class: "button", href: toAddress(`/documents/${message.view.document_id}`) }, parts);
  const button = el("button", { type: "button", class: "button" }, parts);
  button.addEventListener("click", () => hooks.openSource(message, source, button));
  return button;
}

const MAX_FOLLOW_UPS = 3;
const MAX_HEADING_CHARACTERS = 30;
const HEADING_NUMBER = /^(?:제\s?\d+\s?[편장절관조항](?:의\s?\d+)?\s*|\d+(?:[.-]\d+)*[.)]?\s+|(?:[가나다라마바사아자차카타파하]|[IVX]+)[.)]\s*)/;
const TIMES = /\d+\s?(?:년|월|일|분기)/g; // dates of a title page: nobody asks about “2027년 1월”
const SAYS_SOMETHING = /\p{L}.*[\p{L}\p{N}]/u;

/** Suggested questions: the light model's, else headings near the passages of the answer. Null without any. */
export function createFollowUps(message, hooks) {
  const asked = message.follow_ups?.length ? message.follow_ups : listNearHeadings(message, hooks);
  if (!asked.length) return null;
  const item = (text) => el("li", {}, el("button", { type: "button", class: "followup", text, on: { click: () => hooks.send(text) } }));
  return el("ul", { class: "followups", "aria-label": t("followups") }, asked.map(item));
}

function listNearHeadings(message, hooks) {
  const sources = message.status === "COMPLETED" && message.mode === "documents" ? (message.sources ?? []) : [];
  const heading = ({ section }) => (section ?? "").split(" > ").at(-1).replace(HEADING_NUMBER, "").replace(/^[ ()[\]【】]+|[ ()[\]【】]+$/g, "");
  const known = new Set([...sources.filter((one) => one.cited !== false).map(heading), hooks.listEarlier(message).at(-1)?.content]);
  const names = new Set(sources.map((one) => one.document_name.replace(/\.\w+$/, "")));
  const found = sources
    .filter((one) => one.cited === false)
    .map(heading)
    .filter((one) => SAYS_SOMETHING.test(one.replace(TIMES, "")) && one.length <= MAX_HEADING_CHARACTERS && !known.has(one) && !names.has(one));
  return [...new Set(found)].slice(0, MAX_FOLLOW_UPS).map((one) => t("followup.heading", { heading: one }));
}
