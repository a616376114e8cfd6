// Runs that this tab follows: each event once, none lost, over the socket or, without one, over HTTP.

import { toAddress } from "./address.js";
import { isSignedOut, postJson } from "./api.js";

const TERMINAL = new Set(["run.completed", "run.stopped", "run.error"]);
const SILENCE_MS = 20000;
const UNDECIDED = new Set([502, 504]); // a proxy's: whether the question was taken nobody knows, so it is sent again
const FALLBACK_WAIT_MS = 1500;
const MAX_FALLBACK_TRIES = 40;

/**
 * Events: `event` (detail: envelope of a run, in order), `acknowledged` {pending, frame}, `refused` {pending, error},
 * `lost` {runId} (its log is gone: fetch the message), `silent` {runId} (check whether it is still running).
 */
export class Runs extends EventTarget {
  constructor(socket) {
    super();
    this.socket = socket;
    this.active = new Map();
    this.outbox = new Map();
    socket.addEventListener("open", () => this.resumeAll());
    socket.addEventListener("unreachable", () => this.fallBackToHttp());
    socket.addEventListener("signedout", () => this.fallBackToHttp());
    socket.addEventListener("frame", ({ detail }) => this.receive(detail));
    setInterval(() => this.reportSilentRuns(), SILENCE_MS / 4);
  }

  /** Ask a question. It is sent again after a reconnect until the server has taken it. */
  ask(fields) {
    const pending = { client_id: createClientId(), ...fields };
    this.outbox.set(pending.client_id, pending);
    if (!this.socket.send({ type: "send", ...pending }) && this.socket.unreachable) this.askByHttp(pending);
    return pending;
  }

  /** Follow a run from `afterSeq` on; `asked`: it answers what is in the outbox. */
  follow(runId, afterSeq = 0, asked = false) {
    if (this.active.has(runId)) return;
    const run = { id: runId, last: afterSeq, seen: Date.now(), controller: null, asked };
    this.active.set(runId, run);
    this.resume(run);
  }

  stop(runId) {
    if (this.socket.send({ type: "stop", run_id: runId })) return;
    postJson(`/runs/${runId}/stop`).catch(() => {});
  }

  unfollow(runId) {
    this.active.get(runId)?.controller?.abort();
    this.active.delete(runId);
  }

  resume(run) {
    run.askedAt = run.last;
    if (this.socket.send({ type: "resume", run_id: run.id, after_seq: run.last })) return;
    if (this.socket.unreachable) this.followByHttp(run);
  }

  resumeAll() {
    for (const pending of this.outbox.values()) this.socket.send({ type: "send", ...pending });
    for (const run of this.active.values()) {
      run.controller?.abort();
      run.controller = null;
      this.resume(run);
    }
  }

  fallBackToHttp() {
    for (const pending of this.outbox.values()) this.askByHttp(pending);
    for (const run of this.active.values()) if (!run.controller) this.followByHttp(run);
  }

  receive(frame) {
    if (frame.type === "error") return this.handleError(frame.data ?? {});
    if (!frame.run_id || !Number.isInteger(frame.seq)) return this.emit("notice", frame);
    let run = this.active.get(frame.run_id);
    if (!run) {
      if (frame.type !== "run.started" || !this.outbox.size) return undefined;
      run = { id: frame.run_id, last: 0, seen: Date.now(), controller: null, asked: true };
      this.active.set(run.id, run);
    }
    return this.applyFrame(run, frame);
  }

  applyFrame(run, frame) {
    run.seen = Date.now();
    if (frame.seq <= run.last) return;
    if (frame.seq > run.last + 1) {
      if (run.askedAt !== run.last) this.resume(run);
      return;
    }
    run.last = frame.seq;
    if (TERMINAL.has(frame.type)) this.unfollow(run.id);
    if (frame.type === "run.started") this.acknowledge(run, frame);
    this.emit("event", frame);
  }

