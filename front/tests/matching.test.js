import assert from "node:assert/strict";
import { test } from "node:test";
import { findLetters, findSentences, toLetters, toUnitConverter } from "../js/matching.js";

test("letters and figures alone are left of a text", () => {
  assert.equal(toLetters("연차는 **15일**이다. [1]"), "연차는15일이다1");
});

test("sentences are found in their order, one said twice at both its places", () => {
  const text = "가나다라마가나다라마";
  assert.deepEqual(findSentences(text, ["가나다라마", "가나다라마"]), [[0, 5], [5, 10]]);
  assert.deepEqual(findSentences(text, ["없는문장", "가나다라마"]), [null, [0, 5]]);
});

test("a long sentence whose middle differs is found by its beginning and end", () => {
  const head = "하나둘셋넷다섯여섯일곱";
  const tail = "열하나열둘열셋열넷열다섯";
  const text = `${head}중간은다르다${tail}`;
  assert.deepEqual(findSentences(text, [`${head}가운데는달랐다${tail}`]), [[0, text.length]]);
});

test("letters are found wherever they stand, whatever their case", () => {
  assert.deepEqual(findLetters("abcABCx", "abc"), [[0, 3], [3, 6]]);
  assert.deepEqual(findLetters("가나다", "라"), []);
});

test("offsets in code points and in UTF-16 are turned into each other", () => {
  const { fromPoints, toPoints } = toUnitConverter("가😀나😀다");
  assert.deepEqual([0, 1, 2, 3, 4, 5].map(fromPoints), [0, 1, 3, 4, 6, 7]);
  assert.deepEqual([0, 1, 3, 4, 6, 7].map(toPoints), [0, 1, 2, 3, 4, 5]);
  assert.equal(toUnitConverter("가나다").fromPoints(2), 2);
});
