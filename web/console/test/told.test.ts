import assert from "node:assert/strict";
import { test } from "node:test";
import { briefOf, inFull, retryWords, toolName, usageWords } from "../src/chat/told.ts";

test("a tool's input is said in one line by what says most of it", () => {
  assert.equal(briefOf({ description: "list", command: "ls\n  -la" }), "ls -la");
  assert.equal(briefOf({ command: ["git", "status"] }), "git status");
  assert.equal(briefOf({ file_path: "/workspace/a.py", content: "x" }), "/workspace/a.py");
  assert.equal(briefOf({ command: "x".repeat(5000) }).length, 101);
  for (const odd of [null, undefined, 7, [], { command: 7 }, { ["__proto__"]: { command: "no" } }]) assert.equal(briefOf(odd), "");
});

test("what a tool gave is text where it is text, and else as it is written", () => {
  assert.equal(inFull([{ type: "text", text: "one" }, { type: "text", text: "two" }]), "one\ntwo");
  assert.equal(inFull({ a: 1 }), '{\n  "a": 1\n}');
  assert.deepEqual([inFull(undefined), inFull("words"), inFull([{ text: 7 }])], ["", "words", '[\n  {\n    "text": 7\n  }\n]']);
  assert.equal(toolName({ toString: 1 }), '{"toString":1}');
});

test("what an answer cost is said as far as the agent says it", () => {
  assert.equal(usageWords({ inputTokens: 12345, outputTokens: 67, costUsd: 0.01234 }), "Tokens: 12,345 in, 67 out · $0.0123");
  assert.equal(usageWords({ costUsd: 1.5 }), "$1.50");
  for (const odd of [undefined, {}, { inputTokens: "many", costUsd: Infinity }, { outputTokens: NaN, costUsd: -1 }]) assert.equal(usageWords(odd as never), "");
});

test("a retry says which, and why", () => {
  assert.equal(retryWords({ attempt: 2, of: 3, error: "overloaded" }), "Its model did not answer; trying again (try 2 of 3): overloaded");
  assert.equal(retryWords({ attempt: "x", error: 7 }), "Its model did not answer; trying again.");
});
