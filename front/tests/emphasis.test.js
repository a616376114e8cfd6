import assert from "node:assert/strict";
import { test } from "node:test";
import MarkdownIt from "markdown-it";
import { letStarsCloseBeforeHangul } from "../js/emphasis.js";

const md = new MarkdownIt();
md.use(letStarsCloseBeforeHangul);

// tests/documents/parsers/test_markdown.py holds the server to the same cases
const CASES = {
  "세율은 **50%**를 넘는다": "세율은 <strong>50%</strong>를 넘는다",
  "**(가)**는 *“나”*와 다르다": "<strong>(가)</strong>는 <em>“나”</em>와 다르다",
  "**30%**와 **50%**의 차이": "<strong>30%</strong>와 <strong>50%</strong>의 차이",
  "그는 “**중요**”라고 **말**했다": "그는 “<strong>중요</strong>”라고 <strong>말</strong>했다",
  "**시작 (**중요**) 끝**": "<strong>시작 (<strong>중요</strong>) 끝</strong>",
  "**50%**rise, 2 * 3%*가": "**50%**rise, 2 * 3%*가",
};

for (const [written, shown] of Object.entries(CASES)) {
  test(`emphasis before particles: ${written}`, () => assert.equal(md.renderInline(written), shown));
}
