// The messages of the chat: one branch, loaded, and followed while it grows.

import { toAddress } from "./address.js";
import { AnswerView } from "./answer.js";
import { getJson, postJson, sendDelete } from "./api.js";
import { readMarker, stepCitation, watchMarkers } from "./citations.js";
import { announce, byId, el, placeChildren } from "./dom.js";
import { watchDoubts } from "./grounding.js";
import { writeWords } from "./markdown.js";
import { createViewOrPlain } from "./message.js";
import { MessagePages, MessageTree } from "./message_tree.js";
import { Comparison } from "./models.js";
import { askConfirmation, copyText, showError } from "./notify.js";
import { QuestionView } from "./question.js";
import { stopReading } from "./speech.js";
import { t } from "./strings.js";

const MIN_MESSAGES = 20;

/** Events: `busy` (detail: the run that answers here, or null), `branched`, `hidden` (detail: an answer that may show less). */
export class Thread extends EventTarget {
  /** `getDocument(id)` gives a document; `hooks` are what messages ask of the page: see `AnswerView`, `QuestionView`. */
  constructor({ runs, getDocument, hooks }) {
    super();
    this.root = byId("thread");
    this.runs = runs;
    this.getDocument = getDocument;
    this.hooks = {
      ...hooks,
      switchBranch: (message, by) => this.switchBranch(message, by),
      edit: (message, content) => this.openBranch(`/messages/${message.id}/edit`, { content }),
      reword: (message, content) => this.reword(message, content),
      fork: (message) => this.fork(message),
      remove: (message) => this.remove(message),
      regenerate: (message, topic) => this.regenerate(message, topic),
      compare: (message, model) => this.compare(message, model),
      confirmTool: (message, place) => this.confirmTool(message, place),
      isBusy: () => Boolean(this.runId),
      keepInPlace: (anchor, change) => this.scrolling.keepInPlace(anchor, change),
      listEarlier: (message) => this.tree.listPath(message.parent_id),
      getDocumentName: (id) => getDocument(id)?.name ?? this.tree.getDocumentName(id),
    };
    this.tree = new MessageTree();
    this.views = new Map();
    this.byRun = new Map();
    this.echoes = new Map();
    this.leaf = null;
    this.comparison = null;
    this.scrolling = new ThreadScroll(this.root);
    this.root.addEventListener("click", (event) => this.handleClick(event));
    watchMarkers(this.root, (marker) => this.findView(marker)?.message, writeWords);
    watchDoubts(this.root, (mark) => this.findView(mark)?.message);
    runs.addEventListener("event", ({ detail }) => this.receive(detail));
    runs.addEventListener("lost", ({ detail }) => this.refreshRun(detail.runId));
    runs.addEventListener("silent", ({ detail }) => this.refreshRun(detail.runId, true));
  }

  /** The run that answers in this chat now. */
  get runId() {
    return this.byRun.keys().next().value ?? null;
  }

  /** What the next question follows, where that is not simply the newest message. */
  get parentId() {
    return this.leaf === this.newest ? null : this.leaf;
  }

  /** The newest message of all branches. */
  get newest() {
    return this.tree.findNewest();
  }

  // Loading

  /**
   * Show the chat's end, or the message `asked` on its branch; the view of that, null where it is not there. Where
   * `newest` was the newest message when it was asked for and there are newer ones, those are shown.
   */
  async load(chatId, asked = "", newest = "") {
    this.chatId = chatId;
    this.backlog = new MessagePages(chatId);
    await this.backlog.fetchNewest();
    do await this.fetchEarlier();
    while (this.backlog.hasMore && (this.needsMore() || (asked && !this.tree.has(asked))));
    const found = asked && this.tree.has(asked) && (!newest || newest === this.newest);
    if (found) this.leaf = this.tree.findNewest(asked);
    this.render();
    this.showEarlierButton();
    if (!found) this.scrolling.scrollToEnd();
    else this.scrolling.stick = false;
    return found ? this.views.get(asked) : null;
  }

  /** The message that is shown at the top of the pane: {message, offset}; null at the end, where new ones come. */
  get place() {
    if (this.scrolling.stick) return null;
    const top = this.scrolling.scroller.getBoundingClientRect().top;
    const node = [...this.root.children].find((one) => one.getBoundingClientRect().bottom > top);
    return node?.dataset.messageId ? { message: node.dataset.messageId, offset: Math.round(top - node.getBoundingClientRect().top) } : null;
  }

