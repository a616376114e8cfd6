// Syntax highlighting. A separate bundle, loaded with the first code block; see colourCode in markdown.js.

import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import hljs from "highlight.js/lib/core";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import powershell from "highlight.js/lib/languages/powershell";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const LANGUAGES = {
  bash,
  c,
  cpp,
  csharp,
  css,
  diff,
  dockerfile,
  go,
  ini,
  java,
  javascript,
  json,
  kotlin,
  markdown,
  php,
  powershell,
  python,
  ruby,
  rust,
  sql,
  swift,
  typescript,
  xml,
  yaml,
};
const MORE_NAMES = { bash: ["shell", "console"], python: ["python3"], sql: ["postgresql"] };
const MAX_CHARACTERS = 40_000;

for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);
for (const [languageName, names] of Object.entries(MORE_NAMES)) hljs.registerAliases(names, { languageName });

/** Highlight `code` in place; does nothing for an unknown language. */
export function highlightElement(code, language) {
  if (!hljs.getLanguage(language) || code.textContent.length > MAX_CHARACTERS) return;
  // highlight.js escapes the text and adds only <span class="hljs-…">.
  code.innerHTML = hljs.highlight(code.textContent, { language, ignoreIllegals: true }).value;
  code.classList.add("hljs");
}
