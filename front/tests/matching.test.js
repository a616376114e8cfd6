import assert from "node:assert/strict";
import { test } from "node:test";
import { findBoxAt, findClaim, findSentences, measureLikeness, selectCitedSpan, toLetters } from "../js/matching.js";

test("letters and figures alone are left of a text", () => {
  assert.equal(toLetters("연차는 **15일**이다. [1]"), "연차는15일이다1");
});

test("a sentence is as like itself as can be, and less like another", () => {
  assert.equal(measureLikeness("연차 휴가는 15일이다", "연차 휴가는 15일이다."), 1);
  assert.ok(measureLikeness("연차 휴가는 15일이다", "출장비는 20일에 준다") < 0.5);
  assert.equal(measureLikeness("", "무엇이든"), 0);
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

test("the line of a passage that shares most with a claim is found", () => {
  const text = "제1조 목적\n연차 휴가는 15일로 한다\n부칙";
  const place = findClaim("연차 휴가는 15일입니다", text);
  assert.equal(text.slice(place.start, place.end), "연차 휴가는 15일로 한다");
  assert.equal(findClaim("달의 뒷면", text), null);
});

test("a place falls into the box of its line, or into that of its share of the width", () => {
  const box = (x1) => ({ x0: 0, x1 });
  assert.equal(findBoxAt({ start: 3, end: 5 }, "가나\n다라", [box(1), box(1)]), 1);
  assert.equal(findBoxAt({ start: 9, end: 10 }, "가나다라마바사아자차", [box(0.2), box(0.8)]), 1);
  assert.equal(findBoxAt(null, "가나", [box(1)]), 0);
});

test("of several sources the one whose sentence is closest to the claim is told", () => {
  const near = { slot: 2, spans: [{ text: "연차 휴가는 15일이다" }] };
  const far = { slot: 1, spans: [{ text: "출장비는 따로 정한다" }] };
  const { source, span } = selectCitedSpan("연차는 15일", [far, near]);
  assert.equal(source, near);
  assert.equal(span, near.spans[0]);
  assert.deepEqual(selectCitedSpan("연차", [{ slot: 3 }]), { source: { slot: 3 }, span: null });
});