  /** Bring a message to the top of the pane, `offset` pixels of it above; false where it is not shown. */
  goTo({ message, offset = -12 }) {
    const node = this.views.get(message)?.root;
    if (!node?.isConnected) return false;
    this.scrolling.scrollToNode(node, offset);
    return true;
  }

  /** Take in the next older messages; the branch shown stays the one of the newest of all. */
  async fetchEarlier() {
    for (const message of await this.backlog.fetchEarlier()) if (!this.tree.has(message.id)) this.tree.add(message);
    this.leaf ??= this.tree.findNewest();
  }

  /** Other branches may fill whole pages; and what stands beside a first question may lie further back. */
  needsMore() {
    const path = this.tree.listPath(this.leaf);
    return path.length < MIN_MESSAGES || !path[0].parent_id;
  }

  async loadEarlier() {
    const anchor = this.root.firstElementChild;
    const before = this.tree.listPath(this.leaf).length;
    try {
      do await this.fetchEarlier();
      while (this.backlog.hasMore && this.tree.listPath(this.leaf).length === before);
    } catch (error) {
      showError(error);
    }
    this.scrolling.keepInPlace(anchor, () => this.render());
    this.showEarlierButton();
  }

  showEarlierButton() {
    byId("earlier")?.remove();
    if (!this.backlog.hasMore) return;
    const button = el("button", { type: "button", class: "button button-plain", id: "earlier", text: t("earlier") });
    button.addEventListener("click", () => {
      button.disabled = true;
      this.loadEarlier();
    });
    this.root.before(button);
  }

  /** Another tab or device went on with this chat: show what is new. */
  async catchUp() {
    if (!this.chatId || this.byRun.size) return;
    this.addMessages(await new MessagePages(this.chatId).refetchLatest().catch(() => []));
  }

  /** Something was closed to the reader: ask anew for the answers that show documents, as far back as they are loaded. */
  async hideUnreadable() {
    const showing = new Set([...this.views.values()].map((view) => view.message).filter((one) => one?.sources?.length).map((one) => one.id));
    const pages = showing.size ? new MessagePages(this.chatId) : null;
    await pages?.fetchNewest();
    while (showing.size && pages.hasMore)
      for (const message of await pages.fetchEarlier()) if (showing.delete(message.id)) this.hideUnreadableIn(message);
  }

  hideUnreadableIn(message) {
    const view = this.views.get(message.id);
    const closed = (one) => JSON.stringify(one.sources?.map((source) => Boolean(source.unreadable)));
    if (message.status === "STREAMING" || !(view instanceof AnswerView) || closed(view.message) === closed(message)) return;
    this.tree.add(message);
    this.scrolling.keepInPlace(view.root, () => {
      this.views.set(message.id, createViewOrPlain(message, this.hooks, () => view.complete(message)));
      this.render();
    });
    this.dispatchEvent(new CustomEvent("hidden", { detail: message }));
  }

  // The branch in sight

  /** Take new messages in and show the branch of the newest of them. */
  addMessages(messages) {
    const fresh = messages.filter((message) => !this.tree.has(message.id));
    if (!fresh.length) return;
    for (const message of fresh) this.tree.add(message);
    this.leaf = fresh.at(-1).id;
    this.render();
    this.dispatchEvent(new Event("branched"));
  }

  render() {
    const path = this.tree.listPath(this.leaf);
    const views = path.map((message) => this.getView(message));
    const sending = [...this.echoes.values()];
    if (sending.length || !this.comparison?.includes(path.at(-1))) this.comparison = null;
    const roots = views.map((view) => view.root);
    if (this.comparison) roots.splice(-1, 1, this.comparison.arrangeSides());
    placeChildren(this.root, [...roots, ...sending.map((view) => view.root)]);
    path.forEach((message, index) => views[index].switcher.show(this.tree.locate(message)));
  }

  getView(message) {
    if (!this.views.has(message.id)) {
      const view = createViewOrPlain(message, this.hooks, () => this.createView(message));
      this.views.set(message.id, view);
      if (message.status === "STREAMING" && message.run_id) {
        this.beginRun(message.run_id, view);
        this.runs.follow(message.run_id, 0);
      }
    }
    return this.views.get(message.id);
  }

