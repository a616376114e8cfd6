// One live connection per tab. It only opens, keeps alive and reopens; it does not interpret frames.

import { toAddress } from "./address.js";
import { noteRelease } from "./notify.js";

const FIRST_WAIT_MS = 400;
const MAX_WAIT_MS = 15000;
const PING_EVERY_MS = 20000;
const PONG_WITHIN_MS = 8000;
const PONG_AFTER_SLEEP_MS = 2000;
const TRIES_BEFORE_UNREACHABLE = 3;
export const SIGNED_OUT = 4401;

/** Events: `open`, `down`, `frame` (detail: the envelope), `unreachable`, `signedout`. */
export class Socket extends EventTarget {
  constructor(path = "/ws/chat/") {
    super();
    this.address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${toAddress(path)}`;
    this.failures = 0;
    this.socket = null;
    this.timer = null;
    this.pongTimer = null;
    this.signedOut = false;
    setInterval(() => this.ping(), PING_EVERY_MS);
    addEventListener("online", () => this.checkConnection());
    addEventListener("pageshow", (event) => event.persisted && this.checkConnection());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.checkConnection();
    });
    this.connect();
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  /** True after several failures in a row. */
  get unreachable() {
    return this.failures >= TRIES_BEFORE_UNREACHABLE;
  }

  connect() {
    clearTimeout(this.timer);
    this.timer = null;
    const socket = new WebSocket(this.address, ["nura.v1"]);
    this.socket = socket;
    socket.onopen = () => {
      this.failures = 0;
      this.emit("open");
      this.ping(); // the server may be of another release
    };
    socket.onmessage = (event) => this.receive(event.data);
    socket.onclose = (event) => {
      if (this.socket === socket) this.handleClose(event.code);
    };
  }

  handleClose(code) {
    clearTimeout(this.pongTimer);
    this.pongTimer = null;
    this.socket = null;
    this.failures += 1;
    this.emit("down");
    if (code === SIGNED_OUT) {
      this.failures = TRIES_BEFORE_UNREACHABLE;
      if (!this.signedOut) this.emit("signedout");
      this.signedOut = true;
      return;
    }
    if (this.failures === TRIES_BEFORE_UNREACHABLE) this.emit("unreachable");
    const wait = Math.min(FIRST_WAIT_MS * 2 ** (this.failures - 1), MAX_WAIT_MS);
    this.timer = setTimeout(() => this.connect(), wait * (0.7 + Math.random() * 0.6));
  }

  /** The page is visible again: check at once whether the connection is alive, or whether somebody signed in meanwhile. */
  checkConnection() {
    if (this.timer || !this.socket) this.connect();
    else this.ping(PONG_AFTER_SLEEP_MS);
  }

  /** Ping; a connection that stays silent for `patience` ms is given up, as after a phone's sleep. */
  ping(patience = PONG_WITHIN_MS) {
    if (!this.send({ type: "ping" })) return;
    if (this.pongTimer && patience >= PONG_WITHIN_MS) return;
    clearTimeout(this.pongTimer);
    const socket = this.socket;
    this.pongTimer = setTimeout(() => {
      this.pongTimer = null;
      if (this.socket !== socket) return;
      socket.onclose = null;
      socket.close();
      this.handleClose(0);
    }, patience);
  }

  /** Send a frame now; false if there is no open connection. */
  send(frame) {
    if (!this.isOpen) return false;
    this.socket.send(JSON.stringify({ v: 1, ...frame }));
    return true;
  }

  receive(text) {
    clearTimeout(this.pongTimer);
    this.pongTimer = null;
    this.signedOut = false;
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return;
    }
    if (frame.type === "pong") noteRelease(frame.data.release);
    else this.emit("frame", frame);
  }

  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
