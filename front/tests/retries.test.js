import assert from "node:assert/strict";
import { test } from "node:test";
import { listPossibleActions } from "../js/document_actions.js";
import { mayRetry } from "../js/upload_tray.js";

const failed = (code) => ({ state: "failed", document: { id: "1", error: { code } } });

test("a file that failed may be tried again, unless it is locked", () => {
  assert.equal(mayRetry(failed("parse_timeout")), true);
  assert.equal(mayRetry(failed("encrypted")), false);
  assert.equal(mayRetry({ state: "failed", file: {} }), true);
  assert.equal(mayRetry({ state: "failed", file: null }), false);
  assert.equal(mayRetry({ ...failed("parse_timeout"), state: "processing" }), false);
});

test("a locked document is not processed again", () => {
  const row = { status: "FAILED", stage: "", indexed: "false", mayChange: "true" };
  assert.equal(listPossibleActions({ ...row, error: "encrypted" }).reprocess, false);
  assert.equal(listPossibleActions({ ...row, error: "parse_timeout" }).reprocess, true);
});
