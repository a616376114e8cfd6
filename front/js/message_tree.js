// The messages of a chat: loaded from the newest page back, and kept as a tree of branches.

import { getJson } from "./api.js";

const ROOT = "";

/** All loaded messages and their branches, ordered by creation time. */
export class MessageTree {
  constructor() {
    this.messages = new Map();
    this.children = new Map();
    this.names = new Map();
  }

  get(id) {
    return this.messages.get(id);
  }

  has(id) {
    return this.messages.has(id);
  }

  /** Add a message, or replace it by a newer state. */
  add(message) {
    const isNew = !this.messages.has(message.id);
    this.messages.set(message.id, message);
    for (const source of message.sources ?? []) this.names.set(source.document_id, source.document_name);
    if (!isNew) return;
    const siblings = this.listSiblings(message);
    siblings.push(message.id);
    siblings.sort((one, other) => this.compareMessages(one, other));
    this.children.set(message.parent_id ?? ROOT, siblings);
  }

  compareMessages(one, other) {
    const [first, second] = [this.messages.get(one).created_at, this.messages.get(other).created_at];
    return Date.parse(first) - Date.parse(second) || (first < second ? -1 : 1);
  }

  /** Ids of the messages with the same parent, including this one. */
  listSiblings(message) {
    return this.children.get(message.parent_id ?? ROOT) ?? [];
  }

  /** The newest message, of all or below one. */
  findNewest(under = null) {
    let best = under;
    const open = under ? [under] : [...this.messages.keys()];
    while (open.length) {
      const id = open.pop();
      if (best === null || (id !== best && this.compareMessages(id, best) > 0)) best = id;
      if (under) open.push(...(this.children.get(id) ?? []));
    }
    return best;
  }

  /** The messages up to `leaf`, oldest first, as far as they are loaded. */
  listPath(leaf) {
    const found = [];
    for (let message = this.messages.get(leaf); message; message = this.messages.get(message.parent_id)) {
      found.push(message);
    }
    return found.reverse();
  }

  /** The name of a document shown by some answer. */
  getDocumentName(documentId) {
    return this.names.get(documentId) ?? "";
  }

  /** The ids of a message's siblings, and its index among them. */
  locate(message) {
    const ids = this.listSiblings(message);
    return { ids, index: ids.indexOf(message.id) };
  }
}

const PAGE_SIZE = 30; // about a screen and a half; more is drawn on demand

export class MessagePages {
  constructor(chatId) {
    this.chatId = chatId;
    this.newest = null;
    this.end = 0;
    this.unread = 0;
  }

  fetchPage(number) {
    return getJson(`/chats/${this.chatId}/messages?page=${number}&page_size=${PAGE_SIZE}`);
  }

  /** Load the newest page. */
  async fetchNewest() {
    this.newest = await this.fetchPage("last");
    this.end = Math.max(Math.ceil(this.newest.count / PAGE_SIZE), 1);
    this.unread = this.end;
  }

  get hasMore() {
    return this.unread > 0;
  }

  /** The newest messages that have not been loaded yet. */
  async fetchEarlier() {
    const { results } = this.unread === this.end ? this.newest : await this.fetchPage(this.unread);
    this.unread -= 1;
    return results;
  }

  /** The newest messages as they are now. */
  async refetchLatest() {
    return (await this.fetchPage("last")).results;
  }
}
