// The reader's place, in the address: the message in view, and the source that the panel shows.
//
// `?message=ID&source=2&tab=whole&page=7`: `source` is the number of a source of the message, `page` a page of the whole
// document. Opening the panel adds an entry to the history, so that Back closes it; moving within it does not.

const SETTLE_MS = 200;

/** The place in the address. */
export function readPlace() {
  const query = new URLSearchParams(location.search);
  const number = (name) => Number.parseInt(query.get(name) ?? "", 10) || null;
  return { message: query.get("message"), source: number("source"), tab: query.get("tab"), page: number("page") };
}

function replaceAddress(values, state, step) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  const address = `${location.pathname}${query.size ? `?${query}` : ""}`;
  if (step === "push") history.pushState(state, "", address);
  else history.replaceState(state, "", address);
}

/** Keeps the address of a chat up to date. `getChatId()` returns the chat, null before its first question. */
export class Place {
  constructor({ thread, panel, getChatId }) {
    this.thread = thread;
    this.panel = panel;
    this.getChatId = getChatId;
    this.isFollowing = false;
    panel.addEventListener("opened", () => this.isFollowing || this.writeAddress("push"));
    panel.addEventListener("moved", () => this.isFollowing || this.writeAddress());
    panel.addEventListener("closing", (event) => this.handleClosing(event));
    thread.addEventListener("branched", () => this.writeAddress());
    addEventListener("popstate", () => this.followAddress());
    let timer = null;
    thread.scrolling.scroller.addEventListener("scroll", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.writeAddress(), SETTLE_MS);
    }, { passive: true });
  }

  /** Show what the address says, once the chat is loaded. */
  async restore() {
    const place = readPlace();
    const { scroll } = history.state ?? {}; // null at the end of the thread, where it is already
    if (scroll) this.thread.goTo(scroll);
    else if (place.message && scroll === undefined) this.thread.goTo({ message: place.message });
    await this.followAddress();
  }

  writeAddress(step = "replace") {
    if (!this.getChatId()) return;
    const { panel, thread } = this;
    const scroll = thread.place;
    const isSource = panel.isOpen && panel.message;
    const shown = isSource
      ? {
          message: panel.message.id,
          source: panel.source.index + 1,
          tab: panel.tab === "whole" ? "whole" : null,
          page: panel.tab === "whole" ? panel.page : null,
        }
      : { message: scroll?.message };
    replaceAddress(shown, { ...history.state, scroll, newest: thread.newest, panel: panel.isOpen && (step === "push" || Boolean(history.state?.panel)) }, step);
  }

  /** Back, where opening it was a step; else it is closed here. */
  handleClosing(event) {
    event.preventDefault();
    if (history.state?.panel) {
      history.back();
      return;
    }
    this.panel.close();
    this.writeAddress();
  }

  async followAddress() {
    const { message: id, source: number, tab, page } = readPlace();
    const message = id && this.thread.getMessage(id);
    const source = number && message?.sources?.[number - 1];
    this.isFollowing = true;
    try {
      if (source) await this.panel.open(message, source, null, { tab, page });
      else if (!history.state?.panel) this.panel.close(); // else something without an address was opened meanwhile
    } finally {
      this.isFollowing = false;
    }
  }
}
