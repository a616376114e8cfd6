// Reads an answer aloud: one at a time, until its end, the next question or a second press of the button.

import { postForBlob } from "./api.js";
import { createIconButton, readPageData, setIcon } from "./dom.js";
import { renderMarkdown } from "./markdown.js";
import { showToast } from "./notify.js";
import { t } from "./strings.js";

const MARKER = /\[\d{1,3}\]/g;
const WEB_ADDRESS = /(?:https?:\/\/|www\.)\S+/gi;
const BLOCKS = "p, li, h1, h2, h3, h4, h5, h6, tr, blockquote, br";
const MAX_SPOKEN_CHARACTERS = 220;
const SPOKEN = /[\p{L}\p{N}]/u;
const HANGUL = /\p{Script=Hangul}/gu;
const LATIN = /\p{Script=Latin}/gu;
const LETTERS_A_SYLLABLE = 2.5;

/** The sentences to read aloud of a Markdown text: [{text, lang}], `lang` being "ko" or "en". */
export function splitSpokenSentences(markdown) {
  const lines = readLines(renderMarkdown(markdown));
  const usual = detectLanguage(lines.join(" "), "ko");
  return lines
    .flatMap((line) => splitSentences(line))
    .flatMap((sentence) => splitBreaths(sentence))
    .filter((text) => SPOKEN.test(text))
    .map((text) => ({ text, lang: detectLanguage(text, usual) }));
}

/** "ko" if Hangul prevails, a syllable counting as some Latin letters; `usual` for a text without either. */
export function detectLanguage(text, usual) {
  const hangul = (text.match(HANGUL) ?? []).length * LETTERS_A_SYLLABLE;
  const latin = (text.match(LATIN) ?? []).length;
  if (!hangul && !latin) return usual;
  return hangul >= latin ? "ko" : "en";
}

/** The lines of the text as shown; a table row is one line. */
function readLines(fragment) {
  for (const code of fragment.querySelectorAll("pre:not(.plain-text)")) code.remove();
  const texts = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replace(/\s+/g, " ");
  for (const cell of fragment.querySelectorAll("td + td, th + th")) cell.before(", ");
  for (const block of fragment.querySelectorAll(BLOCKS)) {
    block.before("\n");
    block.after("\n");
  }
  return fragment.textContent
    .replace(MARKER, "")
    .replace(WEB_ADDRESS, " ")
    .split("\n")
    .map((line) => line.replace(/\s+/g, " ").replace(/ ([.,!?])/g, "$1").trim())
    .filter(Boolean);
}

function splitSentences(line) {
  if (!Intl.Segmenter) return line.match(/[^.!?。]+[.!?。]*\s*/g) ?? [line];
  const parts = new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(line);
  return [...parts].map(({ segment }) => segment.trim());
}

/** Split a long sentence at a comma, else at a word: voices stop in the middle of very long ones. */
function splitBreaths(sentence) {
  const parts = [];
  let rest = sentence;
  while (rest.length > MAX_SPOKEN_CHARACTERS) {
    const head = rest.slice(0, MAX_SPOKEN_CHARACTERS);
    const comma = head.lastIndexOf(", ") + 1;
    const cut = comma > MAX_SPOKEN_CHARACTERS / 2 ? comma : head.lastIndexOf(" ");
    parts.push(rest.slice(0, cut > 0 ? cut : MAX_SPOKEN_CHARACTERS).trim());
    rest = rest.slice(cut > 0 ? cut : MAX_SPOKEN_CHARACTERS).trim();
  }
  return [...parts, rest];
}

const speech = globalThis.speechSynthesis;
const LOCALES = { ko: "ko-KR", en: "en-US" };
const OWN_ENDINGS = new Set(["interrupted", "canceled"]);

/** Whether the browser has any voice. */
export function hasVoice() {
  return Boolean(speech?.getVoices().length);
}

/** Call `changed` when the browser's voices have changed. */
export function watchVoices(changed) {
  speech?.addEventListener?.("voiceschanged", changed);
}

