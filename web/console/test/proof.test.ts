import assert from "node:assert/strict";
import { test } from "node:test";
import { account, resumed } from "../src/panes/proof.ts";

const item = (seq: number | undefined, cid: string, status = "stored") => ({ kind: "message", cid, status, ...(seq === undefined ? {} : { seq }) });

test("what is in history once is stored, and nothing else is", () => {
  const found = account(["a", "b"], [item(1, "a"), item(2, "b")], [{ seq: 1, cid: "a" }, { seq: 2, cid: "b" }]);
  assert.deepEqual({ ...found }, { sent: 2, stored: 2, twice: 0, waiting: 0, refused: 0, lost: 0, records: 2, missing: 0, surplus: 0 });
});

test("a message that is nowhere is lost, whatever the page says of it", () => {
  assert.equal(account(["a"], [], []).lost, 1);
  assert.equal(account(["a"], [item(undefined, "a", "stored")], []).lost, 1);
});

test("a message that the page still holds is waiting, one that it marks is refused; neither is lost", () => {
  const found = account(["a", "b"], [item(undefined, "a", "queued"), item(undefined, "b", "expired")], []);
  assert.deepEqual([found.waiting, found.refused, found.lost], [1, 1, 0]);
});

test("a message that is in history twice is not simply stored", () => {
  const found = account(["a"], [item(1, "a")], [{ seq: 1, cid: "a" }, { seq: 2, cid: "a" }]);
  assert.deepEqual([found.stored, found.twice], [0, 1]);
});

test("a hole in the page and a record too many are both found", () => {
  const found = account([], [item(1, "a"), item(9, "x")], [{ seq: 1, cid: "a" }, { seq: 2, cid: "b" }]);
  assert.deepEqual([found.missing, found.surplus], [1, 1]);
});

test("the answer to a question is shown with it, and is no hole", () => {
  assert.equal(account([], [item(1, "q")], [{ seq: 1, cid: "q", type: "permission_request" }, { seq: 2, cid: "r", type: "permission_response" }]).missing, 0);
});

test("a terminal resumed exactly only if it is the same program at the same byte, and nothing was redrawn", () => {
  const before = { epoch: "e", offset: 10 };
  assert.deepEqual(resumed(before, { epoch: "e", offset: 10 }, false), { how: "exactly", offset: 10 });
  assert.equal(resumed(before, { epoch: "e", offset: 10 }, true).how, "redrawn");
  assert.equal(resumed(before, { epoch: "e", offset: 12 }, false).how, "redrawn");
  assert.equal(resumed(before, { epoch: "f", offset: 10 }, false).how, "another");
  assert.equal(resumed(before, { epoch: "", offset: 0 }, false).how, "away");
  assert.equal(resumed(before, null, false).how, "away");
});
