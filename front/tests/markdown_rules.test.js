import assert from "node:assert/strict";
import { test } from "node:test";
import MarkdownIt from "markdown-it";
import { breakBeforeItems, cutFormulas, cutWrittenFormulas, readBareLinks, readFootnotes, readFormulas, readTasks } from "../js/markdown_rules.js";

const md = new MarkdownIt();
for (const plugin of [readFormulas, readFootnotes, readTasks, readBareLinks]) md.use(plugin);

const math = (text) => `<span class="math">${text}</span>`;

const LINES = {
  "넓이는 $\\pi r^2$이다": `넓이는 ${math("\\pi r^2")}이다`,
  "\\(a_1 < b\\)이면": `${math("a_1 &lt; b")}이면`,
  "요금은 $5에서 $10로 올랐다": "요금은 $5에서 $10로 올랐다",
  "$5~$10": "$5~$10",
  "`$a$`": "<code>$a$</code>",
  "값은 $ a $ 이다": "값은 $ a $ 이다",
  "단가[^1]는": '단가<sup class="footnote-ref">1</sup>는',
  "[1]과 [^]": "[1]과 [^]",
  "https://example.com/a에서 확인": '<a href="https://example.com/a">https://example.com/a</a>에서 확인',
  "설정은 config.md와 www.example.com": "설정은 config.md와 www.example.com",
  "https://ko.wikipedia.org/wiki/한국": '<a href="https://ko.wikipedia.org/wiki/%ED%95%9C%EA%B5%AD">https://ko.wikipedia.org/wiki/한국</a>',
};

const CUT = {
  "넓이 $\\pi r^2$이다": ["넓이 ", { formula: "\\pi r^2" }, "이다"],
  "$x$": [{ formula: "x" }],
  "$5에서 $10로": ["$5에서 $10로"],
  "값 \\$a$b$": ["값 \\$a", { formula: "b" }],
  "": [],
};

for (const [written, parts] of Object.entries(CUT)) {
  test(`the formulas of a document: ${written}`, () => {
    assert.deepEqual(
      [...cutFormulas(written)].map(({ text, isFormula }) => (isFormula ? { formula: text } : text)),
      parts,
    );
  });
}

const WRITTEN = {
  "넓이 $\\pi r^2$와 \\(a\\)": ["넓이 ", { formula: "\\pi r^2" }, "와 ", { formula: "a" }],
  "풀이\n$$\nx = 1\n$$\n\n끝": ["풀이", { block: "x = 1" }, "\n끝"],
  "\\[ x \\]": [{ block: "x" }],
  "$$ a \\] b": ["$$ a \\] b"],
  "`$a$`와 ```\n$$b$$\n```": ["`$a$`", "와 ", "```\n$$b$$\n```"],
  "요금은 $5에서 $10로": ["요금은 $5에서 $10로"],
  "**굵게** $$": ["**굵게** $$"],
};

for (const [written, parts] of Object.entries(WRITTEN)) {
  test(`the formulas of a question: ${written}`, () => {
    const name = ({ isBlock }) => (isBlock ? "block" : "formula");
    assert.deepEqual(
      [...cutWrittenFormulas(written)].map((part) => (part.isFormula ? { [name(part)]: part.text } : part.text)),
      parts,
    );
  });
}

for (const [written, shown] of Object.entries(LINES)) {
  test(`a line of an answer: ${written}`, () => assert.equal(md.renderInline(written), shown));
}

const BLOCKS = {
  "$$\nx = 1\n$$": '<p><span class="math math-block">x = 1</span></p>\n',
  "\\[ x \\]": '<p><span class="math math-block">x</span></p>\n',
  "$$\n아직 안 닫힌": "<p>$$\n아직 안 닫힌</p>\n",
  "[^1]: 세금 **별도**": '<p class="footnote"><sup>1</sup> 세금 <strong>별도</strong></p>\n',
  "- [x] 끝\n- [ ] 아직": '<ul>\n<li class="task task-done">☑ 끝</li>\n<li class="task">☐ 아직</li>\n</ul>\n',
  "- [1] 인용": "<ul>\n<li>[1] 인용</li>\n</ul>\n",
};

for (const [written, shown] of Object.entries(BLOCKS)) {
  test(`a block of an answer: ${written}`, () => assert.equal(md.render(written), shown));
}

const documentMd = new MarkdownIt();
documentMd.use(breakBeforeItems);

const ITEMS = {
  "다음과 같다.\n  1\\. 쌀\n  2\\. 콩": "<p>다음과 같다.<br>\n1. 쌀<br>\n2. 콩</p>\n",
  "1\\. 쌀\n    가\\. 현미\n    나\\. 백미": "<p>1. 쌀<br>\n가. 현미<br>\n나. 백미</p>\n",
  "앞\n**②** 뒤\n1의2. 또": "<p>앞<br>\n<strong>②</strong> 뒤<br>\n1의2. 또</p>\n",
  "글이\n이어지고\n1.5배가\n2024. 5. 1. 되었\n다.": "<p>글이\n이어지고\n1.5배가\n2024. 5. 1. 되었\n다.</p>\n",
};

for (const [written, shown] of Object.entries(ITEMS)) {
  test(`lines of a document: ${written}`, () => assert.equal(documentMd.render(written), shown));
}
