/**
 * Random conversations over connections that end at any frame: whatever was cut, repeated, read late or heard in another
 * order, the items in the end are the history, and the agent's unfinished words.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { memoryOutbox } from "../src/outbox.ts";
import { connect, type Session } from "../src/session.ts";
import { transcript } from "../src/transcript.ts";
import type { Item, Json, SessionEvents, StoredRecord } from "../src/types.ts";
import { FakePlatform, ModelGateway, turn } from "./world.ts";

const RUNS = Number(process.env.HOLDFAST_TEST_RUNS ?? 300);

type Step =
  | { do: "send" | "chunk"; text: string }
  | { do: "answer" | "answers" | "deliver" | "sum" | "done" | "ask" | "crash" | "expire" | "duplicate" | "overrun" | "cut" | "join" | "refuse" }
  | { do: "down" | "up" | "serve" | "lose" | "wait"; times: number }
  | { do: "other"; text: string; omitted: boolean }
  | { do: "order"; recordFirst: boolean }
  | { do: "nack"; reason: string };

const word = fc.string({ minLength: 1, maxLength: 4 });
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant("send" as const), text: word }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("chunk" as const), text: word }) },
  { weight: 12, arbitrary: fc.record({ do: fc.constantFrom("down" as const, "up" as const), times: fc.integer({ min: 1, max: 6 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom("serve" as const, "lose" as const, "wait" as const), times: fc.integer({ min: 1, max: 3 }) }) },
  { weight: 12, arbitrary: fc.record({ do: fc.constantFrom("answer", "answers", "answers", "deliver", "deliver", "sum", "done", "done", "ask", "join", "cut") }) as fc.Arbitrary<Step> },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom("crash", "expire", "duplicate", "overrun", "refuse") }) as fc.Arbitrary<Step> },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("other" as const), text: word, omitted: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("order" as const), recordFirst: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("nack" as const), reason: fc.constantFrom("busy", "owner_moved", "storage_unavailable") }) },
);

/** A record as it is to be seen: the test's own words for it. */
function expected(records: StoredRecord[]): Json[] {
  const shown: Json[] = [];
  for (const { seq, type, role, content, status } of records) {
    if (type === "permission_request") shown.push({ kind: "permission", seq, status, answer: undefined });
    else if (type === "permission_response") {
      const { requestId } = content as { requestId: string };
      const request = records.findLast((each) => each.seq < seq && each.type === "permission_request" && (each.content as Json).requestId === requestId);
      const item = shown.find((each) => each.seq === request?.seq);
      if (item) item.answer = content;
    } else if (type !== "message") shown.push({ kind: "note", seq, status });
    else shown.push({ kind: role === "assistant" ? "answer" : "message", seq, text: content, status });
  }
  return shown;
}

function seen(items: Item[]): Json[] {
  return items.map((item) => {
    if ("requestId" in item) return { kind: item.kind, seq: item.seq, status: item.status, answer: item.answer };
    if (item.kind === "note") return { kind: item.kind, seq: item.seq, status: item.status };
    return { kind: item.kind, seq: item.seq, text: item.text, status: item.status };
  });
}

class World {
  platform: FakePlatform;
  gateway = new ModelGateway();
  session: Session;
  transcript;
  frames: Array<{ epoch: string; offset: number }> = [];
  fates: Array<Promise<unknown>> = [];
  open = new Set<string>();
  private epoch = "";

  constructor(chance: () => number) {
    this.platform = new FakePlatform(chance);
    this.session = connect({ url: "http://gateway", session: "s", getToken: () => "t", outbox: memoryOutbox(), platform: this.platform });
    this.transcript = transcript(this.session);
    this.session.on("welcome", ({ epoch }) => (this.epoch = epoch));
    this.session.on("frame", ({ _offset }) => this.frames.push({ epoch: this.epoch, offset: _offset }));
    this.session.on("permission", ({ requestId }) => this.open.add(requestId));
    this.session.on("settled", ({ requestId }: SessionEvents["settled"]) => this.open.delete(requestId));
    this.session.on("error", ({ code, error }) => assert.fail(`${code}: ${error}`));
  }

