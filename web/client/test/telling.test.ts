/** What the random histories of transcript.test.ts do not come to: markers, trimming, another conversation, keys, notes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Telling } from "../src/telling.ts";
import type { Page, StoredRecord, Welcome } from "../src/types.ts";

const record = (seq: number, members: Partial<StoredRecord> = {}): StoredRecord => ({ seq, cid: `c${seq}`, role: "user", type: "message", content: `m${seq}`, metadata: {}, status: "delivered", ...members });
const page = (messages: StoredRecord[], lastSeq = messages.at(-1)?.seq ?? 0, firstSeq = 1): Page => ({ messages, lastSeq, firstSeq });
const welcome = (lastSeq: number, members: Partial<Welcome> = {}): Welcome => ({ type: "welcome", epoch: "e", offset: 0, lastSeq, first: true, ...members });
const answer = (seq: number, place: string | number, status = "complete"): StoredRecord => record(seq, { role: "assistant", cid: `agent:e:${place}`, content: "words", status });

function telling(...messages: StoredRecord[]): Telling {
  const made = new Telling();
  made.welcomed(welcome(messages.length));
  made.read(made.history.wanted!, page(messages), false);
  return made;
}
const texts = (made: Telling) => made.items.map((item) => ("text" in item ? item.text : item.kind));

test("an answer keeps its key from the first word to its record", () => {
  const made = telling(record(1));
  made.framed({ type: "stream_start", _offset: 1 });
  const { key } = made.items[1]!;
  made.framed({ type: "chunk", _offset: 2, text: "wor" });
  made.framed({ type: "chunk", _offset: 3, text: "ds and more" });
  made.framed({ type: "sdk_message", _offset: 4, message: { type: "assistant", message: { content: [{ type: "text", text: "words" }, { type: "tool_use", id: "t" }] } } });
  assert.deepEqual([made.items[1]!.key, texts(made)], [key, ["m1", "words"]]);
  assert.deepEqual(made.items[1]!.kind === "answer" && made.items[1]!.blocks, [{ type: "text", at: 0 }, { type: "tool_use", id: "t" }]);
  made.told({ record: answer(2, 5), omitted: false });
  made.framed({ type: "done", _offset: 5, seq: 2 });
  assert.deepEqual(made.items.map((item) => [item.key, item.status]), [["message:c1", "delivered"], [key, "complete"]]);
});

test("an answer whose record was missed is shown as it was heard, until it is read, apart from the next", () => {
  const made = telling(record(1), record(2));
  made.framed({ type: "chunk", _offset: 1, text: "first" });
  made.framed({ type: "done", _offset: 2, seq: 3 });
  made.framed({ type: "chunk", _offset: 3, text: "second" });
  assert.deepEqual(made.items.map((item) => item.status), ["delivered", "delivered", "complete", "streaming"]);
  assert.deepEqual(made.history.wanted, { after: 2, limit: 100 });
  made.read({ after: 2, limit: 100 }, page([answer(3, 2)], 3), false);
  assert.deepEqual(texts(made), ["m1", "m2", "words", "second"]);
  assert.equal(made.history.wanted, undefined);
});

test("words that come after the record of their answer are not shown twice", () => {
  const made = telling(record(1));
  made.told({ record: answer(2, 3), omitted: false });
  made.framed({ type: "chunk", _offset: 1, text: "words" });
  assert.deepEqual(texts(made), ["m1", "words"]);
  made.framed({ type: "done", _offset: 3, seq: 2 });
  assert.deepEqual(texts(made), ["m1", "words"]);
});

test("another process begins with nothing; what the last one left is a record", () => {
  const made = telling(record(1));
  made.framed({ type: "chunk", _offset: 1, text: "wor" });
  made.told({ record: answer(2, "end", "incomplete"), omitted: false });
  made.status({ status: "agent_exited", reason: "killed" });
  made.welcomed(welcome(2, { epoch: "f", first: false }));
  made.framed({ type: "chunk", _offset: 1, text: "new" });
  assert.deepEqual(made.items.map(({ kind }) => kind), ["message", "answer", "note", "answer"]);
  assert.deepEqual(texts(made), ["m1", "words", "killed", "new"]);
});

test("a host that was refused is told of, and the answer goes on", () => {
  const made = telling(record(1));
  made.framed({ type: "chunk", _offset: 1, text: "wor" });
  made.status({ status: "host_denied", host: "a.example", port: 443, reason: "a.example is not allowed", allow: "a.example" });
  made.framed({ type: "chunk", _offset: 2, text: "ds" });
  assert.deepEqual(texts(made).toSorted(), ["a.example is not allowed", "m1", "words"]);
});

test("a message is there once: waiting, acknowledged, as a record, whichever is heard first", () => {
  const made = telling(record(1));
  made.kept([{ cid: "mine", frame: { type: "message", content: "hi" }, order: 1, stage: "sent" }]);
  assert.deepEqual(made.items.map((item) => [item.key, item.status]).at(-1), ["message:mine", "sent"]);
  made.acked({ cid: "mine", seq: 2, stage: "stored", status: "stored" });
  made.kept([]);
  made.moved({ seq: 2 }, "delivered");
  assert.deepEqual(made.items.map((item) => [item.key, item.status]).at(-1), ["message:mine", "delivered"]);
  made.told({ record: record(2, { cid: "mine", content: "hi", status: "stored" }), omitted: false });
  assert.deepEqual(made.items.map((item) => [item.key, item.status]), [["message:c1", "delivered"], ["message:mine", "delivered"]]);
});

test("what the store refused after all is read again, with what it answered", () => {
  const asked = record(1, { role: "assistant", cid: "agent:e:1", type: "permission_request", content: { requestId: "r" }, status: "answered" });
  const made = telling(asked, record(2, { type: "permission_response", content: { requestId: "r", allow: true } }));
  assert.deepEqual(made.items.map((item) => "answer" in item && item.answer), [{ requestId: "r", allow: true }]);
  made.nacked({ cid: "c2", reason: "rejected", retried: false });
  assert.deepEqual(made.history.wanted, { after: 0, limit: 100 });
});

test("a marker says so in the place of its record", () => {
  const made = telling(record(1), record(2));
  made.history.reread(2);
  made.read({ after: 1, limit: 100 }, page([record(2, { type: "rejected", cid: "rejected:2", status: "rejected", content: "", metadata: { reason: "too odd" } })], 2), false);
  assert.deepEqual(made.items.map((item) => [item.kind, item.kind === "note" && item.type, item.status]), [["message", false, "delivered"], ["note", "rejected", "rejected"]]);
});

test("what was trimmed away before it was read is not there, and nothing waits for it", () => {
  const made = telling(record(1), record(2));
  made.welcomed(welcome(9));
  made.read(made.history.wanted!, page([record(7), record(8), record(9)], 9, 7), false);
  assert.deepEqual(texts(made), ["m7", "m8", "m9"]);
  assert.deepEqual([made.history.wanted, made.history.more], [undefined, false]);
});

test("fewer records than before: another conversation, read from its beginning", () => {
  const made = telling(record(1), record(2), record(3));
  made.welcomed(welcome(1));
  assert.deepEqual(made.items, []);
  made.read(made.history.wanted!, page([record(1, { content: "another" })]), false);
  assert.deepEqual(texts(made), ["another"]);
});

const another = (seq: number) => record(seq, { cid: `d${seq}`, content: `n${seq}` });

for (const [name, lastSeq] of [["as many", 2], ["more", 5]] as const)
  test(`${name} records, and other ones: another conversation, read from its newest page on`, () => {
    const made = telling(answer(1, 1), answer(2, 2));
    made.note("error", "of the first", {});
    made.welcomed(welcome(lastSeq, { epoch: "f" }));
    const question = made.history.wanted!;
    assert.deepEqual(question, { after: 1, limit: 100 });
    const all = Array.from({ length: lastSeq }, (_, at) => another(at + 1));
    made.read(question, page(all.slice(1)), false);
    assert.deepEqual([made.items, made.history.ready], [[], false]);
    made.told({ record: another(lastSeq + 1), omitted: false });
    made.read(made.history.wanted!, page([...all, another(lastSeq + 1)]), false);
    assert.deepEqual(texts(made), [...all, another(lastSeq + 1)].map(({ content }) => content));
    assert.equal(made.history.wanted, undefined);
  });

test("the same conversation is not read anew: its last record is, unless the agent's frames go on", () => {
  const made = telling(answer(1, 1), answer(2, 2));
  made.welcomed(welcome(2, { recovered: true }));
  assert.equal(made.history.wanted, undefined);
  made.welcomed(welcome(2, { recovered: false }));
  assert.deepEqual(made.history.wanted, { after: 1, limit: 100 });
  const marker = record(2, { cid: "rejected:2", role: "system", type: "rejected", status: "rejected", metadata: { cid: "agent:e:2", type: "message" } });
  made.read({ after: 1, limit: 100 }, page([marker]), false);
  assert.deepEqual(made.items.map(({ kind }) => kind), ["answer", "note"]);
  assert.equal(made.history.wanted, undefined);
});

test("a page of the conversation before that comes late is found out", () => {
  const made = new Telling();
  made.welcomed(welcome(2));
  const question = made.history.wanted!;
  made.welcomed(welcome(3, { epoch: "f" }));
  made.read(question, page([answer(1, 1), answer(2, 2)]), true);
  made.read(made.history.wanted!, page([another(2), another(3)]), false);
  made.read(made.history.wanted!, page([another(1), another(2), another(3)]), false);
  assert.deepEqual(texts(made), ["n1", "n2", "n3"]);
});

test("an answer that is on its way is shown with what it answers", () => {
  const made = telling(record(1, { role: "assistant", cid: "agent:e:1", type: "question", content: { requestId: "r", questions: [] }, status: "open" }));
  made.kept([{ cid: "a", frame: { type: "ask_user_answer", requestId: "r", answers: "red" }, order: 1, stage: "queued" }]);
  const [item] = made.items;
  assert.ok(item?.kind === "question" && item.status === "open" && item.sending && item.answer?.answers === "red");
  made.moved({ seq: 1 }, "expired");
  assert.equal(made.items[0]!.status, "expired");
});

test("where frames are gone the words begin anew, also those of the same process", () => {
  const made = telling(record(1), record(2));
  made.framed({ type: "chunk", _offset: 1, text: "of the first" });
  made.welcomed(welcome(3, { recovered: false, offset: 7 }));
  made.framed({ type: "chunk", _offset: 8, text: "of the second" });
  assert.deepEqual(texts(made), ["m1", "m2", "of the second"]);
  made.read(made.history.wanted!, page([record(1), record(2), answer(3, 7)], 3), false);
  assert.deepEqual(texts(made), ["m1", "m2", "words", "of the second"]);
});

// An answer of a later process was taken for that of a message whose process had died unheard.
test("a status older than an answer says nothing about whose answer it is", () => {
  const made = telling(record(1));
  made.told({ record: record(2), omitted: true });
  made.read({ after: 1, limit: 100 }, page([record(2), record(3, { role: "assistant", cid: "agent:f:4", status: "complete" })], 3), false);
  made.welcomed(welcome(3, { epoch: "f" }));
  assert.deepEqual(made.history.wanted, { after: 0, limit: 100 });
});

const frame = (_offset: number, type: string, members: object = {}) => ({ type, _offset, ...members });

test("what the agent thinks and does is beside its words while they come, and stays for who saw it", () => {
  const made = telling(record(1));
  made.framed(frame(1, "thinking", { text: "Let me " }));
  made.framed(frame(2, "thinking", { text: "see." }));
  made.framed(frame(3, "todo", { items: [{ content: "look", status: "in_progress" }] }));
  made.framed(frame(4, "chunk", { text: "I look" }));
  made.framed(frame(5, "thinking", { text: "Done." }));
  made.framed(frame(6, "file_change", { path: "a.py", action: "created" }));
  made.framed(frame(7, "file_change", { path: "a.py", action: "changed" }));
  made.framed(frame(8, "usage", { inputTokens: 5, costUsd: 0.1 }));
  const work = { thinking: "Let me see.\n\nDone.", todo: { items: [{ content: "look", status: "in_progress" }] }, usage: { inputTokens: 5, costUsd: 0.1 }, changes: [{ path: "a.py", action: "changed" }] };
  const shown = made.items[1]!;
  assert.deepEqual([shown.kind, shown.kind === "answer" && shown.work], ["answer", work]);
  made.framed(frame(9, "done", { seq: 2, metadata: { costUsd: 0.2 } }));
  const ended = made.items[1]!;
  assert.deepEqual(ended.kind === "answer" && ended.work, { ...work, usage: { costUsd: 0.2 } });
  made.told({ record: { ...answer(2, 9), metadata: { todo: work.todo } }, omitted: false });
  const kept = made.items[1]!;
  assert.deepEqual(kept.kind === "answer" && kept.work, { thinking: work.thinking, changes: work.changes, todo: work.todo });
  assert.deepEqual(kept.key, shown.key);
});

test("of what nobody saw there is what the record has", () => {
  const made = telling(record(1), { ...answer(2, 5), metadata: { plan: { steps: [] }, usage: { inputTokens: 1 }, costUsd: 0.5, todo: "no list" } });
  const shown = made.items[1]!;
  assert.deepEqual(shown.kind === "answer" && shown.work, { thinking: "", changes: [], plan: { steps: [] }, usage: { inputTokens: 1, costUsd: 0.5 } });
});

test("thoughts of a process that is gone are no answer; a todo alone is none either", () => {
  const made = telling(record(1));
  made.framed(frame(1, "todo", { items: [] }));
  assert.equal(made.items.length, 1);
  made.framed(frame(2, "thinking", { text: "hm" }));
  assert.equal(made.items.length, 2);
  made.status({ status: "agent_exited", reason: "killed" });
  assert.deepEqual(made.items.map(({ kind }) => kind), ["message", "note"]);
});

test("thoughts and changes are bounded", () => {
  const made = telling(record(1));
  for (let n = 1; n <= 300; n++) made.framed(frame(n, "thinking", { text: "x".repeat(1000) }));
  for (let n = 301; n <= 600; n++) made.framed(frame(n, "file_change", { path: `f${n}` }));
  const shown = made.items[1]!;
  assert.deepEqual(shown.kind === "answer" && [shown.work.thinking.length, shown.work.changes.length], [65536, 200]);
});

test("who the agent is, and whether it tries again, is as it said last", () => {
  const made = telling(record(1));
  made.framed(frame(1, "agent_status", { name: "Claude Code", model: "m1" }));
  made.framed(frame(2, "agent_status", { status: "retrying", attempt: 1, of: 3, model: 7 }));
  assert.deepEqual([made.agent.name, made.agent.model, made.agent.retrying?.attempt], ["Claude Code", "m1", 1]);
  made.framed(frame(3, "chunk", { text: "there" }));
  assert.deepEqual(made.agent, { name: "Claude Code", model: "m1" });
  made.framed(frame(4, "agent_status", { status: "notice", message: "look here" }));
  assert.equal(made.items.find(({ kind }) => kind === "note")?.kind === "note" && made.items.some((item) => item.kind === "note" && item.text === "look here"), true);
});

test("an answer that names what it answers leaves the others owed", () => {
  const named = { ...answer(4, 5), metadata: { answers: [1, 3] } };
  const made = telling(record(1), record(2), record(3), named);
  made.welcomed(welcome(4));
  assert.deepEqual(made.history.wanted, { after: 1, limit: 100 }, "2 may have changed");
});
