import assert from "node:assert/strict";
import { test } from "node:test";
import { pasted, readRows } from "../src/list/variables.ts";

test("rows become variables; empty ones do not count", () => {
  assert.deepEqual(readRows([{ name: "A", value: "1" }, { name: "", value: "" }, { name: "_b2", value: "" }]), { A: "1", _b2: "" });
});

test("what is wrong is said, and a value never", () => {
  assert.match(String(readRows([{ name: "2A", value: "secret" }])), /is not a variable name/);
  assert.match(String(readRows([{ name: "", value: "secret" }])), /has no name/);
  assert.match(String(readRows([{ name: "A", value: "1" }, { name: "A", value: "2" }])), /twice/);
  for (const rows of [[{ name: "2A", value: "secret" }], [{ name: "", value: "secret" }]]) assert.doesNotMatch(String(readRows(rows)), /secret/);
});

test("a pasted file of variables becomes rows; other text stays text", () => {
  assert.deepEqual(pasted("# keys\nexport A=1\n\nB='two words'\r\nC=\"x=y\"\n"), [{ name: "A", value: "1" }, { name: "B", value: "two words" }, { name: "C", value: "x=y" }]);
  assert.equal(pasted("A_NAME"), undefined);
  assert.equal(pasted("A=1\nnot a variable"), undefined);
});
