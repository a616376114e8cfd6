// Markdown of answers and documents -> safe elements. Whatever is shown went through DOMPurify after Markdown.

import MarkdownIt from "markdown-it";
import DOMPurify from "dompurify";

const LONGEST_TEXT = 300_000;
const MOST_CELLS = 12_000;
const DEEPEST_HEADING = 6;
const TAGS = (
  "a p br hr h1 h2 h3 h4 h5 h6 strong em s del code pre blockquote ul ol li " +
  "table thead tbody tr th td span sub sup"
).split(" ");
const CLASSES = /^(language-[\w+#.-]{1,40}|to-(left|center|right))$/;
const LINKS = /^(https?:|mailto:)/i;

const md = new MarkdownIt({ html: false, linkify: false, typographer: false, breaks: true });
md.validateLink = (url) => LINKS.test(url.trim());

// Pictures are never loaded, and their address does not reach the page: only what they are called is shown.
md.renderer.rules.image = (tokens, index, options, env, renderer) =>
  md.utils.escapeHtml(renderer.renderInlineAsText(tokens[index].children ?? [], options, env));

// Alignment comes as a class, since the page allows no style attributes.
for (const name of ["th_open", "td_open"]) {
  md.renderer.rules[name] = (tokens, index, options, env, renderer) => {
    const style = tokens[index].attrGet("style");
    if (style) {
      tokens[index].attrs = tokens[index].attrs.filter(([key]) => key !== "style");
      tokens[index].attrSet("class", `to-${style.split(":")[1].trim()}`);
    }
    return renderer.renderToken(tokens, index, options);
  };
}

const purifier = DOMPurify(window);
purifier.addHook("uponSanitizeAttribute", (node, data) => {
  if (data.attrName === "class" && !CLASSES.test(data.attrValue)) data.keepAttr = false;
  if (data.attrName === "href" && !LINKS.test(data.attrValue.trim())) data.keepAttr = false;
});

const RULES = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ["href", "title", "class", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

/** Sanitised elements of an HTML string. */
export function safeFragment(html) {
  const holder = document.createElement("template");
  holder.innerHTML = purifier.sanitize(html, RULES);
  for (const link of holder.content.querySelectorAll("a")) {
    if (!link.hasAttribute("href")) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.target = "_blank";
    link.rel = "noopener noreferrer";
    link.title = link.getAttribute("href");
  }
  return holder.content;
}

/** Too long or too wide a text is shown as it is: rendering it would stop the page for seconds. */
export function tooHeavy(text) {
  if (text.length > LONGEST_TEXT) return true;
  let cells = 0;
  for (let at = text.indexOf("|"); at !== -1; at = text.indexOf("|", at + 1)) {
    cells += 1;
    if (cells > MOST_CELLS) return true;
  }
  return false;
}

export function plainFragment(text) {
  const fragment = document.createDocumentFragment();
  const pre = document.createElement("pre");
  pre.className = "plain-text";
  pre.textContent = text;
  fragment.append(pre);
  return fragment;
}

export function parse(text, env) {
  return md.parse(text, env);
}

export function fragmentOf(tokens, env) {
  return safeFragment(md.renderer.render(tokens, md.options, env));
}

/** The whole of a text; `under` is the level of the heading that it is shown below. */
export function render(text, under = 0) {
  if (tooHeavy(text)) return plainFragment(text);
  const env = {};
  const tokens = parse(text, env);
  for (const token of tokens) {
    if (token.type.startsWith("heading_")) token.tag = `h${Math.min(Number(token.tag[1]) + under, DEEPEST_HEADING)}`;
  }
  return fragmentOf(tokens, env);
}
