import assert from "node:assert/strict";
import { test } from "node:test";
import { splitSources } from "../js/citations.js";

const sources = [1, 2].map((slot) => ({ slot, chunk_id: `c${slot}`, cited: false }));
const listCited = (message) => splitSources(message).cited.map((one) => one.slot);

test("what an answer cited before it was stopped or broke off is told by the markers in its text", () => {
  for (const status of ["STOPPED", "FAILED"]) assert.deepEqual(listCited({ status, content: "15일입니다 [2]. 그리고", sources }), [2]);
});

test("of a complete answer the sources themselves say whether they are cited", () => {
  assert.deepEqual(listCited({ status: "COMPLETED", content: "[2]", sources }), []);
  const cited = [sources[0], { ...sources[1], cited: true }];
  assert.deepEqual(listCited({ status: "COMPLETED", content: "[2]", sources: cited }), [2]);
});
