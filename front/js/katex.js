// Renders formulas. A separate bundle, loaded with the first formula; see drawFormulas in markdown.js.

import katex from "katex";

const OPTIONS = {
  trust: false, // a formula may not contain links, images or classes
  strict: false,
  maxSize: 20,
  maxExpand: 500,
};

/** Render the formula in the text of `node`; if it is invalid, the source stays. */
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