const { voice: ownVoice, speech_rate: ownRate } = readPageData("preferences");

function chooseVoice(lang) {
  const fitting = speech.getVoices().filter((voice) => voice.lang.toLowerCase().startsWith(lang));
  const own = fitting.find((voice) => voice.name === ownVoice);
  return own ?? fitting.find((voice) => voice.default) ?? fitting.find((voice) => voice.localService) ?? fitting[0] ?? null;
}

/** Speak a Markdown text sentence by sentence until `signal` aborts. Rejects if the browser cannot. */
export async function speakInBrowser(markdown, signal) {
  if (!hasVoice()) throw new Error("no voice");
  if (speech.speaking || speech.pending) speech.cancel();
  signal.addEventListener("abort", () => speech.cancel(), { once: true });
  for (const sentence of splitSpokenSentences(markdown)) {
    if (signal.aborted) return;
    await speakSentence(sentence, signal);
  }
}

function speakSentence({ text, lang }, signal) {
  return /** @type {Promise<void>} */ (new Promise((done, failed) => {
    const utterance = new SpeechSynthesisUtterance(text);
    utterance.voice = chooseVoice(lang);
    utterance.lang = utterance.voice?.lang ?? LOCALES[lang];
    utterance.rate = ownRate ?? 1;
    utterance.addEventListener("end", () => done());
    utterance.addEventListener("error", ({ error }) => (OWN_ENDINGS.has(error) ? done() : failed(new Error(error))));
    signal.addEventListener("abort", done, { once: true });
    speech.speak(utterance);
  }));
}

/** Play the server's speech for a message; `ready` is called when it begins. Rejects if it fails. */
export async function speakFromServer(messageId, signal, ready) {
  const sound = await postForBlob(`/messages/${messageId}/speech`, {}, { signal });
  const url = URL.createObjectURL(sound);
  const audio = new Audio(url);
  audio.playbackRate = ownRate ?? 1;
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

const fromServer = Boolean(readPageData("page").speech);
let current = null;

/** The button that reads a message aloud; hidden if there is no voice. */
export function createSpeechButton(message) {
  const button = createIconButton("volume-2", t("read_aloud"), { data: { action: "speak" }, "aria-pressed": "false" });
  button.addEventListener("click", () => {
    const isOn = current?.button === button;
    stopReading();
    if (!isOn) startReading(button, message);
  });
  return button;
}

/** Stop reading; false if nothing was being read. */
export function stopReading() {
  if (!current) return false;
  const { button, controller } = current;
  current = null;
  controller.abort();
  showReadingState(button, "off");
  return true;
}

async function startReading(button, message) {
  const reading = { button, controller: new AbortController() };
  current = reading;
  try {
    await speakMessage(message, reading);
  } catch (error) {
    if (current === reading) showToast(error.status ? error.message : t("read_aloud.failed"), { kind: "toast-error" });
  }
  if (current === reading) stopReading();
}

/** Speak by the server if it can, else by the browser. */
async function speakMessage(message, { button, controller: { signal } }) {
  if (fromServer) {
    showReadingState(button, "waiting");
    try {
      await speakFromServer(message.id, signal, () => !signal.aborted && showReadingState(button, "on"));
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (!hasVoice()) throw error;
    }
  }
  showReadingState(button, "on");
  await speakInBrowser(message.content, signal);
}

function showReadingState(button, state) {
  setIcon(button, { off: "volume-2", waiting: "loader-circle", on: "square" }[state]);
  button.querySelector(".icon").classList.toggle("spin", state === "waiting");
  button.setAttribute("aria-pressed", String(state !== "off"));
  button.setAttribute("aria-busy", String(state === "waiting"));
  button.title = t(state === "off" ? "read_aloud" : "read_aloud.stop");
}

function markVoiceless() {
  document.body.classList.toggle("voiceless", !fromServer && !hasVoice());
}

markVoiceless();
watchVoices(markVoiceless);
addEventListener("pagehide", stopReading);
