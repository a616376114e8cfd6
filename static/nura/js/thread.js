// The messages of the chat: loaded, followed while they grow, scrolled as the reader wants.

import { get } from "./api.js";
import { watchMarkers } from "./cards.js";
import { announce, byId, el } from "./dom.js";
import { bestPassage, claimBefore } from "./match.js";
import { AnswerView, questionView } from "./message.js";
import { t } from "./strings.js";
import { copyText } from "./toast.js";

const PAGE = 50;
const NEAR = 90;

/** Events: `busy` (detail: the run that answers here, or null). */
export class Thread extends EventTarget {
  constructor({ runs, hooks, nameOf }) {
    super();
    this.root = byId("thread");
    this.scroller = byId("scroller");
    this.runs = runs;
    this.hooks = hooks;
    this.nameOf = nameOf;
    this.answers = new Map();
    this.byRun = new Map();
    this.known = new Set();
    this.echoes = new Map();
    this.stick = true;
    this.watchScroll();
    this.root.addEventListener("click", (event) => this.clicked(event));
    watchMarkers(this.root, (marker) => this.answerOf(marker)?.message.sources);
    runs.addEventListener("event", ({ detail }) => this.receive(detail));
    runs.addEventListener("lost", ({ detail }) => this.refresh(detail.runId));
    runs.addEventListener("silent", ({ detail }) => this.refresh(detail.runId, true));
  }

  /** The run that answers in this chat now. */
  get runId() {
    return this.byRun.keys().next().value ?? null;
  }

  get isEmpty() {
    return !this.root.querySelector(".msg");
  }

  // Loading

  async load(chatId) {
    this.chatId = chatId;
    const first = await this.page(1);
    const last = Math.max(Math.ceil(first.count / PAGE), 1);
    const messages = last === 1 ? first.results : (await this.page(last)).results;
    this.addAll(messages);
    this.earlier = last - 1;
    if (this.earlier && messages.length < PAGE / 2) await this.loadEarlier();
    this.offerEarlier();
    this.toEnd();
  }

  page(number) {
    return get(`/chats/${this.chatId}/messages?page=${number}&page_size=${PAGE}`);
  }

  async loadEarlier() {
    const { results } = await this.page(this.earlier);
    const height = this.scroller.scrollHeight - this.scroller.scrollTop;
    const views = results.filter((message) => !this.known.has(message.id)).map((message) => this.view(message));
    this.root.prepend(...views);
    this.earlier -= 1;
    this.scroller.scrollTop = this.scroller.scrollHeight - height;
    this.offerEarlier();
  }

  offerEarlier() {
    byId("earlier")?.remove();
    if (!this.earlier) return;
    const button = el("button", { type: "button", class: "button button-plain", id: "earlier", text: t("earlier") });
    button.addEventListener("click", () => this.loadEarlier());
    this.root.before(button);
  }

  /** Another tab or device went on with this chat: show what is new. */
  async catchUp() {
    if (!this.chatId || this.byRun.size) return;
    const { count } = await this.page(1).catch(() => ({ count: 0 }));
    if (!count) return;
    const { results } = await this.page(Math.ceil(count / PAGE));
    this.addAll(results.filter((message) => !this.known.has(message.id)));
  }

  addAll(messages) {
    for (const message of messages) this.root.append(this.view(message));
  }

  view(message) {
    this.known.add(message.id);
    if (message.role === "user") return questionView(message, this.documentsOf(message));
    const answer = new AnswerView(message, this.hooks);
    this.answers.set(message.id, answer);
    if (message.status === "STREAMING" && message.run_id) {
      this.begin(message.run_id, answer);
      this.runs.follow(message.run_id, 0);
    }
    return answer.root;
  }

  documentsOf(message) {
    return (message.document_ids ?? []).map((id) => this.nameOf(id)).filter(Boolean);
  }

  // Asking

  /** Show a question at once, before the server has it. */
  echo(pending, documents) {
    const view = questionView({ content: pending.content }, documents);
    view.classList.add("msg-sending");
    this.echoes.set(pending.client_id, view);
    this.root.append(view);
    this.toEnd();
  }

