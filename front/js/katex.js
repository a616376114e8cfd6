// Formulas as they are printed. A bundle of its own, loaded when the first formula is seen; see drawFormulas in markdown.js.

import katex from "katex";

const OPTIONS = {
  trust: false, // no links, no pictures, no classes of the formula's own
  strict: false,
  maxSize: 20,
  maxExpand: 500,
};

/** Draw the formula whose source is the text of `node`; what cannot be read stays as it was written. */
export function drawFormula(node) {
  const holder = document.createElement("span");
  try {
    katex.render(node.textContent, holder, { ...OPTIONS, throwOnError: true, displayMode: node.classList.contains("math-block") });
  } catch {
    node.classList.add("math-broken");
    return;
  }
  node.replaceChildren(...holder.childNodes);
  node.classList.add("math-drawn");
}
