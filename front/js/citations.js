// Citation markers of an answer: their names (1, or 1a and 1b for two passages of one document), the card shown on hover,
// moving from one to the next, and the answer as text with footnotes.

import { createIcon, el, scrollWithin, watchHoverCard } from "./dom.js";
import { formatPages } from "./format.js";
import { t } from "./strings.js";

const OPEN = "\uE000"; // replaces a marker's number while Markdown is rendered; nobody types it
const MARKER = /\[(\d{1,3})\]/g;
const PREVIEW_CHARACTERS = 180;

/** The markers of a message in order: {offset, slot, chunk_id, spans}. Of older messages only the slots are known. */
function listCitations(message) {
  return message.citations ?? [];
}

/** Whether an answer cites a passage. Until it is finished nothing is marked as cited, and the numbers in its text tell. */
export function isCited(source, { status, content }) {
  return source.cited !== false || (status !== "COMPLETED" && content.includes(`[${source.slot}]`));
}

/** The passages that an answer cites, in the order of its citations, and the others. */
export function splitSources(message) {
  const all = (message.sources ?? []).map((one, index) => ({ ...one, cited: isCited(one, message), index, message_id: message.id }));
  const order = new Map();
  for (const { chunk_id: id } of listCitations(message)) if (!order.has(id)) order.set(id, order.size);
  const place = (one) => order.get(one.chunk_id) ?? order.size;
  const cited = all.filter((one) => one.cited).sort((one, other) => one.slot - other.slot || place(one) - place(other));
  return { cited, reviewed: all.filter((one) => !one.cited) };
}

/** The name of each cited passage: its document's number, with a letter if several passages of that are cited. */
export function nameSources(message) {
  const names = new Map();
  const { cited } = splitSources(message);
  for (const { slot, chunk_id: id } of cited) {
    const own = cited.filter((one) => one.slot === slot);
    names.set(id, own.length > 1 ? `${slot}${toLetters(own.findIndex((one) => one.chunk_id === id))}` : String(slot));
  }
  return names;
}

/** a, b … z, aa, ab … */
function toLetters(at) {
  const letter = String.fromCharCode(97 + (at % 26));
  return at < 26 ? letter : toLetters(Math.floor(at / 26) - 1) + letter;
}

/** The text of a message with its markers numbered, for `createMarkers`. */
export function tagMarkers({ content, citations }) {
  if (!citations?.length) return content;
  const characters = Array.from(content); // offsets count code points, strings count UTF-16
  const numbers = new Map();
  citations.forEach(({ offset }, number) => numbers.set(offset, [...(numbers.get(offset) ?? []), number]));
  let text = "";
  let from = 0;
  for (const [offset, own] of [...numbers].sort(([one], [other]) => one - other)) {
    const end = characters.indexOf("]", offset);
    if (characters[offset] !== "[" || end < 0) continue;
    text += `${characters.slice(from, offset).join("")}[${OPEN}${own.join(",")}]`;
    from = end + 1;
  }
  return text + characters.slice(from).join("");
}

const TAGGED = /\[(?:(\d{1,3})|\uE000([\d,]+))\]/g;

const LAST_WORD = /\S{1,24}\s?$/;
const STOPS = /^[.,;:!?。…]+/;