  async take(step: Step): Promise<void> {
    const { gateway, platform, session } = this;
    const socket = platform.newest;
    switch (step.do) {
      case "send":
        this.fates.push(session.send(step.text).stored);
        break;
      case "answer":
        for (const requestId of this.open) session.answerPermission(requestId, { allow: true });
        break;
      case "chunk":
        gateway.chunk(step.text);
        break;
      case "join":
        if (socket?.readyState === 0) gateway.join(socket);
        break;
      case "refuse":
        if (socket?.readyState === 0) socket.end();
        break;
      case "cut":
        if (socket?.readyState === 1) this.cut();
        break;
      case "down":
        for (let n = 0; n < step.times && socket?.down.length; n++) socket.arrive();
        break;
      case "up":
        for (let n = 0; n < step.times && socket?.readyState === 1 && socket.up.length; n++) gateway.hear(socket, String(socket.up.shift()));
        break;
      case "serve":
        for (let n = 0; n < step.times; n++) this.serve();
        break;
      case "answers":
        this.answers.shift()?.();
        break;
      case "lose":
        platform.asked.shift()?.fail();
        break;
      case "wait":
        await platform.pass(step.times * 1000);
        break;
      case "other":
        gateway.other(step.text, step.omitted);
        break;
      case "order":
        gateway.recordFirst = step.recordFirst;
        break;
      case "nack":
        gateway.nackNext = step.reason;
        if (step.reason === "owner_moved") this.owes = true;
        break;
      default:
        gateway[step.do]();
    }
    await turn();
  }

  private owes = false;

  cut(code = 1006): void {
    const socket = this.platform.newest!;
    this.gateway.leave(socket);
    socket.end(code);
  }

  private answers: Array<() => void> = []; // of the gateway, under way

  private serve(): void {
    const asked = this.platform.asked.shift();
    if (!asked) return;
    const answer = asked.url.pathname.endsWith("/messages") ? this.gateway.history(asked.url.searchParams) : {};
    this.answers.push(() => asked.answer(200, structuredClone(answer)));
  }

  /** From here on nothing goes wrong any more, until nothing is on its way. */
  async calm(): Promise<void> {
    const { gateway, platform } = this;
    gateway.nackNext = undefined;
    if (this.owes && platform.newest?.readyState === 1) this.cut(4409);
    for (let quiet = 0, n = 0; quiet < 3; n++) {
      assert.ok(n < 5000, "it never comes to rest");
      const socket = platform.newest;
      const before = platform.asked.length + this.answers.length + (socket?.down.length ?? 0) + (socket?.readyState === 1 ? socket.up.length : 1);
      if (socket?.readyState === 0) gateway.join(socket);
      while (socket?.readyState === 1 && socket.up.length) gateway.hear(socket, String(socket.up.shift()));
      while (socket?.down.length) socket.arrive();
      while (platform.asked.length) this.serve();
      for (const answer of this.answers.splice(0)) answer();
      await turn();
      await platform.pass(before ? 10 : 12_000);
      quiet = before ? 0 : quiet + 1;
    }
  }
}

