import assert from "node:assert/strict";
import { test } from "node:test";
import { isLonger, wordsOf } from "../src/chat/draft.ts";

test("a message loses the empty lines around it, and not the indent of its first line", () => {
  assert.equal(wordsOf("\n \n  two\n\nthree \n "), "  two\n\nthree");
  assert.equal(wordsOf("  one "), "  one");
  assert.equal(wordsOf(" \n\t"), "");
  assert.equal(wordsOf(""), "");
});

test("any number of blanks is looked at once", () => {
  const blanks = " ".repeat(1_000_000);
  const began = performance.now();
  assert.equal(wordsOf(`x${blanks}x`).length, 1_000_002);
  assert.equal(wordsOf(`${blanks}x`).length, 1_000_001);
  assert.ok(performance.now() - began < 1000);
});

test("a message is as long as its frame makes it", () => {
  assert.equal(isLonger('"'.repeat(10), 22), false);
  assert.equal(isLonger('"'.repeat(10), 21), true);
  assert.equal(isLonger("\0".repeat(10), 62), false);
  assert.equal(isLonger("\0".repeat(10), 61), true);
  assert.equal(isLonger("é".repeat(10), 22), false);
  assert.equal(isLonger("é".repeat(10), 21), true);
});
