import assert from "node:assert/strict";
import { test } from "node:test";
import { MessageTree } from "../js/message_tree.js";

const message = (id, parent_id, second) => ({ id, parent_id, created_at: `2026-01-01T00:00:0${second}Z` });

function branched() {
  const tree = new MessageTree();
  for (const one of [message("q", null, 0), message("b", "q", 2), message("a", "q", 1), message("c", "a", 3)]) tree.add(one);
  return tree;
}

test("the way to a message leads over its parents", () => {
  assert.deepEqual(branched().listPath("c").map(({ id }) => id), ["q", "a", "c"]);
  assert.deepEqual(branched().listPath("nobody"), []);
});

test("siblings stand in the order of their making, whenever they came", () => {
  const tree = branched();
  assert.deepEqual(tree.locate(tree.get("b")), { ids: ["a", "b"], index: 1 });
});

test("the newest message is that of all, or that below one", () => {
  const tree = branched();
  assert.equal(tree.findNewest(), "c");
  assert.equal(tree.findNewest("b"), "b");
  assert.equal(tree.findNewest("q"), "c");
});

test("a newer state of a message takes its place and is no second one", () => {
  const tree = branched();
  tree.add({ ...message("a", "q", 1), sources: [{ document_id: "d", document_name: "규정.pdf" }] });
  assert.deepEqual(tree.locate(tree.get("a")).ids, ["a", "b"]);
  assert.equal(tree.getDocumentName("d"), "규정.pdf");
});