test("whatever is cut, repeated or late, the items are the history in the end", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(steps, { minLength: 5, maxLength: 90, size: "max" }), fc.infiniteStream(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })), async (plan, chances) => {
      const world = new World(() => chances.next().value ?? 0.5);
      await turn();
      for (const step of plan) await world.take(step);
      await world.calm();
      const { gateway, session, transcript } = world;
      const items = transcript.items.filter((item) => item.kind !== "note" || item.seq !== undefined);
      const writing = gateway.begun ? [{ kind: "answer", seq: undefined, text: gateway.unfinished, status: "streaming" }] : [];
      assert.deepEqual(seen(items), [...expected(gateway.records), ...writing]);
      assert.deepEqual(session.outbox.filter(({ stage }) => stage !== "expired"), []);
      assert.equal(new Set(transcript.items.map(({ key }) => key)).size, transcript.items.length, "keys are unique");
      const sent = await Promise.all(world.fates);
      assert.equal(new Set(sent.map((each) => (each as { seq: number }).seq)).size, sent.length, "each was stored, once");
      for (let at = 1; at < world.frames.length; at++) {
        const [one, next] = [world.frames[at - 1]!, world.frames[at]!];
        assert.ok(one.epoch !== next.epoch || one.offset < next.offset, "each frame of the agent is heard once");
      }
      session.leave();
      await turn();
      assert.equal(world.platform.listeners, 0);
    }),
    { numRuns: RUNS, endOnFailure: !!process.env.HOLDFAST_TEST_QUICK, ...(process.env.HOLDFAST_TEST_SEED ? { seed: Number(process.env.HOLDFAST_TEST_SEED), path: process.env.HOLDFAST_TEST_PATH } : {}) },
  );
});

// Once, whoever had left was asked again and again without a pause, and the page's memory went with it.
test("a session that has ended is not asked for its history for ever", async () => {
  const platform = new FakePlatform();
  const session = connect({ url: "http://gateway", session: "s", getToken: () => "t", outbox: memoryOutbox(), platform });
  transcript(session);
  await turn();
  session.leave();
  let asked = 0;
  for (let n = 0; n < 20; n++) {
    for (const question of platform.asked.splice(0)) {
      question.fail();
      asked += 1;
    }
    await platform.pass(20_000);
  }
  assert.ok(asked <= 1);
});

test("a session that was purged and made again while the page was away is shown as it is now", async () => {
  const world = new World(() => 0.5);
  const say = (...texts: string[]) => texts.forEach((text) => world.gateway.records.push({ seq: world.gateway.lastSeq + 1, cid: `cid of ${text}`, role: "user", type: "message", content: text, metadata: {}, status: "complete" }));
  say("one", "two", "three");
  await turn();
  await world.calm();
  assert.deepEqual(seen(world.transcript.items), expected(world.gateway.records));
  world.cut();
  world.gateway = new ModelGateway();
  say("uno", "due", "tre", "quattro");
  await world.calm();
  assert.deepEqual(seen(world.transcript.items), expected(world.gateway.records));
});

test("a history that cannot be read is asked for again after a pause, and earlier pages when they are wanted", async () => {
  const platform = new FakePlatform();
  const session = connect({ url: "http://gateway", session: "s", getToken: () => "t", outbox: memoryOutbox(), platform });
  const shown = transcript(session);
  const errors: string[] = [];
  shown.on("error", ({ code }) => errors.push(code));
  const gateway = new ModelGateway();
  for (let n = 1; n <= 250; n++) gateway.other(`m${n}`, false);
  await turn();
  platform.asked.shift()!.answer(503, { error: "the store does not answer", code: "storage_unavailable" });
  await turn();
  assert.deepEqual([shown.loaded, errors, platform.asked.length], [false, ["storage_unavailable"], 0]);
  const serve = async () => {
    await platform.pass(10_000);
    for (const asked of platform.asked.splice(0)) asked.answer(200, gateway.history(asked.url.searchParams));
    await turn();
  };
  await serve();
  assert.deepEqual([shown.loaded, shown.more, shown.items.length], [true, true, 100]);
  for (const [length, more] of [[200, true], [250, false]] as const) {
    const earlier = shown.earlier();
    await turn();
    await serve();
    assert.deepEqual([await earlier, shown.items.length], [more, length]);
  }
  assert.equal(await shown.earlier(), false);
  assert.deepEqual(shown.items.map((item) => item.kind === "message" && item.text), gateway.records.map(({ content }) => content));
});
