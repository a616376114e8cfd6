// The sentences of an answer and what its evidence says of them.

import { render } from "./markdown.js";
import { has, t } from "./strings.js";

const MARKER = /\[\d{1,3}\]/g;
const BARS = /\s*\|\s*/g;

/**
 * The sentences that were checked, in order: {text, letters, verdict, slots, reasons}. `text` is what the reader sees of
 * one without its markers.
 */
export function checkedSentences({ content, grounding }) {
  if (!grounding?.length) return [];
  const characters = Array.from(content); // offsets count code points, strings count UTF-16
  return grounding.map((found) => {
    const shown = render(characters.slice(found.start, found.end).join("")).textContent;
    const bare = shown.replace(MARKER, "").replace(BARS, " ").replace(/\s+/g, " ");
    const text = bare.replace(/ (?=[.,!?])/g, "").trim();
    return { ...found, text, letters: lettersOf(text) };
  });
}

/** Letters and figures alone: they are the same before and after Markdown. */
export function lettersOf(text) {
  return text.replace(/[^\p{L}\p{N}]+/gu, "");
}

/** How many sentences claim something, and how many of them the evidence holds. */
export function tally({ grounding }) {
  const count = (verdict) => (grounding ?? []).filter((one) => one.verdict === verdict).length;
  const [supported, unsupported] = [count("supported"), count("unsupported")];
  return { supported, unsupported, claims: supported + unsupported };
}

/** Why a sentence was not confirmed, in words. */
export function reasonsOf({ reasons }) {
  const told = (reasons ?? []).map((reason) => `doubt.${reason}`).filter(has);
  return told.length ? told.map((key) => t(key)) : [t("doubt.overlap")];
}
