// An answer as it is spoken: sentences without markers, code and addresses, each with its language.

import { render } from "./markdown.js";

const MARKER = /\[\d{1,3}\]/g;
const ADDRESS = /(?:https?:\/\/|www\.)\S+/gi;
const BLOCKS = "p, li, h1, h2, h3, h4, h5, h6, tr, blockquote, br";
const LONGEST = 220;
const SPEAKS = /[\p{L}\p{N}]/u;
const HANGUL = /\p{Script=Hangul}/gu;
const LATIN = /\p{Script=Latin}/gu;
const LETTERS_A_SYLLABLE = 2.5;

/** What is read aloud of a Markdown text: [{text, lang}], `lang` being "ko" or "en". */
export function spokenSentences(markdown) {
  const lines = linesOf(render(markdown));
  const usual = languageOf(lines.join(" "), "ko");
  return lines
    .flatMap((line) => sentencesOf(line))
    .flatMap((sentence) => breaths(sentence))
    .filter((text) => SPEAKS.test(text))
    .map((text) => ({ text, lang: languageOf(text, usual) }));
}

/** Korean as soon as Hangul prevails, a syllable being worth some Latin letters; `usual` where neither is there. */
export function languageOf(text, usual) {
  const hangul = (text.match(HANGUL) ?? []).length * LETTERS_A_SYLLABLE;
  const latin = (text.match(LATIN) ?? []).length;
  if (!hangul && !latin) return usual;
  return hangul >= latin ? "ko" : "en";
}

/** The lines of what the reader sees, a row of a table being one. */
function linesOf(fragment) {
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
    .replace(ADDRESS, " ")
    .split("\n")
    .map((line) => line.replace(/\s+/g, " ").replace(/ ([.,!?])/g, "$1").trim())
    .filter(Boolean);
}

function sentencesOf(line) {
  if (!Intl.Segmenter) return line.match(/[^.!?。]+[.!?。]*\s*/g) ?? [line];
  const parts = new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(line);
  return [...parts].map(({ segment }) => segment.trim());
}

/** Voices fall silent in the middle of what is very long: it is cut at a comma, else at a word. */
function breaths(sentence) {
  const parts = [];
  let rest = sentence;
  while (rest.length > LONGEST) {
    const head = rest.slice(0, LONGEST);
    const comma = head.lastIndexOf(", ") + 1;
    const cut = comma > LONGEST / 2 ? comma : head.lastIndexOf(" ");
    parts.push(rest.slice(0, cut > 0 ? cut : LONGEST).trim());
    rest = rest.slice(cut > 0 ? cut : LONGEST).trim();
  }
  return [...parts, rest];
}