  createView(message) {
    if (message.role === "user") return new QuestionView(message, this.listDocuments(message), this.hooks);
    return new AnswerView(message, this.hooks);
  }

  listDocuments(message) {
    return [...(message.library_ids ?? []), ...(message.document_ids ?? [])].map((id) => this.getDocument(id)).filter(Boolean);
  }

  /** Show the branch beside the one that `message` is on. */
  switchBranch(message, by) {
    const { ids, index } = this.tree.locate(message);
    const next = this.tree.get(ids[index + by]);
    if (!next) return;
    stopReading();
    this.comparison = null;
    this.scrolling.keepInPlace(this.getView(message).switcher.root, () => {
      this.leaf = this.tree.findNewest(next.id);
      this.render();
      return this.getView(next).switcher.root;
    });
    this.dispatchEvent(new Event("branched"));
    this.getView(next).switcher.focus(by);
    announce(t("branch_of", { number: index + by + 1, total: ids.length }));
  }

  /** Ask the server for a branch and follow its answer. */
  async openBranch(path, body) {
    if (this.branching) return;
    this.branching = true;
    try {
      const turn = await postJson(`${path}?wait=false`, body);
      this.addMessages([turn.user_message, turn.assistant_message]);
      this.scrolling.pinToTop(this.getView(this.tree.get(turn.user_message.id)).root);
      return turn;
    } finally {
      this.branching = false;
    }
  }

  /** Other words for a question that is not asked again. */
  async reword(message, content) {
    const stored = await postJson(`/messages/${message.id}/edit`, { content, save_only: true });
    this.tree.add(stored);
    return stored;
  }

  /** Go on from a message in a chat of its own. */
  async fork(message) {
    try {
      const chat = await postJson(`/chats/${this.chatId}/fork`, { message_id: message.id });
      location.assign(toAddress(`/c/${chat.id}`));
    } catch (error) {
      showError(error);
    }
  }

  /** Delete a question with its answers, or an answer with the question that only it answers. */
  async remove(message) {
    const alone = message.role === "user" || this.tree.listSiblings(message).length < 2;
    const text = t(alone ? "message.remove_pair" : "message.remove_one");
    if (!(await askConfirmation({ title: t("message.remove_sure"), text, yes: t("delete") }))) return;
    try {
      await sendDelete(`/messages/${message.id}`);
      await this.reload();
    } catch (error) {
      showError(error);
    }
  }

  /** Read the chat anew: messages have gone. What stays in sight stays where it is. */
  async reload() {
    stopReading();
    const tree = new MessageTree();
    const backlog = new MessagePages(this.chatId);
    await backlog.fetchNewest();
    while (backlog.hasMore) for (const message of await backlog.fetchEarlier()) tree.add(message);
    const shown = this.tree.listPath(this.leaf).map((message) => message.id);
    this.tree = tree;
    this.backlog = backlog;
    for (const [id, view] of this.views) {
      if (tree.has(id)) view.message = tree.get(id);
      else this.views.delete(id);
    }
    const kept = shown.findLast((id) => tree.has(id));
    this.leaf = kept ? tree.findNewest(kept) : tree.findNewest();
    this.render();
    this.showEarlierButton();
    announce(t("message.removed"));
    this.dispatchEvent(new CustomEvent("busy", { detail: this.runId }));
  }

  /** `topic`: how the question is bound to what was before, where the reader says so. */
  regenerate(message, topic = "auto") {
    this.openBranch(`/messages/${message.id}/regenerate`, { topic }).catch(showError);
  }

  /** Let a call that writes be made, and answer with what comes of it. */
  confirmTool(message, place) {
    this.openBranch(`/messages/${message.id}/regenerate`, { confirm_call: place }).catch(showError);
  }

  /** Show the answer beside one of another model to the same question, which is asked for where there is none. */
  async compare(message, model) {
    const beside = this.tree.listSiblings(message).map((id) => this.tree.get(id));
    let other = beside.findLast((one) => one.model === model && one.status === "COMPLETED");
    try {
      other ??= (await this.openBranch(`/messages/${message.id}/regenerate`, { model }))?.assistant_message;
    } catch (error) {
      showError(error);
    }
    if (!other) return;
    this.leaf = other.id;
    this.comparison = new Comparison({
      ids: [message.id, other.id],
      getView: (id) => this.getView(this.tree.get(id)),
      getModelName: this.hooks.getModelName,
      pick: (id) => this.pickAnswer(id),
    });
    this.render();
    announce(t("compare"));
  }