/** Replace the markers in a text by buttons, each kept on one line with the word before; null if there are none. */
export function createMarkers(text, message) {
  const parts = [];
  let from = 0;
  let tie = null;
  for (const match of text.matchAll(TAGGED)) {
    const made = match[2] ? match[2].split(",").map((number) => createCitation(message, Number(number))) : [createSlot(message, Number(match[1]))];
    const known = made.filter(Boolean);
    if (!known.length) continue;
    const before = text.slice(from, match.index);
    const word = LAST_WORD.exec(before)?.[0] ?? "";
    if (before.length > word.length) parts.push(before.slice(0, before.length - word.length));
    if (before || !tie) parts.push((tie = el("span", { class: "cite-tie" }, word)));
    from = match.index + match[0].length;
    const stop = STOPS.exec(text.slice(from))?.[0] ?? "";
    tie.append(...known, stop);
    from += stop.length;
  }
  if (!parts.length) return null;
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

function createCitation(message, number) {
  const citation = message.citations[number];
  const source = message.sources?.find((one) => one.chunk_id === citation.chunk_id);
  if (!source) return null;
  message.names ??= nameSources(message);
  return createMarker(source, message.names.get(source.chunk_id) ?? String(source.slot), { citation: number });
}

function createSlot(message, slot) {
  const source = message.sources?.find((one) => one.slot === slot);
  return source ? createMarker(source, String(slot), {}) : null;
}

function createMarker(source, name, data) {
  return el("button", {
    type: "button",
    class: "cite",
    data: { slot: source.slot, ...data },
    text: name,
    "aria-label": t("source_label", { slot: name, where: describeWhere(source) }),
  });
}

/** Document, and the page or section within it. */
export function describeWhere(source) {
  return [source.document_name, formatPages(source) || source.section].filter(Boolean).join(", ");
}

/** What a marker cites: {source, spans}, the passage and its cited sentences; null if that is unknown. */
export function readMarker(marker, message) {
  const citation = message.citations?.[Number(marker.dataset.citation ?? -1)];
  if (citation) {
    const source = message.sources.find((one) => one.chunk_id === citation.chunk_id);
    return { source, spans: citation.spans.map((at) => source.spans[at]).filter(Boolean) };
  }
  const own = (message.sources ?? []).filter((one) => one.slot === Number(marker.dataset.slot));
  const source = own.find((one) => one.cited !== false) ?? own[0];
  return source ? { source, spans: source.spans ?? [] } : null;
}

// The card

/** Show what a marker cites while it is hovered or focused; `writeWords(node, words)` renders the quotation. */
export function watchMarkers(root, getMessage, writeWords) {
  const show = (card, marker) => {
    const message = getMessage(marker);
    const read = message && readMarker(marker, message);
    if (!read) return false;
    fillHoverCard(card, read, writeWords);
    marker.setAttribute("aria-describedby", card.id);
    return true;
  };
  const { hide } = watchHoverCard(root, ".cite", { id: "hover-card", fill: show });
  root.addEventListener("click", (event) => event.target.closest(".cite") && hide());
}

function fillHoverCard(card, { source, spans }, writeWords) {
  const quote = el("p", { class: "hover-text" });
  const page = spans[0]?.page ?? source.page;
  const facts = [page ? t("page", { page }) : "", source.section, source.unreadable ? t("unreadable") : source.deleted ? t("deleted") : ""].filter(Boolean).join(" · ");
  card.replaceChildren(
    el("div", { class: "hover-head" }, createIcon("file-text", "icon-s"), el("strong", { text: source.document_name })),
    facts ? el("p", { class: "hover-facts", text: facts }) : "",
    quote,
  );
  writeWords(quote, quoteSource(source, spans));
}

/** The text of a span in one line, blanks collapsed and the bars of table rows replaced. */
function toLine({ text }) {
  return text.replace(/^[\s|]+|[\s|]+$/g, "").replace(/\s*\|[\s|]*/g, " · ").replace(/\s+/g, " ");
}

/** The cited sentences, else the beginning of the passage, in whole words. */
function quoteSource(source, spans) {
  const said = spans.map(toLine).filter(Boolean).join(" … ");
  return said || cutAtWord(source.content_preview.replace(/\s+/g, " ").replace(/^[#|>\s-]+/, "").trim(), source.content_preview.length >= PREVIEW_CHARACTERS);
}

const BEGINNING_CHARACTERS = 20;

/** The first words of the cited sentences, or of the passage. */
export function quoteBeginning(source) {
  const said = quoteSource(source, source.spans ?? []);
  return cutAtWord(said.slice(0, BEGINNING_CHARACTERS), said.length > BEGINNING_CHARACTERS);
}

/** `isCut`: the text was cut off, perhaps in the middle of a word. */
export function cutAtWord(text, isCut) {
  if (!isCut) return text;
  const end = text.lastIndexOf(" ");
  return `${end > text.length / 2 ? text.slice(0, end) : text}…`;
}

// From one to the next

/** Scroll to and focus the citation after the focused one, or after what is in view; null at the end. */
export function stepCitation(root, scroller, step) {
  const markers = [...root.querySelectorAll(".cite")];
  if (!markers.length) return null;
  const current = markers.indexOf(root.querySelector(".cite.cite-open") ?? document.activeElement);
  let next = current + step;
  if (current < 0) {
    const { top, bottom } = scroller.getBoundingClientRect();
    const places = markers.map((one) => one.getBoundingClientRect().top);
    next = step > 0 ? places.findIndex((place) => place >= top) : places.findLastIndex((place) => place < bottom);
    if (next < 0) next = step > 0 ? 0 : markers.length - 1;
  }
  const marker = markers[next];
  if (!marker) return null;
  const { top, bottom } = marker.getBoundingClientRect();
  const pane = scroller.getBoundingClientRect();
  if (top < pane.top + 24 || bottom > pane.bottom - 24) scrollWithin(marker, 0.4);
  marker.focus({ preventScroll: true });
  return marker;
}

// As text

/** The answer as Markdown with a footnote for each cited passage: its place and the sentence. */
export function writeWithFootnotes(message) {
  const { cited } = splitSources(message);
  if (!cited.length) return message.content;
  const names = nameSources(message);
  const citations = listCitations(message);
  const getNumber = (slot) => names.get(cited.find((one) => one.slot === slot)?.chunk_id);
  const note = (name) => (name ? `[^${name}]` : "");
  const text = citations.length
    ? tagMarkers(message).replace(/\[\uE000([\d,]+)\]/g, (_all, own) =>
        own.split(",").map((number) => note(names.get(citations[number].chunk_id))).join(""))
    : message.content.replace(MARKER, (all, slot) => note(getNumber(Number(slot))) || all);
  const notes = cited.map((source) => {
    const said = (source.spans ?? []).map(toLine).join(" … ");
    return `[^${names.get(source.chunk_id)}]: ${describeWhere(source)}${said ? `: “${said}”` : ""}`;
  });
  return `${text}\n\n${notes.join("\n")}`;
}
