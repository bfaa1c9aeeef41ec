import assert from "node:assert/strict";
import { test } from "node:test";
import type { Item, MessageItem } from "@holdfast/client";
import { pagesOf } from "../src/chat/paging.ts";
import { inTurns, newsOf, queueOf, turnOf, whyNot } from "../src/chat/turn.ts";

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
  assert.equal(turnOf([said(1, "delivered"), asked("expired")]), "working"); // it was withdrawn, and the turn goes on
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

const answering = (seq: number | undefined, ...answers: number[]): Item => ({ ...answer(seq, seq === undefined), key: `a${seq}`, metadata: answers.length ? { answers } : {} }) as Item;
const order = (items: readonly Item[]): string => items.map(({ key }) => key).join(" ");

test("an answer to one message leaves the agent at work on the next that it has", () => {
  assert.equal(turnOf([said(1, "delivered"), said(2, "delivered"), answering(3, 1)]), "working");
  assert.equal(turnOf([said(1, "delivered"), said(2, "delivered"), answering(3, 1, 2)]), "idle");
  assert.equal(turnOf([said(1, "delivered"), said(2, "stored"), answering(3)]), "idle");
  assert.equal(turnOf([said(1, "delivered"), asked("open"), answering(undefined)]), "asking");
});

test("what waits is what the agent does not have", () => {
  const items = [said(1, "delivered"), said(2, "stored"), said(3, "cancelled"), said(4, "accepted"), { ...said(5, "queued"), seq: undefined }];
  assert.deepEqual(queueOf(items).map(({ seq }) => seq), [2, 4]);
});

test("a message that waited stands behind the answers it waited for", () => {
  assert.equal(order(inTurns([said(1, "delivered"), said(2, "delivered"), said(3, "delivered"), answering(4, 1), answering(5, 2), answering(6, 3)])), "m1 a4 m2 a5 m3 a6");
  assert.equal(order(inTurns([said(1, "delivered"), said(2, "delivered"), answering(4), answering(5)])), "m1 a4 m2 a5");
  assert.equal(order(inTurns([said(1, "delivered"), said(2, "delivered"), answering(undefined)])), "m1 aundefined m2");
  assert.equal(order(inTurns([said(1, "delivered"), said(2, "delivered"), answering(3, 1, 2)])), "m1 m2 a3", "one that steered is where it was said");
  assert.equal(order(inTurns([said(1, "delivered"), said(2, "interrupted"), answering(3, 1)])), "m1 m2 a3");
  assert.equal(order(inTurns([said(1, "delivered"), asked("open"), answering(undefined)])), "m1 aundefined p", "what is asked is not missed above a long answer");
  assert.equal(order(inTurns([said(1, "delivered"), asked("answered", {}), answering(undefined)])), "m1 p aundefined");
  const inOrder = [said(1, "delivered"), answering(2, 1), said(3, "delivered"), answering(4, 3)];
  assert.equal(inTurns(inOrder), inOrder, "nothing moves where nothing waited");
});
