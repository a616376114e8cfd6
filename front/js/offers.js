// What an answer offers to go on with: documents of a question back, and the other parts of a whole document.

import { el, icon } from "./dom.js";
import { t, tn } from "./strings.js";

const SHOWN = 10;

/** The documents that a question back offers, as buttons. Null where it offers none. */
export function candidateButtons(message, hooks) {
  const candidates = message.candidates ?? [];
  const question = hooks.before(message).at(-1);
  if (message.mode !== "clarify" || !candidates.length || !question) return null;
  const item = ({ slot, document_id: id, title }) =>
    el(
      "li",
      {},
      el(
        "button",
        { type: "button", class: "source-card candidate", on: { click: () => hooks.send(question.content, [{ id, name: title }]) } },
        el("span", { class: "slot", text: String(slot) }),
        el("span", { class: "source-text" }, el("span", { class: "source-name", text: title, title })),
      ),
    );
  const list = el("ul", { class: "card-list" }, candidates.slice(0, SHOWN).map(item));
  const section = el("section", { class: "cards candidates", "aria-label": t("candidates") }, list);
  const rest = candidates.slice(SHOWN);
  if (rest.length) section.append(showMore(rest.length, () => list.append(...rest.map(item))));
  return section;
}

function showMore(count, run) {
  const button = el("button", { type: "button", class: "cards-more" }, tn("names.rest", count));
  button.addEventListener("click", () => {
    run();
    button.remove();
  });
  return button;
}

/** Which part of a whole document this is, and the way to its neighbours. Null for any other answer. */
export function partBar(message, hooks) {
  const { mode, view } = message;
  if (mode !== "document" || !view) return null;
  const name = hooks.titleOf(view.document_id);
  const go = (way, sign) =>
    el(
      "button",
      {
        type: "button",
        class: "button part-step",
        data: { part: way },
        disabled: way === "next" ? view.part >= view.parts : view.part <= 1,
        on: { click: () => hooks.send(t(`part.ask_${way}`)) },
      },
      way === "previous" ? icon(sign, "icon-s") : null,
      t(`part.${way}`),
      way === "next" ? icon(sign, "icon-s") : null,
    );
  return el(
    "nav",
    { class: "part-bar", "aria-label": name || t("mode.document") },
    el("span", { class: "part-of", text: t("part.of", view) }),
    opener(message, hooks),
    view.parts > 1 ? el("span", { class: "part-steps" }, go("previous", "chevron-left"), go("next", "chevron-right")) : null,
  );
}

/** Beside the thread where the answer has its passages, else on the document's own page. */
function opener(message, hooks) {
  const [source] = message.sources ?? [];
  const parts = [icon("panel-right", "icon-s"), t("part.open")];
  if (!source) return el("a", { class: "button", href: `/documents/${message.view.document_id}` }, parts);
  const button = el("button", { type: "button", class: "button" }, parts);
  button.addEventListener("click", () => hooks.openSource(message, source, button));
  return button;
}
