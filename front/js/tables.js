// Tables of answers and documents: numbers right-aligned, the first column fixed, a large view, and copying for spreadsheets.

import { createIcon, el } from "./dom.js";
import { copyText } from "./notify.js";
import { t } from "./strings.js";

const WIDE_COLUMNS = 5;
const FIGURE = /^[\s(+\-−–△▲▼±~≈<>≤≥₩$€£¥]*\d[\d,.\s]*(?:[%‰]|\s?(?:원|천원|만원|백만원|억원|조원|개|명|건|회|년|개월|일|배|점|쪽|[kKMGT]?[BbWgm]|km|㎡|㎢|%p|pp|x))?[\s)]*(?:\[\d{1,3}\])*$/;
const EMPTY = /^[\s\-–—·.]*$/;
const NOT_AVAILABLE = /^(?:n\/?a|해당\s?없음|미정)$/i;

/** Wrap tables, so that wide ones can be scrolled by themselves. */
export function wrapTables(fragment) {
  for (const table of fragment.querySelectorAll("table")) {
    alignFigures(table);
    const columns = table.rows[0]?.cells.length ?? 0;
    const wrap = el("div", { class: "table-wrap", tabindex: "0", role: "group", "aria-label": t("table") });
    const box = el("div", { class: "table-box" });
    table.replaceWith(box);
    wrap.append(table);
    box.append(wrap);
    box.classList.toggle("table-wide", columns >= WIDE_COLUMNS);
    box.append(createTools());
    wrap.addEventListener("scroll", () => handleScroll(wrap), { passive: true });
    sizes?.observe(wrap);
  }
}

const sizes = globalThis.ResizeObserver ? new ResizeObserver((entries) => entries.forEach(({ target }) => handleLayout(target))) : null;

function handleLayout(wrap) {
  const asked = askedColumns.get(wrap);
  if (asked) {
    showColumn(wrap, asked.cell);
    Object.assign(asked, { width: wrap.clientWidth, left: wrap.scrollLeft });
  }
  showShadows(wrap);
}

/** A reader who scrolls a table decides what of it is seen from then on. */
function handleScroll(wrap) {
  const asked = askedColumns.get(wrap);
  if (asked?.width === wrap.clientWidth && Math.abs(asked.left - wrap.scrollLeft) > 1) askedColumns.delete(wrap);
  showShadows(wrap);
}

/** Show a shadow on each side where the table continues. */
function showShadows(wrap) {
  const { scrollLeft, scrollWidth, clientWidth, parentElement: box } = wrap;
  box?.classList.toggle("more-before", scrollLeft > 1);
  box?.classList.toggle("more-after", scrollWidth - clientWidth - scrollLeft > 1);
}

/** Right-align columns that contain only numbers, unless their author aligned them. */
function alignFigures(table) {
  const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
  const columns = table.rows[0]?.cells.length ?? 0;
  for (let column = 0; column < columns; column += 1) {
    const cells = rows.map((row) => row.cells[column]).filter(Boolean);
    const said = cells.map((cell) => cell.textContent.trim()).filter((text) => !EMPTY.test(text) && !NOT_AVAILABLE.test(text));
    if (!said.length || !said.every((text) => FIGURE.test(text))) continue;
    for (const cell of [...cells, ...[...table.tHead?.rows ?? []].map((row) => row.cells[column])]) {
      if (cell && !/\bto-/.test(cell.className)) cell.classList.add("to-right");
    }
  }
}

const MIN_ASKED_CHARACTERS = 2;
const plain = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");

/** Scroll each wide table to the column that the question names. */
export function showAskedColumn(root, question) {
  const asked = plain(question);
  for (const wrap of root.querySelectorAll(".table-wide .table-wrap")) {
    const heads = [...(wrap.querySelector("tr")?.cells ?? [])].slice(1);
    const named = heads.filter((cell) => plain(cell.textContent).length >= MIN_ASKED_CHARACTERS && asked.includes(plain(cell.textContent)));
    if (named.length) askedColumns.set(wrap, { cell: named[0] });
  }
}

const askedColumns = new WeakMap(); // of each table the column to keep in sight, also when a panel narrows it

/** Scroll to a column, beside the first one, which is fixed. */
function showColumn(wrap, cell) {
  const [first] = wrap.querySelector("tr").cells;
  const end = cell.offsetLeft + cell.offsetWidth;
  if (end > wrap.clientWidth) wrap.scrollLeft = Math.min(cell.offsetLeft - first.offsetWidth, end - wrap.clientWidth + 24);
}

function createTools() {
  const button = (name, icon, label) =>
    el("button", { type: "button", class: "table-tool", data: { table: name }, "aria-label": label, title: label }, createIcon(icon, "icon-s"));
  return el("div", { class: "table-tools" }, button("copy", "copy", t("table.copy")), button("open", "maximize-2", t("table.open")));
}

/** A table for spreadsheets: cells separated by tabs, rows by line breaks. */
export function toTabSeparated(table) {
  const cell = (one) => one.innerText.replace(/[\t\n]+/g, " ").trim();
  return [...table.rows].map((row) => [...row.cells].map(cell).join("\t")).join("\n");
}

/** Handle the buttons for copying and enlarging of all tables below `root`. */
export function watchTables(root) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-table]");
    const table = button?.closest(".table-box").querySelector("table");
    if (!table) return;
    if (button.dataset.table === "copy") copyText(toTabSeparated(table), button);
    else openLarge(table, button);
  });
}

/** Show the table alone, as large as the window. */
function openLarge(table, opener) {
  const copy = table.cloneNode(true);
  const close = el("button", { type: "button", class: "button", text: t("close") });
  const copyButton = el("button", { type: "button", class: "button", data: { action: "copy-table" } }, createIcon("copy", "icon-s"), t("table.copy"));
  const dialog = el(
    "dialog",
    { class: "dialog table-dialog", "aria-label": t("table") },
    el("div", { class: "table-large prose", tabindex: "0" }, copy),
    el("div", { class: "dialog-actions" }, copyButton, close),
  );
  copyButton.addEventListener("click", () => copyText(toTabSeparated(copy), copyButton));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    opener.focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
}
