// Draws one diagram in the frame of templates/diagram.html, which has no origin, cookies or network, so that a diagram can do
// no harm. The frame receives {text, dark} and replies {height}, again whenever it changes, or {failed}. A separate bundle,
// loaded with the frame; see diagrams.js.

import DOMPurify from "dompurify";
import mermaid from "mermaid";

const MAX_EDGES = 400;
const LEAST_SCALE = 0.6; // a diagram that would be smaller scrolls
const FONT = 'Pretendard, "Apple SD Gothic Neo", "Malgun Gothic", "Noto Sans KR", "Noto Sans CJK KR", system-ui, sans-serif';

// What Mermaid itself allows, except links, media and form controls: labels are only text.
const DRAWN = {
  ADD_TAGS: ["foreignobject"],
  ADD_ATTR: ["dominant-baseline"],
  HTML_INTEGRATION_POINTS: { foreignobject: true },
  FORBID_TAGS: ["a", "audio", "button", "form", "image", "img", "input", "picture", "select", "textarea", "video"],
};

const TAG = /<(?!br\b)[a-z][a-z0-9-]*[\s/][^>]*>/gi; // "<br/>" ends a line, "<<interface>>" is a word
const notifyPage = (message) => parent.postMessage(message, "*");
let count = 0;

async function drawDiagram({ text, dark }) {
  count += 1;
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    suppressErrorRendering: true,
    layout: "dagre", // the other one is left out; see build.js
    secure: [...mermaid.mermaidAPI.defaultConfig.secure, "layout"],
    theme: dark ? "dark" : "neutral",
    fontFamily: FONT,
    maxTextSize: text.length + 1, // the sender limits it
    maxEdges: MAX_EDGES,
  });
  // Mermaid inserts labels to measure them, before they are sanitised below: tags with attributes must not get that far
  const { svg } = await mermaid.render(`diagram-${count}`, text.replace(TAG, ""));
  document.body.innerHTML = DOMPurify.sanitize(svg, DRAWN);
  const drawn = document.body.firstElementChild;
  fitWidth(drawn);
  new ResizeObserver(() => fitWidth(drawn)).observe(document.documentElement);
}

function fitWidth(drawn) {
  const { width, height } = drawn.viewBox.baseVal;
  if (!width || !height) return;
  const shown = Math.max(Math.min(width, document.documentElement.clientWidth), width * LEAST_SCALE);
  drawn.style.maxWidth = "none";
  drawn.style.width = `${shown}px`;
  drawn.style.height = `${(shown * height) / width}px`;
  notifyPage({ height: document.body.scrollHeight });
}

addEventListener("message", ({ source, data }) => {
  if (source === parent) drawDiagram(data).catch(() => notifyPage({ failed: true }));
});
notifyPage({ ready: true });