  /** The question in the outbox whose run this is: runs of other branches and tabs are followed too. */
  acknowledge(run, frame) {
    const waiting = [...this.outbox.values()];
    const content = frame.data.user_message.content;
    const pending = waiting.find((one) => one.content.normalize("NFC").trim() === content) ?? (run.asked && waiting[0]);
    if (!pending) return;
    this.outbox.delete(pending.client_id);
    this.emit("acknowledged", { pending, frame });
  }

  handleError(data) {
    if (data.in_reply_to === "resume" || (data.run_id && !data.client_id)) {
      if (data.in_reply_to !== "stop" && this.active.has(data.run_id)) {
        this.unfollow(data.run_id);
        this.emit("lost", { runId: data.run_id });
      }
      return;
    }
    const pending = this.outbox.get(data.client_id) ?? [...this.outbox.values()][0];
    if (pending) this.refuse(pending, { code: data.code, message: data.detail });
  }

  refuse(pending, error) {
    if (!this.outbox.delete(pending.client_id)) return;
    this.emit("refused", { pending, error });
  }

  reportSilentRuns() {
    for (const run of this.active.values()) {
      if (Date.now() - run.seen < SILENCE_MS) continue;
      run.seen = Date.now();
      this.emit("silent", { runId: run.id });
    }
  }

  async askByHttp(pending) {
    if (pending.byHttp) return;
    pending.byHttp = true;
    const { byHttp, ...fields } = pending;
    try {
      const answer = await postJson("/messages?wait=false", fields);
      if (this.outbox.has(pending.client_id)) this.follow(answer.run_id, 0, true);
    } catch (error) {
      pending.byHttp = false;
      if (error.status && !UNDECIDED.has(error.status)) this.refuse(pending, { code: error.code, message: error.message });
      else setTimeout(() => this.outbox.has(pending.client_id) && this.askByHttp(pending), FALLBACK_WAIT_MS * 2);
    }
  }

  async followByHttp(run) {
    const controller = new AbortController();
    run.controller = controller;
    for (let tries = 0; tries < MAX_FALLBACK_TRIES && this.active.get(run.id) === run; tries += 1) {
      try {
        await readRunEvents(run.id, run.last, (frame) => this.applyFrame(run, frame), controller.signal);
      } catch (error) {
        if (controller.signal.aborted) return;
        if (error.status === 404 || isSignedOut(error.status)) break;
      }
      await new Promise((done) => setTimeout(done, FALLBACK_WAIT_MS));
      if (controller.signal.aborted) return;
    }
    if (this.active.get(run.id) !== run) return;
    this.unfollow(run.id);
    this.emit("lost", { runId: run.id });
  }

  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function createClientId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Call `onFrame` with each envelope after `afterSeq`; resolves when the server ends the stream. */
export async function readRunEvents(runId, afterSeq, onFrame, signal) {
  const response = await fetch(toAddress(`/api/v1/runs/${runId}/events`), {
    headers: { Accept: "text/event-stream", "Last-Event-ID": String(afterSeq) },
    credentials: "same-origin",
    signal,
  });
  if (!response.ok) throw Object.assign(new Error("events"), { status: response.status });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value.replace(/\r\n?/g, "\n");
    const parts = buffer.split("\n\n");
    buffer = parts.pop();
    for (const part of parts) {
      const frame = parseEvent(part, runId);
      if (frame) onFrame(frame);
    }
  }
}

function parseEvent(text, runId) {
  const fields = { event: "", id: "", data: [] };
  for (const line of text.split("\n")) {
    if (line.startsWith(":")) continue;
    const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (name === "data") fields.data.push(value);
    else if (name) fields[name] = value;
  }
  if (!fields.data.length) return null;
  let data;
  try {
    data = JSON.parse(fields.data.join("\n"));
  } catch {
    return null;
  }
  if (data && data.type && "data" in data) return data;
  return { type: fields.event, run_id: runId, chat_id: null, seq: Number(fields.id), data };
}