  /** Go on with one of the two answers. */
  pickAnswer(id) {
    this.comparison = null;
    this.leaf = this.tree.findNewest(id);
    this.render();
    this.hooks.continueWith(this.tree.get(id));
    this.dispatchEvent(new Event("branched"));
  }

  /** Open the last question in sight for writing anew; false where that cannot be done now. */
  editLast() {
    if (this.runId) return false;
    const question = this.tree.listPath(this.leaf).findLast((message) => message.role === "user");
    if (question) this.getView(question).openEditor?.();
    return Boolean(question);
  }

  // Asking

  /** Show a question at once, before the server has it. */
  showPending(pending, documents) {
    this.echoes.set(pending.client_id, new QuestionView({ content: pending.content }, documents, this.hooks));
    this.render();
    this.scrolling.pinToTop(this.echoes.get(pending.client_id).root);
  }

  removePending(pending) {
    this.echoes.delete(pending.client_id);
    this.render();
  }

  acceptPending(pending, frame) {
    const echo = this.echoes.get(pending.client_id);
    const { user_message: question, assistant_message: message } = frame.data;
    this.echoes.delete(pending.client_id);
    this.chatId = frame.chat_id ?? message.chat_id;
    if (!echo || this.views.has(question.id)) return;
    echo.markStored(question);
    this.views.set(question.id, echo);
    this.addMessages([question]);
  }

  // Events of runs

  beginRun(runId, answer) {
    stopReading();
    this.byRun.set(runId, answer);
    this.announceBusy();
  }

  announceBusy() {
    this.root.classList.toggle("busy", Boolean(this.runId));
    this.dispatchEvent(new CustomEvent("busy", { detail: this.runId }));
  }

  receive(frame) {
    const { type, data, run_id: runId } = frame;
    if (type === "run.started") this.showStartedRun(runId, data);
    const answer = this.byRun.get(runId);
    if (!answer || type === "run.started") return;
    if (data?.message && type.startsWith("run.")) this.endRun(runId, data.message);
    else if (answer instanceof AnswerView) this.applyEvent(answer, type, data);
  }

  applyEvent(answer, type, data) {
    if (type === "status") answer.showStatus(data);
    else if (type === "sources") answer.setSources(data);
    else if (type === "reasoning") answer.appendReasoning(data.text);
    else if (type === "delta") answer.appendText(data.text);
    else if (type === "replace") answer.replaceText(data.text);
  }

  showFollowUps(messageId, questions) {
    const answer = this.views.get(messageId);
    if (answer instanceof AnswerView) answer.showFollowUps(questions);
  }

  showStartedRun(runId, { user_message: question, assistant_message: message }) {
    const existing = this.views.get(message.id);
    if (existing) {
      existing.restart?.();
      this.beginRun(runId, existing);
      return;
    }
    this.addMessages([question, { ...message, status: "STREAMING", content: "", sources: null, run_id: runId }]);
    announce(t("announce.started"));
  }

  endRun(runId, message) {
    this.byRun.delete(runId);
    this.tree.add(message);
    const view = this.views.get(message.id);
    const whole = () => (view instanceof AnswerView ? view.complete(message) : this.createView(message));
    if (view) this.views.set(message.id, createViewOrPlain(message, this.hooks, whole));
    this.render();
    announce(t(message.status === "COMPLETED" ? "announce.done" : `end.${message.status}`));
    this.announceBusy();
  }

  /** The log of a run cannot be followed: the stored message says how it stands. */
  async refreshRun(runId, stillFollowed = false) {
    const answer = this.byRun.get(runId);
    if (!answer) return;
    const message = await getJson(`/messages/${answer.message.id}`).catch(() => null);
    if (message && message.status !== "STREAMING") {
      this.runs.unfollow(runId);
      this.endRun(runId, message);
    } else if (!stillFollowed) {
      setTimeout(() => this.refreshRun(runId), 3000);
    }
  }

  /** A message that is shown, null if it is not. */
  getMessage(id) {
    return this.views.get(id)?.message ?? null;
  }

