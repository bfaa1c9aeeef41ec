/** What is owed to a gateway, against a model of one that keeps, refuses, forgets to answer and is cut off at any frame. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Conversation, LONGEST_FRAME, MOST_BYTES, MOST_ITEMS, TRIES, type Fate } from "../src/conversation.ts";
import type { Json, OutboxItem } from "../src/types.ts";

const RUNS = Number(process.env.HOLDFAST_TEST_RUNS ?? 300) * 10;
const message = (content: string) => ({ type: "message", content });

interface Kept {
  cid: string;
  seq: number;
  stage: "accepted" | "stored";
  status: string;
}

/** Keeps each cid once, in the order it first came; may say `accepted` first. */
class Model {
  kept: Kept[] = [];
  refused = new Map<string, string>();
  down: Json[] = [];
  up: Json[] = [];
  remote = false;
  private next: string | undefined;

  refuse(reason: string): void {
    this.next = reason;
  }

  hear(): void {
    const frame = this.up.shift();
    if (!frame) return;
    const cid = String(frame.cid);
    const known = this.kept.find((each) => each.cid === cid);
    if (!known && this.next) {
      this.refused.set(cid, this.next);
      this.down.push({ type: "nack", cid, reason: this.next });
      this.next = undefined;
      return;
    }
    this.refused.delete(cid);
    const record = known ?? { cid, seq: this.kept.length + 1, stage: this.remote ? "accepted" : "stored", status: "stored" };
    if (!known) this.kept.push(record as Kept);
    this.ack(record as Kept);
  }

  private ack({ cid, seq, stage, status }: Kept): void {
    this.down.push({ type: "ack", cid, seq, stage, status });
  }

  store(): void {
    for (const each of this.kept)
      if (each.stage === "accepted") {
        each.stage = "stored";
        this.ack(each);
      }
  }

  become(status: string): void {
    const waiting = this.kept.find((each) => each.status === "stored");
    if (!waiting) return;
    waiting.status = status;
    this.down.push(status === "delivered" ? { type: "receipt", cid: waiting.cid, seq: waiting.seq } : { type: status === "cancelled" ? "expired" : status, reason: status, cid: waiting.cid, seq: waiting.seq });
  }
}

type Step = { do: "offer" | "connect" | "cut" | "up" | "down" | "twice" | "store" | "remote" | "adopt" } | { do: "refuse" | "become"; how: string } | { do: "pass"; time: number };
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 12, arbitrary: fc.record({ do: fc.constantFrom("offer", "up", "up", "down", "down", "connect", "cut", "twice", "store", "adopt") }) as fc.Arbitrary<Step> },
  { weight: 1, arbitrary: fc.constant<Step>({ do: "remote" }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("refuse" as const), how: fc.constantFrom("busy", "storage_unavailable", "owner_moved", "buffer_full", "archived") }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("become" as const), how: fc.constantFrom("delivered", "delivered", "expired", "interrupted", "cancelled") }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("pass" as const), time: fc.integer({ min: 1, max: 20_000 }) }) },
);

