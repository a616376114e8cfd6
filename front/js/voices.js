// Two ways to speak: the browser's own voices, and the server's where it has some.

import { postForBlob } from "./api.js";
import { spokenSentences } from "./spoken.js";

const speech = globalThis.speechSynthesis;
const LOCALES = { ko: "ko-KR", en: "en-US" };
const OURS = new Set(["interrupted", "canceled"]);

/** Whether the browser has a voice at all; `changed` runs when that may be otherwise. */
export function hasVoice() {
  return Boolean(speech?.getVoices().length);
}

export function whenVoicesChange(changed) {
  speech?.addEventListener?.("voiceschanged", changed);
}

function voiceFor(lang) {
  const fitting = speech.getVoices().filter((voice) => voice.lang.toLowerCase().startsWith(lang));
  return fitting.find((voice) => voice.default) ?? fitting.find((voice) => voice.localService) ?? fitting[0] ?? null;
}

/** Speak a Markdown text sentence by sentence, until the signal says stop. Rejects where the browser cannot. */
export async function speakHere(markdown, signal) {
  if (!hasVoice()) throw new Error("no voice");
  if (speech.speaking || speech.pending) speech.cancel();
  signal.addEventListener("abort", () => speech.cancel(), { once: true });
  for (const sentence of spokenSentences(markdown)) {
    if (signal.aborted) return;
    await say(sentence, signal);
  }
}

function say({ text, lang }, signal) {
  return new Promise((done, failed) => {
    const utterance = new SpeechSynthesisUtterance(text);
    utterance.voice = voiceFor(lang);
    utterance.lang = utterance.voice?.lang ?? LOCALES[lang];
    utterance.addEventListener("end", done);
    utterance.addEventListener("error", ({ error }) => (OURS.has(error) ? done() : failed(new Error(error))));
    signal.addEventListener("abort", done, { once: true });
    speech.speak(utterance);
  });
}

/** Play what the server speaks of a message; `ready` runs once it begins. Rejects where that fails. */
export async function speakFromServer(messageId, signal, ready) {
  const sound = await postForBlob(`/messages/${messageId}/speech`, {}, { signal });
  const url = URL.createObjectURL(sound);
  const audio = new Audio(url);
  try {
    await new Promise((done, failed) => {
      signal.addEventListener("abort", done, { once: true });
      audio.addEventListener("ended", done);
      audio.addEventListener("error", () => failed(new Error("not playable")));
      audio.play().then(ready, failed);
    });
  } finally {
    audio.pause();
    URL.revokeObjectURL(url);
  }
}
