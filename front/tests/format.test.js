import assert from "node:assert/strict";
import { test } from "node:test";
import { formatFileSize, formatPages, formatPercent, formatScore, formatTime, formatTimeLeft } from "../js/format.js";

test("sizes have a unit, and one decimal but for bytes, as on pages that the server writes", () => {
  assert.deepEqual([0, 999, 1024, 561_050, 20_000_000].map(formatFileSize), ["0 B", "999 B", "1.0 KB", "547.9 KB", "19.1 MB"]);
});

test("scores of every scale have about three digits", () => {
  assert.deepEqual([0, 0.12345, 9.8765, 45.678, 1234.5].map(formatScore), ["0", "0.123", "9.877", "45.7", "1,235"]);
});

test("shares are whole percents between none and all", () => {
  assert.deepEqual([-1, 0, 0.456, 2].map(formatPercent), ["0%", "0%", "46%", "100%"]);
});

test("formats without pages have no page", () => {
  assert.equal(formatPages({ page: null }), "");
});

test("time that nobody knows is not told", () => {
  assert.equal(formatTimeLeft(null), "");
  assert.equal(formatTimeLeft(10), "left.moment");
});

test("what was written on another day names the day, and the year where it is another one", () => {
  const early = formatTime(new Date(2023, 0, 2, 7, 13).toISOString());
  assert.match(early, /^2023년 1월 2일.* 7:13$/);
  assert.doesNotMatch(formatTime(new Date().toISOString()), /일/);
});
