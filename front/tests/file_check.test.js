import assert from "node:assert/strict";
import { test } from "node:test";
import { findFault, findForeignBeginning } from "../js/file_check.js";

const LIMITS = { accept: ".pdf,.docx,.md", limitMb: 1 };

test("name and size tell what the server would refuse", () => {
  const fault = (name, size = 1) => findFault({ name, size }, LIMITS);
  assert.equal(fault("규정.PDF"), "");
  assert.equal(fault("규정"), "");
  assert.equal(fault(".md"), "");
  assert.equal(fault("사진.png"), "unsupported_type");
  assert.equal(fault("사진.png", 0), "unsupported_type");
  assert.equal(fault("규정.md", 1024 * 1024), "");
  assert.equal(fault("규정.md", 1024 * 1024 + 1), "too_large");
  assert.equal(fault("규정.md", 0), "empty_file");
});

test("the first bytes tell a file that is not what its name says", async () => {
  const fault = (name, ...parts) => findForeignBeginning(new File(parts, name));
  assert.equal(await fault("규정.pdf", "%PDF-1.7 ..."), "");
  assert.equal(await fault("규정.pdf", "\r\n noise of a proxy %PDF-1.7"), "");
  assert.equal(await fault("규정.pdf", "x".repeat(1024), "%PDF-1.7"), "type_mismatch");
  assert.equal(await fault("규정.pdf", new Uint8Array([0x89, 0x50, 0x4e, 0x47])), "type_mismatch");
  assert.equal(await fault("규정.docx", "PK\x03\x04"), "");
  assert.equal(await fault("규정.docx", new Uint8Array([0xd0, 0xcf, 0x11, 0xe0, 0xa1])), "");
  assert.equal(await fault("규정.docx", "가나다"), "type_mismatch");
  assert.equal(await fault("글.md", "%PDF-1.7"), "");
});

test("a file that cannot be read any more is left to the sending", async () => {
  const slice = () => ({ arrayBuffer: () => Promise.reject(new Error("gone")) });
  assert.equal(await findForeignBeginning(/** @type {any} */ ({ name: "규정.pdf", slice })), "");
});
