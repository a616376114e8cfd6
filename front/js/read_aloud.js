// An answer read aloud: one at a time, until its end, the next question or a second press.

import { iconButton, pageData, setIcon } from "./dom.js";
import { t } from "./strings.js";
import { toast } from "./toast.js";
import { hasVoice, speakFromServer, speakHere, whenVoicesChange } from "./voices.js";

const fromServer = Boolean(pageData("page").speech);
let current = null;

/** The button that reads a message; unseen while nothing here can speak. */
export function readAloud(message) {
  const button = iconButton("volume-2", t("read_aloud"), { data: { action: "speak" }, "aria-pressed": "false" });
  button.addEventListener("click", () => {
    const isOn = current?.button === button;
    stopReading();
    if (!isOn) start(button, message);
  });
  return button;
}

/** Be silent. */
export function stopReading() {
  if (!current) return false;
  const { button, controller } = current;
  current = null;
  controller.abort();
  show(button, "off");
  return true;
}

async function start(button, message) {
  const reading = { button, controller: new AbortController() };
  current = reading;
  try {
    await speak(message, reading);
  } catch (error) {
    if (current === reading) toast(error.status ? error.message : t("read_aloud.failed"), { kind: "toast-error" });
  }
  if (current === reading) stopReading();
}

/** By the server where it can, else by the browser. */
async function speak(message, { button, controller: { signal } }) {
  if (fromServer) {
    show(button, "waiting");
    try {
      await speakFromServer(message.id, signal, () => !signal.aborted && show(button, "on"));
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (!hasVoice()) throw error;
    }
  }
  show(button, "on");
  await speakHere(message.content, signal);
}

function show(button, state) {
  setIcon(button, { off: "volume-2", waiting: "loader-circle", on: "square" }[state]);
  button.querySelector(".icon").classList.toggle("spin", state === "waiting");
  button.setAttribute("aria-pressed", String(state !== "off"));
  button.setAttribute("aria-busy", String(state === "waiting"));
  button.title = t(state === "off" ? "read_aloud" : "read_aloud.stop");
}

function offer() {
  document.body.classList.toggle("voiceless", !fromServer && !hasVoice());
}

offer();
whenVoicesChange(offer);
addEventListener("pagehide", stopReading);
