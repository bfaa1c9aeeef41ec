import assert from "node:assert/strict";
import { test } from "node:test";
import { KEPT, merged, readTransition, rounds, shares, type SyncState, type Transition } from "../src/panes/rounds.ts";

const START = Date.parse("2026-01-01T10:00:00.000Z");

function at(ms: number, state: SyncState, more: Partial<Transition> = {}): Transition {
  return { state, generation: null, at: new Date(START + ms).toISOString(), ...more };
}

const KEEPING = [
  at(0, "idle", { generation: 3 }),
  at(1000, "pending", { generation: 3 }),
  at(3000, "syncing", { generation: 3, attempt: 1 }),
  at(3200, "flushing", { generation: 3, attempt: 1 }),
  at(3250, "idle", { generation: 4 }),
];

test("a round is from the first request to the rest after it, and says which generation it made", () => {
  const [round, ...others] = rounds(KEEPING);
  assert.equal(others.length, 0);
  assert.equal(round?.outcome, "kept");
  assert.equal(round?.generation, 4);
  assert.deepEqual(shares(round!, 0), [
    { state: "pending", ms: 2000 },
    { state: "syncing", ms: 200 },
    { state: "flushing", ms: 50 },
  ]);
});

test("a round that found nothing new does not claim a generation of its own", () => {
  const same = KEEPING.map((each) => ({ ...each, generation: 3 }));
  assert.equal(rounds(same)[0]?.outcome, "unchanged");
});

test("the first round of all makes the first generation", () => {
  const first = [at(0, "pending"), at(10, "syncing", { attempt: 1 }), at(20, "flushing", { attempt: 1 }), at(30, "idle", { generation: 1 })];
  assert.equal(rounds(first)[0]?.outcome, "kept");
});

test("attempts of one round are one round, and why it gave up is kept", () => {
  const failing = [
    at(0, "syncing", { attempt: 1 }),
    at(100, "syncing", { attempt: 2, reason: "no answer" }),
    at(300, "syncing", { attempt: 3, reason: "no answer" }),
    at(400, "failed", { reason: "given up" }),
  ];
  const [round, ...others] = rounds(failing);
  assert.equal(others.length, 0);
  assert.deepEqual([round?.outcome, round?.attempts, round?.reason], ["failed", 3, "given up"]);
  assert.deepEqual(shares(round!, 0), [{ state: "syncing", ms: 400 }]);
});

test("after a failure, the try in the background is another round", () => {
  const tries = [at(0, "syncing", { attempt: 1 }), at(1, "failed"), at(100, "syncing", { attempt: 1 }), at(110, "flushing"), at(120, "idle", { generation: 1 })];
  assert.deepEqual(rounds(tries).map((round) => round.outcome), ["kept", "failed"]);
});

test("a round that the sandbox's end broke off is lost, not kept", () => {
  assert.equal(rounds([at(0, "syncing"), at(10, "unrestored")])[0]?.outcome, "lost");
});

test("a round under way has no end, and its last state lasts until now", () => {
  const [round] = rounds(KEEPING.slice(0, 3));
  assert.equal(round?.outcome, "running");
  assert.equal(round?.to, null);
  assert.deepEqual(shares(round!, START + 4000).at(-1), { state: "syncing", ms: 1000 });
});

test("history that begins in the middle of a round is no reason to lose what follows", () => {
  const cut = KEEPING.slice(3).concat([at(9000, "pending", { generation: 4 })]);
  assert.deepEqual(rounds(cut).map((round) => round.outcome), ["running", "kept"]);
});

test("what came as history and again live is there once, in order, whichever came first", () => {
  for (let split = 0; split <= KEEPING.length; split += 1) {
    for (let overlap = 0; overlap <= split; overlap += 1) {
      const history = KEEPING.slice(0, split);
      const live = KEEPING.slice(split - overlap);
      assert.deepEqual(merged(history, live), KEEPING);
    }
  }
});

test("a page keeps a bounded number of transitions, the newest", () => {
  const many = Array.from({ length: KEPT + 50 }, (_, index) => at(index, index % 2 ? "idle" : "pending"));
  const kept = merged([], many);
  assert.equal(kept.length, KEPT);
  assert.deepEqual(kept.at(-1), many.at(-1));
});

test("what is no transition is none", () => {
  for (const bad of [null, 3, "idle", {}, { state: "dancing", at: "2026-01-01T10:00:00Z" }, { state: "idle", at: "yesterday" }, { state: "idle" }]) assert.equal(readTransition(bad), null);
  assert.deepEqual(readTransition({ state: "idle", at: "2026-01-01T10:00:00Z", generation: "x", attempt: null, reason: "" }), { state: "idle", generation: null, at: "2026-01-01T10:00:00Z" });
});
