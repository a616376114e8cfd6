import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

const words = { textContent: "" };
const root = { hidden: true, querySelector: () => words };
globalThis.document = /** @type {any} */ ({ getElementById: (id) => (id === "strings" ? null : root), documentElement: { dataset: {} } });
globalThis.addEventListener = () => {};
globalThis.requestAnimationFrame = () => 0;
Object.defineProperty(globalThis, "navigator", { value: { onLine: true } });
globalThis.fetch = async () => /** @type {any} */ ({ ok: true });
const { ConnectionNote } = await import("../js/connection.js");

/** A page whose line is alive, with a question that nobody has taken. */
function ask() {
  const socket = Object.assign(new EventTarget(), { isOpen: true, unreachable: false, ping: () => {} });
  const runs = Object.assign(new EventTarget(), { outbox: new Map([["1", { client_id: "1" }]]) });
  new ConnectionNote(socket, runs).watchPending({ client_id: "1" });
  return { socket, runs };
}

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  root.hidden = true;
});

test("a server that is alive but takes no question is said to be slow, until it takes it", () => {
  const { runs } = ask();
  mock.timers.tick(5000);
  assert.equal(root.hidden, true);
  mock.timers.tick(2000);
  assert.equal(root.hidden, false);
  assert.equal(words.textContent, "connection.slow");
  runs.outbox.clear();
  runs.dispatchEvent(new Event("acknowledged"));
  assert.equal(root.hidden, true);
});

test("a question that is taken in time says nothing", () => {
  const { runs } = ask();
  runs.outbox.clear();
  mock.timers.tick(10000);
  assert.equal(root.hidden, true);
});

test("a line that breaks and comes back says nothing else while the question still waits", async () => {
  const { socket } = ask();
  mock.timers.tick(7000);
  socket.isOpen = false;
  socket.dispatchEvent(new Event("down"));
  mock.timers.tick(2500);
  await new Promise(setImmediate); // the server is asked whether it lives
  assert.equal(root.hidden, false);
  socket.isOpen = true;
  socket.dispatchEvent(new Event("open"));
  assert.equal(root.hidden, false);
});
