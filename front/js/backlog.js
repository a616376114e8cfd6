// The stored messages of a chat, read from the newest page back.

import { get } from "./api.js";

const PAGE = 50;

export class Backlog {
  constructor(chatId) {
    this.chatId = chatId;
    this.first = null;
    this.unread = 0;
  }

  page(number) {
    return get(`/chats/${this.chatId}/messages?page=${number}&page_size=${PAGE}`);
  }

  /** Find the end, and read from there next. */
  async open() {
    this.first = await this.page(1);
    this.unread = Math.max(Math.ceil(this.first.count / PAGE), 1);
  }

  get hasMore() {
    return this.unread > 0;
  }

  /** The newest messages that have not been read yet. */
  async earlier() {
    const { results } = this.unread === 1 && this.first ? this.first : await this.page(this.unread);
    this.unread -= 1;
    return results;
  }

  /** The newest messages as they are now. */
  async latest() {
    const first = await this.page(1);
    const last = Math.ceil(first.count / PAGE);
    return last > 1 ? (await this.page(last)).results : first.results;
  }
}
