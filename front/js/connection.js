// Says above the composer that nothing can be sent, within three seconds, and that it can again.

import { toAddress } from "./address.js";
import { announce, byId } from "./dom.js";
import { showToast } from "./notify.js";
import { t } from "./strings.js";

const DOWN_MS = 2000; // a connection that is back within this time is nobody's business
const UNANSWERED_MS = 2500;
const PROBE_MS = 2500;
const SLOW_MS = 6000; // the line is alive, but what is behind it does not take the question

/** Watches the socket, the browser's own word and questions that nobody takes. */
export class ConnectionNote {
  constructor(socket, runs) {
    this.socket = socket;
    this.runs = runs;
    this.root = byId("connection");
    this.words = this.root.querySelector("[data-words]");
    this.timer = null;
    this.wasShown = false;
    addEventListener("offline", () => this.show(t("connection.offline")));
    addEventListener("online", () => this.socket.isOpen && this.hide());
    socket.addEventListener("down", () => this.scheduleProbe());
    socket.addEventListener("unreachable", () => this.probe());
    socket.addEventListener("open", () => this.resendWatched());
    for (const type of ["acknowledged", "refused"]) runs.addEventListener(type, () => runs.outbox.size || this.hide());
    if (!navigator.onLine) this.show(t("connection.offline"));
  }

  scheduleProbe() {
    this.timer ??= setTimeout(() => this.probe(), DOWN_MS);
  }

  /** A question was sent: if nobody takes it, see whether the line is dead; if it is not, say that the server is slow. */
  watchPending(pending) {
    const isWaiting = () => this.runs.outbox.has(pending.client_id);
    setTimeout(() => {
      if (!isWaiting()) return;
      this.socket.ping(PROBE_MS);
      this.probe();
    }, UNANSWERED_MS);
    setTimeout(() => {
      if (isWaiting() && this.socket.isOpen && navigator.onLine) this.show(t("connection.slow"));
    }, SLOW_MS);
  }

  /** The line is back: what waits is sent again, and the note stays until it is taken. */
  resendWatched() {
    if (!this.runs.outbox.size) this.hide();
    for (const pending of this.runs.outbox.values()) this.watchPending(pending);
  }

  /** Whether the server answers at all: without its socket, answers come another way. */
  async probe() {
    this.timer = null;
    if (this.socket.isOpen && !this.runs.outbox.size) return;
    const signal = AbortSignal.timeout(PROBE_MS);
    const alive = await fetch(toAddress("/healthz"), { cache: "no-store", signal }).then((response) => response.ok, () => false);
    if (alive) {
      if (this.wasShown && this.runs.outbox.size) this.show(t("connection.slow"));
      else this.hide();
      if (this.socket.unreachable && !this.told) this.told = showToast(t("no_socket"), { stay: 8000 });
    } else if (!navigator.onLine) this.show(t("connection.offline"));
    else if (!this.socket.isOpen) this.show(t("connection.server"));
    else if (this.runs.outbox.size) this.show(t("connection.slow"));
  }

  show(text) {
    clearTimeout(this.timer);
    this.timer = null;
    this.words.textContent = text;
    this.root.hidden = false;
    this.wasShown = true;
  }

  hide() {
    clearTimeout(this.timer);
    this.timer = null;
    this.told?.();
    this.told = null;
    if (!this.wasShown) return;
    this.wasShown = false;
    this.root.hidden = true;
    announce(t("connection.back"));
  }
}
