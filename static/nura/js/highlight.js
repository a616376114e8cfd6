// Colours on code. A language is loaded when it is first seen; without one the code stays as it is.

import hljs from "../../vendor/highlight/core.js";

const LANGUAGES = new Set(
  (
    "bash c cpp csharp css diff dockerfile go ini java javascript json kotlin markdown php plaintext " +
    "powershell python ruby rust sql swift typescript xml yaml"
  ).split(" "),
);
const OTHER_NAMES = {
  sh: "bash", shell: "bash", zsh: "bash", console: "bash", "c++": "cpp", "c#": "csharp", cs: "csharp", js: "javascript",
  jsx: "javascript", ts: "typescript", tsx: "typescript", py: "python", python3: "python", html: "xml", svg: "xml",
  yml: "yaml", toml: "ini", golang: "go", md: "markdown", rb: "ruby", rs: "rust", kt: "kotlin", ps1: "powershell",
  postgresql: "sql", text: "plaintext", txt: "plaintext",
};
const LONGEST = 40_000;

async function load(name) {
  if (hljs.getLanguage(name)) return;
  const module = await import(`../../vendor/highlight/languages/${name}.js`);
  hljs.registerLanguage(name, module.default);
}

/** Colour `code` in place; silent when the language is not known. */
export async function highlight(code, asked) {
  const name = OTHER_NAMES[asked.toLowerCase()] ?? asked.toLowerCase();
  if (!LANGUAGES.has(name) || name === "plaintext" || code.textContent.length > LONGEST) return;
  await load(name);
  // highlight.js escapes the text and adds only <span class="hljs-…">.
  code.innerHTML = hljs.highlight(code.textContent, { language: name, ignoreIllegals: true }).value;
  code.classList.add("hljs");
}
