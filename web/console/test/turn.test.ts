import assert from "node:assert/strict";
import { test } from "node:test";
import type { Item, MessageItem } from "@holdfast/client";
import { pagesOf } from "../src/chat/paging.ts";
import { newsOf, turnOf, whyNot } from "../src/chat/turn.ts";

const said = (seq: number, status: string): MessageItem => ({ kind: "message", key: `m${seq}`, seq, cid: `c${seq}`, role: "user", content: "x", text: "x", metadata: {}, status });
const answer = (seq: number | undefined, streaming: boolean, text = "hi"): Item => ({ kind: "answer", key: "a", seq, text, blocks: [], metadata: {}, work: { thinking: "", changes: [] }, streaming, status: streaming ? "streaming" : "complete" });
const asked = (status: string, answered?: object): Item => ({ kind: "permission", key: "p", seq: 2, requestId: "r", content: {}, status, answer: answered as Record<string, unknown> | undefined });
const exit: Item = { kind: "note", key: "n", type: "agent_exited", text: "", metadata: {} };

test("an answer is owed from delivery to its end, and by nobody after the agent ended", () => {
  assert.equal(turnOf([]), "idle");
  assert.equal(turnOf([said(1, "stored")]), "idle");
  assert.equal(turnOf([said(1, "delivered")]), "working");
  assert.equal(turnOf([said(1, "delivered"), answer(undefined, true)]), "answering");
  assert.equal(turnOf([said(1, "delivered"), answer(2, false)]), "idle");
  assert.equal(turnOf([said(1, "delivered"), answer(2, false), said(3, "queued")]), "idle");
  assert.equal(turnOf([said(1, "delivered"), asked("open")]), "asking");
  assert.equal(turnOf([said(1, "delivered"), asked("open", { allow: true })]), "working");
  assert.equal(turnOf([said(1, "delivered"), asked("answered", { allow: true })]), "working");
  assert.equal(turnOf([said(1, "delivered"), asked("expired")]), "idle");
  assert.equal(turnOf([said(1, "delivered"), exit]), "idle");
  assert.equal(turnOf([said(1, "interrupted")]), "idle");
});

test("an answer is announced once, at its end, and history never", () => {
  const asking = [said(1, "delivered")];
  assert.equal(newsOf(asking, [...asking, answer(undefined, true)]), undefined);
  assert.equal(newsOf([...asking, answer(undefined, true)], [...asking, answer(undefined, true, "hi there")]), undefined);
  assert.equal(newsOf([...asking, answer(undefined, true)], [...asking, answer(2, false)]), "Answer: hi");
  assert.equal(newsOf([...asking, answer(2, false)], [...asking, answer(2, false)]), undefined);
  assert.equal(newsOf([], [...asking, answer(2, false)]), undefined);
  assert.equal(newsOf(asking, [...asking, asked("open")]), "The agent asks for a permission.");
});

test("every reason for not being taken is a sentence", () => {
  assert.equal(whyNot("refused", "storage_full"), "Not taken: the store is full.");
  assert.equal(whyNot("refused", "some_new_word"), "Not taken: some new word.");
  assert.equal(whyNot("refused", undefined), "Not taken: the gateway refused it.");
  assert.match(whyNot("expired", undefined), /waited too long/);
});

test("earlier messages leave the pages that are there as they are", () => {
  const all = Array.from({ length: 130 }, (_, at) => said(at + 1, "stored"));
  const late = pagesOf([...all.slice(70), exit]);
  const early = pagesOf([...all, exit]);
  assert.deepEqual(early.flatMap((page) => page.items), [...all, exit]);
  assert.deepEqual(early.slice(-2), late.slice(-2));
  assert.equal(new Set(early.map((page) => page.key)).size, early.length);
});

test("what has no number yet is on the page of what it follows", () => {
  const waiting = { ...said(0, "queued"), seq: undefined };
  assert.deepEqual(pagesOf([said(39, "stored"), waiting]).map((page) => page.key), [0]);
  assert.deepEqual(pagesOf([waiting]).map((page) => page.items.length), [1]);
});