  // Clicks

  findView(node) {
    return this.views.get(node.closest(".msg")?.dataset.messageId);
  }

  handleClick(event) {
    const marker = event.target.closest(".cite");
    if (marker) this.openMarker(marker);
    const copy = event.target.closest("[data-copy-code]");
    if (copy) copyText(copy.closest(".code-box").querySelector("code").textContent, copy);
  }

  openMarker(marker) {
    const { message } = this.findView(marker);
    const read = readMarker(marker, message);
    if (!read) return;
    this.root.querySelector(".cite-open")?.classList.remove("cite-open");
    marker.classList.add("cite-open");
    this.hooks.openSource(message, read.source, marker, { spans: read.spans });
  }

  /** To the next citation of the thread, or the one before; its marker, null where there is none further on. */
  stepCitation(step) {
    return stepCitation(this.root, this.scrolling.scroller, step);
  }
}

const NEAR_END_PIXELS = 90;
const PIN_GAP_PIXELS = 12;

/** The scroll position of the thread: a new question stays at the top while its answer grows below it. */
export class ThreadScroll {
  constructor(root) {
    this.root = root;
    this.scroller = byId("scroller");
    this.stick = true;
    this.before = 0;
    this.pinned = null;
    this.aim = null; // {node, offset, top}: where to be, until the reader scrolls; the thread may still be growing
    this.room = 0; // pixels kept free below the thread, so that a short answer leaves its question at the top
    this.down = byId("to-end");
    this.scroller.addEventListener("scroll", () => this.handleScroll(), { passive: true });
    this.down.addEventListener("click", () => this.scrollToEnd(true));
    const resized = new ResizeObserver(() => this.handleResize());
    resized.observe(root);
    resized.observe(this.scroller); // rows come and go under it
  }

  handleScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const gap = scrollHeight - clientHeight - scrollTop;
    if (this.aim && Math.abs(scrollTop - this.aim.top) > 2) this.aim = null;
    if (scrollTop < this.before - 2 && gap > 4) this.stick = false;
    if (gap < NEAR_END_PIXELS / 2 && scrollTop > this.pinTop + 4) this.stick = true; // beyond the pin only by hand
    this.before = scrollTop;
    this.down.hidden = gap - this.room < NEAR_END_PIXELS * 2;
  }

  handleResize() {
    this.makeRoom();
    if (this.stick) this.scrollToEnd();
    else if (this.aim?.node.isConnected) this.scrollToNode(this.aim.node, this.aim.offset);
    else this.handleScroll();
  }

  scrollToEnd(smooth = false) {
    this.stick = true;
    this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: smooth ? "smooth" : "instant" });
  }

  /** Bring a question to the top and keep it there. */
  pinToTop(node) {
    this.pinned = node;
    this.stick = false;
    this.makeRoom();
    this.scroller.scrollTo({ top: this.pinTop, behavior: "instant" });
  }

  /** How far the pane is scrolled where the pinned question is at its top; -1 where none is. */
  get pinTop() {
    if (!this.pinned?.isConnected) return -1;
    const above = this.pinned.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top;
    return Math.max(0, this.scroller.scrollTop + above - PIN_GAP_PIXELS);
  }

  makeRoom() {
    let room = 0;
    if (this.pinned?.isConnected) {
      const below = this.root.lastElementChild.getBoundingClientRect().bottom - this.pinned.getBoundingClientRect().top;
      room = Math.max(0, Math.floor(this.scroller.clientHeight - below - PIN_GAP_PIXELS));
    }
    if (room === this.room) return;
    this.room = room;
    this.root.style.setProperty("--room", `${room}px`);
  }

  scrollToNode(node, offset) {
    this.stick = false;
    this.scroller.scrollTop += node.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top + offset;
    this.before = this.scroller.scrollTop;
    this.aim = { node, offset, top: this.before };
  }

  /** Change the thread while what is below `anchor` stays where it is; `change` may give another anchor. */
  keepInPlace(anchor, change) {
    const before = anchor.getBoundingClientRect().top;
    this.stick = false;
    const after = change() ?? anchor;
    this.scroller.scrollTop += after.getBoundingClientRect().top - before;
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.stick = scrollHeight - clientHeight - scrollTop < 4;
    this.before = scrollTop;
  }
}