test("everything offered is kept once or refused with its reason, whatever is cut, and everybody hears which", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (plan) => {
      const talk = new Conversation();
      const model = new Model();
      const fates = new Map<string, Fate[]>();
      let connected = false;
      let now = 0;
      let offered = 0;
      const outbox = new Map<string, OutboxItem>();
      const settle = () => {
        const { items, fates: told } = talk.take();
        for (const [cid, item] of items) item ? outbox.set(cid, item) : outbox.delete(cid);
        for (const fate of told) fates.set(fate.cid, [...(fates.get(fate.cid) ?? []), fate]);
      };
      const flush = () => {
        for (let frame; connected && (frame = talk.next(now)); ) model.up.push(frame);
        settle();
      };
      const connect = () => {
        connected = true;
        model.up = [];
        model.down = [];
        talk.heard({ type: "welcome", epoch: "e", offset: 0 }, now, 0.5);
        talk.connected();
        flush();
      };
      const hear = (frame: Json | undefined) => {
        if (!connected || !frame) return;
        assert.ok(talk.heard(frame, now, 0.5));
        if (frame.reason === "owner_moved") connected = false; // 4409 follows
        flush();
      };
      for (const each of plan) {
        if (each.do === "offer") {
          assert.equal(talk.offer(message(`m${offered}`), `c${offered++}`, offered), undefined);
          flush();
        } else if (each.do === "connect") connect();
        else if (each.do === "cut") connected = false;
        else if (each.do === "up") connected && model.hear();
        else if (each.do === "down") hear(model.down.shift());
        else if (each.do === "twice") hear(model.down[0]);
        else if (each.do === "remote") model.remote = !model.remote;
        else if (each.do === "refuse") model.refuse(each.how);
        else if (each.do === "become") model.become(each.how);
        else if (each.do === "pass") (now += each.time), flush();
        else if (each.do === "adopt") talk.adopt([...outbox.values()]);
        else model.store();
        settle();
      }
      model.refuse("");
      for (let n = 0; n < 4; n++) {
        connect();
        for (let quiet = 0; quiet < 3; now += 20_000, quiet++) {
          flush();
          while (model.up.length) model.hear();
          model.store();
          while (model.down.length) hear(model.down.shift());
          if (!connected) break;
        }
      }
      const told = (cid: string, to: string) => (fates.get(cid) ?? []).filter((fate) => fate.to === to);
      const left = new Map(talk.outbox.map((item) => [item.cid, item]));
      for (let n = 0; n < offered; n++) {
        const cid = `c${n}`;
        const kept = model.kept.find((each) => each.cid === cid);
        const item = left.get(cid);
        if (!kept) {
          assert.equal(item?.stage, "refused", `${cid} is nowhere`);
          assert.equal(item?.reason, model.refused.get(cid));
          assert.equal(told(cid, "failed").length, 1);
          continue;
        }
        const over = told(cid, "failed")[0] as (Fate & { to: "failed" }) | undefined;
        assert.ok(told(cid, "stored").length === 1 || over?.seq === kept.seq, `${cid} was stored, and nobody was told`);
        assert.equal(told(cid, "delivered").length, Number(kept.status === "delivered"));
        if (kept.status === "expired" || kept.status === "interrupted" || kept.status === "cancelled") assert.equal(over?.code, kept.status);
        assert.equal(item?.stage, kept.status === "expired" ? "expired" : undefined);
      }
      assert.deepEqual([...outbox.keys()].sort(), [...left.keys()].sort(), "the outbox has what is left, and nothing else");
    }),
    { numRuns: RUNS },
  );
});

test("in order: nothing younger goes out while something waits to be tried again", () => {
  const talk = new Conversation();
  for (const n of [1, 2, 3]) talk.offer(message(`${n}`), `c${n}`, n);
  talk.connected();
  assert.equal(talk.next(0)!.cid, "c1");
  talk.heard({ type: "nack", cid: "c1", reason: "busy" }, 0, 0.5);
  assert.ok(talk.goesOn("c1"));
  assert.equal(talk.next(1), undefined);
  assert.deepEqual(["c1", "c2", "c3"], [0, 1, 2].map(() => talk.next(talk.hold ?? 1e9)!.cid));
});

test("a refusal that passes is tried so often and not for ever; one that may last is told at once", () => {
  const talk = new Conversation();
  talk.offer(message("x"), "c", 1);
  for (let n = 0; n <= TRIES; n++) {
    assert.equal(talk.next(n * 1e6)!.cid, "c");
    talk.heard({ type: "nack", cid: "c", reason: "storage_unavailable" }, n * 1e6, 0.5);
  }
  assert.equal(talk.outbox[0]!.stage, "refused");
  talk.offer(message("y"), "d", 2);
  talk.next(0);
  talk.heard({ type: "nack", cid: "d", reason: "buffer_full", error: "full" }, 0, 0.5);
  assert.deepEqual(talk.outbox.map(({ stage, reason }) => [stage, reason]), [["refused", "storage_unavailable"], ["refused", "buffer_full"]]);
  assert.deepEqual(talk.withdraw("d"), message("y"));
  assert.equal(talk.outbox.length, 1);
});

