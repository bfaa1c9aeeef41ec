/** What a client does, as data: the cases of tests/vectors/, which the Python client is run against as well. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { UnfinishedAnswer } from "../src/answer.ts";
import { Connection } from "../src/connection.ts";
import { Conversation } from "../src/conversation.ts";
import { TerminalView, type ViewEvent } from "../src/viewing.ts";
import { agentAfter, stepsOf } from "../src/work.ts";

const FOLDER = process.env.HOLDFAST_TEST_VECTORS ?? new URL("../../../tests/vectors", import.meta.url).pathname;
const SHARE = 0.5;
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- what a file says
type Any = any;

// when to come back

function ended(connection: Connection, step: Any, now: number): unknown {
  const owed =
    step.status === undefined
      ? connection.on({ type: "closed", code: step.code, opened: true }, now, SHARE)
      : connection.on({ type: "refused", status: step.status, retryAfter: step.retryAfter }, now, SHARE);
  const { phase, retryAt = 0 } = connection.state;
  if (phase === "ended") return "end";
  return phase === "connecting" && owed.some((effect) => effect.do === "open" && effect.why === "refused") ? "at once" : retryAt - now;
}

function started(): Connection {
  const connection = new Connection();
  connection.on({ type: "start" }, 0, SHARE);
  return connection;
}

function closeCode(each: Any): void {
  const connection = started();
  if (each.code !== undefined) connection.on({ type: "greeted" }, 0, SHARE);
  assert.equal(ended(connection, each, 1000), each.then);
}

function connections({ steps }: Any): void {
  const connection = started();
  for (const step of steps) {
    if (step.greeted) connection.on({ type: "greeted" }, step.at, SHARE);
    else if (step.goingAway !== undefined) connection.on({ type: "going_away", retryAfter: step.goingAway }, step.at, SHARE);
    else if (step.closed !== undefined) assert.equal(ended(connection, { code: step.closed }, step.at), step.then, JSON.stringify(step));
    else if (step.refused !== undefined) assert.equal(ended(connection, { status: step.refused }, step.at), step.then, JSON.stringify(step));
    else if (step.opens) connection.on({ type: "due" }, step.at, SHARE);
    else assert.fail(`an unknown step ${JSON.stringify(step)}`);
  }
}

// what is owed

function sent(talk: Conversation, now: number): Any[] {
  const found = [];
  for (let frame; (frame = talk.next(now)); ) found.push(frame);
  return found;
}

function nack({ reason, again }: Any): void {
  const talk = new Conversation();
  talk.offer({ type: "message", content: "x" }, "c", 1);
  talk.connected();
  assert.equal(sent(talk, 0).length, 1);
  talk.heard({ type: "nack", cid: "c", reason }, 0, SHARE);
  assert.deepEqual(sent(talk, 0), []);
  let found = sent(talk, 60_000).length ? "paused" : "";
  talk.connected();
  found ||= sent(talk, 60_000).length ? "connected" : "never";
  assert.equal(found, again === "decided" ? "never" : again);
}

function chat({ steps }: Any): void {
  const talk = new Conversation();
  let now = 0;
  let order = 0;
  for (const step of steps) {
    const told = JSON.stringify(step);
    if (step.offer) {
      const frame = step.times ? { ...step.offer, content: step.offer.content.repeat(step.times) } : step.offer;
      assert.equal(talk.offer(frame, step.cid, ++order), step.refused, told);
    } else if (step.connect) {
      assert.ok(talk.heard(step.connect, now, SHARE));
      talk.connected();
    } else if (step.at !== undefined) now = step.at;
    else if (step.sends) assert.deepEqual(sent(talk, now), step.sends, told);
    else if (step.hear) {
      assert.equal(talk.heard(step.hear, now, SHARE), step.shown ?? true, told);
      if (step.goesOn !== undefined) assert.equal(talk.goesOn(step.hear.cid), step.goesOn, told);
    } else if (step.position) assert.deepEqual(texts(talk.position()), step.position, told);
    else if (step.tooLong !== undefined) assert.equal(talk.tooLong(), step.tooLong !== null, told);
    else assert.fail(`an unknown step ${told}`);
    const fates = talk.take().fates.map(({ cid, to, ...more }: Any) => given({ cid, to, seq: more.seq, code: more.code }));
    assert.deepEqual(fates, step.fates ?? [], told);
  }
}

function texts(query: Record<string, string | number>): Record<string, string> {
  return Object.fromEntries(Object.entries(query).map(([name, value]) => [name, String(value)]));
}

function given(members: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

// terminals

function terminal({ role, size, steps }: Any): void {
  const view = new TerminalView("main", role === "drive", size ? { cols: size[0], rows: size[1] } : undefined);
  for (const step of steps) {
    const told = JSON.stringify(step);
    if (step.connect) assert.deepEqual(texts(view.connecting()), texts(step.connect), told);
    else if (step.hear) assert.deepEqual(shown(view.hear(JSON.stringify(step.hear))), step.events, told);
    else if (step.bytes !== undefined) assert.deepEqual(shown(view.hear(new TextEncoder().encode(step.bytes).buffer as ArrayBuffer)), step.events, told);
    else if (step.type) assert.equal(view.type(new TextEncoder().encode(step.type.repeat(step.times ?? 1)), step.live), step.taken, told);
    else if (step.resize) view.resize({ cols: step.resize[0], rows: step.resize[1] });
    else if (step.sends) assert.deepEqual(said(view), step.sends, told);
    else if (step.position !== undefined) assert.deepEqual(view.position ? texts({ ...view.position }) : null, step.position, told);
    else assert.fail(`an unknown step ${told}`);
  }
}

function said(view: TerminalView): unknown[] {
  const control: unknown[] = [];
  let typed = "";
  for (let frame; (frame = view.next()) !== undefined; ) typeof frame === "string" ? control.push(JSON.parse(frame)) : (typed += new TextDecoder().decode(frame));
  return typed ? [...control, typed] : control;
}

function shown(events: ViewEvent[]): unknown[] {
  const found: Any[] = [];
  for (const each of events as Any[]) {
    const { type, event } = each;
    const text = event?.data && new TextDecoder().decode(event.data);
    if (type === "data") {
      const whole = found.at(-1)?.event === "data" ? found.pop() : { event: "data", old: "", new: "" };
      found.push(event.old ? { ...whole, old: whole.old + text } : { ...whole, new: whole.new + text });
    } else if (type === "ready") found.push({ event: type, goesOn: event.goesOn, absent: event.absent, cols: event.cols, rows: event.rows });
    else if (type === "reset") found.push({ event: type, data: text, cols: event.cols, rows: event.rows });
    else if (type === "error" && event.code === "bad_frame") found.push({ event: "bad" });
    else found.push({ event: type, ...event });
  }
  return found;
}

// agents

function agent({ frames, ...wanted }: Any): void {
  const answer = new UnfinishedAnswer();
  let known = {};
  let steps: unknown[] = [];
  for (const [nth, frame] of frames.entries()) {
    answer.feed({ ...frame, _offset: nth + 1 });
    known = agentAfter(known, frame);
    if (frame.type === "plan" || frame.type === "todo") steps = stepsOf(frame).map(({ text, state }) => [text, state]);
  }
  assert.equal(answer.text, wanted.text);
  assert.deepEqual(answer.blocks, wanted.blocks ?? []);
  assert.deepEqual(steps, wanted.steps ?? []);
  assert.deepEqual(known, wanted.agent ?? {});
}

const RUNNERS: Record<string, (each: Any) => void> = {
  "close_codes.json": closeCode,
  "connections.json": connections,
  "nacks.json": nack,
  "resumes.json": chat,
  "chats.json": chat,
  "outbox.json": chat,
  "terminals.json": terminal,
  "agents.json": agent,
};

test("every file of vectors has its runner", () => {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
  assert.deepEqual(files.sort(), Object.keys(RUNNERS).sort());
});

for (const [name, run] of Object.entries(RUNNERS))
  test(`vectors: ${name}`, () => {
    const cases: Any[] = JSON.parse(readFileSync(`${FOLDER}/${name}`, "utf8"));
    assert.ok(cases.length);
    for (const each of cases)
      try {
        run(each);
      } catch (error) {
        throw new Error(`${name}: ${each.name ?? JSON.stringify(each)}: ${(error as Error).message}`, { cause: error });
      }
  });
