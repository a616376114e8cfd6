import assert from "node:assert/strict";
import { test } from "node:test";
import { selectReadableFiles } from "../js/file_input.js";

test("of a folder the files that can be read are taken, hidden ones are not even counted", () => {
  const files = ["규정.PDF", "사진.png", ".DS_Store", "글.md"].map((name) => ({ name }));
  const { files: kept, skipped } = selectReadableFiles(files, ".pdf, .md");
  assert.deepEqual(kept.map(({ name }) => name), ["규정.PDF", "글.md"]);
  assert.equal(skipped, 1);
});