test("a message that is stored does not come back into the outbox, and leaves it even if it was refused before", () => {
  const talk = new Conversation();
  for (const cid of ["a", "b", "c"]) talk.offer(message(cid), cid, 1);
  while (talk.next(0));
  talk.heard({ type: "ack", cid: "a", seq: 1, stage: "stored" }, 0, 0.5);
  for (const cid of ["b", "c"]) talk.heard({ type: "nack", cid, reason: "storage_full" }, 0, 0.5);
  assert.deepEqual(talk.outbox.map(({ cid }) => cid), ["b", "c"]);
  talk.take();
  talk.heard({ type: "ack", cid: "a", seq: 1, stage: "accepted" }, 0, 0.5);
  talk.heard({ type: "ack", cid: "b", seq: 2, stage: "stored" }, 0, 0.5);
  talk.heard({ type: "receipt", cid: "c", seq: 3 }, 0, 0.5);
  assert.deepEqual(talk.take(), { items: new Map([["b", undefined], ["c", undefined]]), fates: [] });
  assert.deepEqual(talk.outbox, []);
});

test("what is on its way cannot be taken back, what never left can", () => {
  const talk = new Conversation();
  talk.offer(message("x"), "c", 1);
  talk.offer(message("y"), "d", 2);
  talk.next(0);
  assert.equal(talk.withdraw("c"), undefined);
  assert.deepEqual(talk.withdraw("d"), message("y"));
  assert.deepEqual(talk.take().fates, [{ cid: "d", to: "failed", code: "withdrawn", error: undefined }]);
});

test("the outbox has a bound in items and in bytes, and a frame one of its own", () => {
  const many = new Conversation();
  for (let n = 0; n < MOST_ITEMS; n++) assert.equal(many.offer(message("x"), `c${n}`, n), undefined);
  assert.equal(many.offer(message("x"), "more", 1e9), "outbox_full");
  const large = new Conversation();
  const half = message("x".repeat(LONGEST_FRAME / 2));
  for (let n = 0; n < (2 * MOST_BYTES) / LONGEST_FRAME - 1; n++) assert.equal(large.offer(half, `c${n}`, n), undefined);
  assert.equal(large.offer(half, "more", 1e9), "outbox_full");
  assert.equal(new Conversation().offer(message("x".repeat(LONGEST_FRAME)), "c", 1), "too_long");
});

test("a connection that ended because of a long frame is not ended by it again", () => {
  const talk = new Conversation();
  talk.offer(message("short"), "c", 1);
  talk.offer(message("long".repeat(100)), "d", 2);
  assert.equal(talk.tooLong(), false, "nothing was sent");
  while (talk.next(0));
  assert.equal(talk.tooLong(), true);
  assert.deepEqual(talk.outbox.map(({ cid, stage }) => [cid, stage]), [["c", "sent"], ["d", "refused"]]);
});

test("an answer that somebody else gave first is dropped", () => {
  const talk = new Conversation();
  talk.offer({ type: "permission_response", requestId: "r" }, "c", 1);
  talk.next(0);
  talk.heard({ type: "nack", cid: "c", reason: "already_answered" }, 0, 0.5);
  assert.deepEqual(talk.outbox, []);
});

test("each frame of the agent is heard once, of each process", () => {
  const talk = new Conversation();
  const offsets = fc.array(fc.tuple(fc.integer({ min: 1, max: 30 }), fc.boolean()), { maxLength: 100 });
  fc.assert(
    fc.property(offsets, (frames) => {
      let heard = 0;
      talk.heard({ type: "welcome", epoch: "e", offset: 0 }, 0, 0);
      for (const [offset, another] of frames) {
        if (another) talk.heard({ type: "welcome", epoch: "f", offset: (heard = 0) }, 0, 0);
        assert.equal(talk.heard({ type: "chunk", _offset: offset }, 0, 0), offset > heard);
        heard = Math.max(heard, offset);
      }
    }),
    { numRuns: RUNS / 5 },
  );
});
