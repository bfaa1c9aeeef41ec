/** An answer in its parts, and the steps of a plan, whatever an agent says. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { UnfinishedAnswer } from "../src/answer.ts";
import { agentAfter, partsOf, stepsOf, workOf } from "../src/work.ts";
import type { Json } from "../src/types.ts";

const use = (id: string) => ({ type: "tool_use", id, name: "Bash", input: {} });
const result = (id: string) => ({ type: "tool_result", tool_use_id: id, content: "ok" });
const message = (type: string, ...content: unknown[]) => ({ type, message: { role: type, content } });

test("text and tools stand in their order, a result with its call", () => {
  const text = "I will look. \u{1f600}\n\nDone.\n\nReally.";
  const blocks: Json[] = [{ type: "text", at: 0 }, use("a"), use("b"), result("b"), result("a"), { type: "text", at: 16 }, result("late")];
  assert.deepEqual(partsOf({ text, blocks }), [
    { kind: "text", text: "I will look. \u{1f600}" },
    { kind: "tool", use: use("a"), result: result("a") },
    { kind: "tool", use: use("b"), result: result("b") },
    { kind: "text", text: "Done.\n\nReally." },
    { kind: "tool", result: result("late") },
  ]);
  assert.deepEqual(partsOf({ text: "old", blocks: [use("a")] }), [{ kind: "tool", use: use("a") }, { kind: "text", text: "old" }]);
  assert.deepEqual(partsOf({ text: "plain", blocks: [] }), [{ kind: "text", text: "plain" }]);
});

// As gateway/agents/transcript.py puts blocks and marks together, from whole messages.
interface Spoken {
  text: string;
  blocks: Json[];
}
function gateways(messages: Json[]): Spoken {
  let settled = "";
  const tools: Json[] = [];
  const marks: [number, number][] = [];
  for (const { type, message: inner } of messages as { type: string; message: { content: Json[] } }[]) {
    let begins = true;
    for (const part of inner.content) {
      if (part.type !== "text") {
        tools.push(part);
        begins = true;
      } else if (type === "assistant") {
        if (begins) {
          if (settled) settled += "\n\n";
          if (tools.length && (!marks.length || marks.at(-1)![0] < tools.length)) marks.push([tools.length, [...settled].length]);
          begins = false;
        }
        settled += String(part.text);
      }
    }
  }
  if (!tools.length) return { text: settled, blocks: [] };
  const all: [number, number][] = !settled || marks[0]?.[1] === 0 ? marks : [[0, 0], ...marks];
  const blocks: Json[] = [];
  let shown = 0;
  for (const [after, at] of all) {
    blocks.push(...tools.slice(shown, after), { type: "text", at });
    shown = after;
  }
  return { text: settled, blocks: [...blocks, ...tools.slice(shown)] };
}

const words = fc.string({ minLength: 1, maxLength: 6, unit: "binary" });
const part = fc.oneof(words.map((text) => ({ type: "text", text })), fc.constantFrom(use("a"), result("a"), use("b")));
const messages = fc.array(fc.tuple(fc.constantFrom("assistant", "user"), fc.array(part, { maxLength: 4 })).map(([type, parts]) => message(type, ...parts)), { maxLength: 6 });

test("an answer that is being written is in the parts that its record will be in", () => {
  fc.assert(
    fc.property(messages, (said) => {
      const answer = new UnfinishedAnswer();
      said.forEach((each, at) => answer.feed({ type: "sdk_message", _offset: at + 1, message: each }));
      assert.deepEqual({ text: answer.text, blocks: answer.blocks }, gateways(said));
      const streamed = new UnfinishedAnswer();
      let offset = 0;
      for (const each of said.slice(0, -1)) streamed.feed({ type: "sdk_message", _offset: ++offset, message: each });
      streamed.feed({ type: "chunk", _offset: ++offset, text: "tail" });
      assert.deepEqual({ text: streamed.text, blocks: streamed.blocks }, gateways([...said.slice(0, -1), message("assistant", { type: "text", text: "tail" })]));
    }),
  );
});

test("nothing of the text is lost or twice in the parts, whatever the marks say", () => {
  const block = fc.oneof(fc.constantFrom(use("a"), result("a"), { type: "other" }), fc.anything().map((at) => ({ type: "text", at })));
  fc.assert(fc.property(fc.string({ unit: "binary" }), fc.array(block), (text, blocks) => void partsOf({ text, blocks: blocks as Json[] })));
  fc.assert(
    fc.property(messages, (said) => {
      const { text, blocks } = gateways(said);
      const shown = partsOf({ text, blocks }).flatMap((each) => (each.kind === "text" ? [each.text] : [])).join("");
      assert.equal(shown.replace(/\s/g, ""), text.replace(/\s/g, ""));
    }),
  );
});

test("steps are read whatever their members are called, and anything else is none", () => {
  assert.deepEqual(stepsOf({ steps: [{ step: "look", status: "completed" }, { content: "build", status: "in_progress" }, { text: "sell" }, "as a word", { status: "pending" }, 7] }), [
    { text: "look", state: "done" },
    { text: "build", state: "active" },
    { text: "sell", state: "open" },
    { text: "as a word", state: "open" },
  ]);
  assert.deepEqual([stepsOf(undefined), stepsOf({ items: "none" })], [[], []]);
  fc.assert(fc.property(fc.dictionary(fc.constantFrom("steps", "items", "todos"), fc.anything()), (said) => void stepsOf(said as Json)));
});

test("a frame that says nothing of the agent leaves what is known as it is", () => {
  const known = { name: "pi" };
  assert.equal(agentAfter(known, { type: "chunk" }), known);
  assert.deepEqual(workOf({ usage: 3, costUsd: "much", todo: null }), { thinking: "", changes: [] });
});