  forget(pending) {
    this.echoes.get(pending.client_id)?.remove();
    this.echoes.delete(pending.client_id);
  }

  started(pending, frame) {
    const echo = this.echoes.get(pending.client_id);
    this.echoes.delete(pending.client_id);
    echo?.classList.remove("msg-sending");
    const { user_message: question, assistant_message: message } = frame.data;
    if (echo) {
      echo.dataset.messageId = question.id;
      this.known.add(question.id);
    }
    this.chatId = frame.chat_id ?? message.chat_id;
  }

  // Events of runs

  begin(runId, answer) {
    this.byRun.set(runId, answer);
    this.announceBusy();
  }

  announceBusy() {
    this.dispatchEvent(new CustomEvent("busy", { detail: this.runId }));
  }

  receive(frame) {
    const { type, data, run_id: runId } = frame;
    if (type === "run.started") return this.startedRun(runId, data);
    const answer = this.byRun.get(runId);
    if (!answer) return undefined;
    if (type === "status") answer.status(data);
    else if (type === "sources") answer.sources(data);
    else if (type === "delta") answer.append(data.text);
    else if (type === "replace") answer.replace(data.text);
    else if (data?.message && type.startsWith("run.")) this.ended(runId, data.message);
    return undefined;
  }

  startedRun(runId, { user_message: question, assistant_message: message }) {
    const existing = this.answers.get(message.id);
    if (existing) {
      existing.restart();
      this.begin(runId, existing);
      return;
    }
    const streaming = { ...message, status: "STREAMING", content: "", sources: null };
    if (!this.known.has(question.id)) this.addAll([question]);
    const view = this.view(streaming);
    this.begin(runId, this.answers.get(message.id));
    this.root.append(view);
    announce(t("announce.started"));
  }

  ended(runId, message) {
    const answer = this.byRun.get(runId) ?? this.answers.get(message.id);
    this.byRun.delete(runId);
    answer?.complete(message);
    announce(t(message.status === "COMPLETED" ? "announce.done" : `end.${message.status}`));
    this.announceBusy();
  }

  /** The log of a run cannot be followed: the stored message says how it stands. */
  async refresh(runId, stillFollowed = false) {
    const answer = this.byRun.get(runId);
    if (!answer) return;
    const message = await get(`/messages/${answer.message.id}`).catch(() => null);
    if (message && message.status !== "STREAMING") {
      this.runs.drop(runId);
      this.ended(runId, message);
    } else if (!stillFollowed) {
      setTimeout(() => this.refresh(runId), 3000);
    }
  }

  // Clicks and scrolling

  answerOf(node) {
    return this.answers.get(node.closest(".msg")?.dataset.messageId);
  }

  clicked(event) {
    const marker = event.target.closest(".cite");
    if (marker) this.openMarked(marker);
    const copy = event.target.closest("[data-copy-code]");
    if (copy) copyText(copy.closest(".code-box").querySelector("code").textContent, copy);
  }

  async openMarked(marker) {
    const { message } = this.answerOf(marker);
    const passages = message.sources.filter((one) => one.slot === Number(marker.dataset.slot));
    const claim = claimBefore(marker);
    const source = await bestPassage(claim, passages);
    this.hooks.openSource(message, source, marker, claim);
  }

  watchScroll() {
    const down = byId("to-end");
    let before = 0;
    this.scroller.addEventListener(
      "scroll",
      () => {
        const { scrollTop, scrollHeight, clientHeight } = this.scroller;
        const gap = scrollHeight - clientHeight - scrollTop;
        if (scrollTop < before - 2 && gap > 4) this.stick = false;
        if (gap < NEAR / 2) this.stick = true;
        before = scrollTop;
        down.hidden = gap < NEAR * 2;
      },
      { passive: true },
    );
    down.addEventListener("click", () => this.toEnd(true));
    new ResizeObserver(() => this.stick && this.toEnd()).observe(this.root);
  }

  toEnd(smooth = false) {
    this.stick = true;
    this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: smooth ? "smooth" : "instant" });
  }
}
