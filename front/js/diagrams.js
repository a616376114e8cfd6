// Diagrams in answers: each is drawn by Mermaid in a frame of its own without origin or network access (diagram.js).

import { el } from "./dom.js";
import { t } from "./strings.js";

const MAX_CHARACTERS = 20_000;
const MAX_HEIGHT = 2000;
const READY_WITHIN_MS = 20_000;
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

/** Draw the code in `pre` as a diagram in `box`, with a button for the code in `head`; if that fails, the code stays. */
export function showDiagram({ box, head, pre }) {
  const text = pre.textContent;
  if (text.length > MAX_CHARACTERS) return;
  const frame = el("iframe", {
    class: "diagram",
    sandbox: "allow-scripts",
    src: document.documentElement.dataset.diagram,
    loading: "lazy",
    referrerpolicy: "no-referrer",
    title: t("diagram"),
  });
  const toggle = el("button", { type: "button", class: "code-copy diagram-toggle", "aria-pressed": "false" }, el("span", { text: t("diagram.code") }));
  let timer = null;
  toggle.addEventListener("click", () => {
    const isCode = toggle.getAttribute("aria-pressed") !== "true";
    toggle.setAttribute("aria-pressed", String(isCode));
    box.classList.toggle("diagram-shown", !isCode);
  });
  const fail = () => {
    frame.remove();
    box.classList.remove("diagram-shown");
    head.firstElementChild.textContent = t("diagram.failed");
  };
  answers.set(frame, ({ ready, height, failed }) => {
    clearTimeout(timer);
    if (failed) return fail();
    if (ready === true) {
      timer = setTimeout(fail, READY_WITHIN_MS);
      return send(frame);
    }
    if (!Number.isFinite(height) || height <= 0) return undefined;
    frame.style.height = `${Math.min(Math.ceil(height), MAX_HEIGHT)}px`;
    if (!toggle.isConnected) {
      head.firstElementChild.after(toggle);
      box.classList.add("diagram-shown");
    }
    return undefined;
  });
  texts.set(frame, text);
  box.append(frame);
}

const answers = new WeakMap();
const texts = new WeakMap();

/** @type {() => HTMLIFrameElement[]} */
const listFrames = () => [...document.querySelectorAll("iframe")].filter((one) => texts.has(one));

function send(frame) {
  const { theme } = document.documentElement.dataset;
  const dark = theme ? theme === "dark" : systemIsDark.matches;
  frame.contentWindow.postMessage({ text: texts.get(frame), dark }, "*"); // it has no origin to name
}

addEventListener("message", ({ source, data }) => {
  const frame = listFrames().find((one) => one.contentWindow === source);
  if (frame && typeof data === "object" && data) answers.get(frame)?.(data);
});
const redraw = () => listFrames().forEach(send);
systemIsDark.addEventListener("change", redraw);
new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
