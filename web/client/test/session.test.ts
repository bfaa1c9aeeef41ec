/** The shells in a small world: who is asked for what, what is said on which connection, and what a bad frame costs. */
import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { test } from "node:test";
import { IDBFactory } from "fake-indexeddb";
import fc from "fast-check";
import { connect, HoldfastError, indexedDBOutbox, memoryOutbox, type ConnectOptions, type OutboxItem, type Session, type Why } from "../src/index.ts";
import { browser } from "../src/platform.ts";
import { agents } from "../src/agents.ts";
import { watch } from "../src/watch.ts";
import { FakePlatform, FakeSocket, ModelGateway, turn, until } from "./world.ts";

interface Place {
  platform: FakePlatform;
  gateway: ModelGateway;
  session: Session;
  asked: Why[];
  errors: string[];
  /** Let the newest socket in, and everything that is on its way arrive. */
  settle(): Promise<void>;
}

async function place(options: Partial<ConnectOptions> = {}, platform = new FakePlatform(), gateway = new ModelGateway()): Promise<Place> {
  const asked: Why[] = [];
  const errors: string[] = [];
  const getToken = (why: Why) => (asked.push(why), `jwt-${asked.length}`);
  const session = connect({ url: "https://gateway/", session: "s", getToken, outbox: memoryOutbox(), platform, ...options });
  session.on("error", ({ code }) => errors.push(code));
  await turn();
  const settle = async () => {
    for (let n = 0; n < 5; n++) {
      const socket = platform.newest!;
      if (socket.readyState === 0) gateway.join(socket);
      while (socket.readyState === 1 && socket.up.length) gateway.hear(socket, String(socket.up.shift()));
      while (socket.down.length) socket.arrive();
      await turn();
    }
  };
  return { platform, gateway, session, asked, errors, settle };
}

const rejects = (promise: Promise<unknown>, code: string) => assert.rejects(promise, (error) => error instanceof HoldfastError && error.code === code);

test("with a token: sub-protocols, never in the URL; fresh for every connection", async () => {
  const { platform, asked, settle } = await place();
  assert.deepEqual(platform.newest!.protocols, ["holdfast.chat.v2", "token.jwt-1"]);
  assert.equal(platform.newest!.url.href, "wss://gateway/ws/v2?sessionId=s");
  await settle();
  platform.newest!.end(1012);
  await platform.pass(1000);
  assert.deepEqual(platform.newest!.protocols, ["holdfast.chat.v2", "token.jwt-2"]);
  assert.deepEqual(asked, ["connect", "connect"]);
});

test("with tickets: one for each connection, asked for with the token", async () => {
  const { platform } = await place({ tickets: true });
  const [question] = platform.asked.splice(0);
  assert.deepEqual([question!.method, question!.url.pathname, question!.body], ["POST", "/api/tickets", { sessionId: "s" }]);
  assert.equal(question!.headers.Authorization, "Bearer jwt-1");
  question!.answer(201, { ticket: "once" });
  await turn();
  assert.equal(platform.newest!.url.searchParams.get("ticket"), "once");
  assert.deepEqual(platform.newest!.protocols, ["holdfast.chat.v2"]);
});

test("with the cookie alone: tickets, and the end when it is refused twice", async () => {
  const { platform, session } = await place({ getToken: undefined });
  for (let n = 0; n < 2; n++) {
    const [question] = platform.asked.splice(0);
    assert.equal(question!.headers.Authorization, undefined);
    question!.answer(401, { error: "no", code: "bad_token" });
    await turn();
  }
  assert.deepEqual([session.state.phase, session.state.code], ["ended", 401]);
});

test("a refused upgrade is looked into: 401 asks for one more token, 404 is the end", async () => {
  const { platform, session, asked } = await place();
  platform.newest!.end();
  const [probe] = platform.asked.splice(0);
  assert.equal(probe!.url.pathname, "/api/sandboxes/s/status");
  probe!.answer(401, {});
  await turn();
  assert.deepEqual(asked, ["connect", "refused"]);
  platform.newest!.end();
  platform.asked.shift()!.answer(404, { error: "there is no such session", code: "unknown_session" });
  await turn();
  assert.deepEqual([session.state.phase, session.state.code, session.state.reason], ["ended", 404, "there is no such session"]);
  assert.equal(platform.listeners, 0);
});

test("a gateway that cannot be reached is tried again and again; 429 as late as it says", async () => {
  const { platform, session } = await place();
  for (let n = 1; n < 5; n++) {
    platform.newest!.end();
    platform.asked.shift()!.fail();
    await turn();
    assert.deepEqual([session.state.phase, session.state.attempt], ["waiting", n]);
    await platform.pass(20_000);
    assert.equal(platform.sockets.length, n + 1);
  }
  platform.newest!.end();
  platform.asked.shift()!.answer(429, { error: "slowly" }, { "Retry-After": "30" });
  await platform.pass(29_000);
  assert.equal(session.state.phase, "waiting");
  await platform.pass(20_000);
  assert.equal(session.state.phase, "connecting");
});

test("a getToken that fails is asked again later, and one that says 401 is the end", async () => {
  let status = 0;
  const getToken = () => Promise.reject(Object.assign(new Error("signed out"), { status }));
  const { platform, session } = await place({ getToken });
  assert.equal(session.state.phase, "waiting");
  status = 401;
  await platform.pass(60_000);
  assert.deepEqual([session.state.phase, session.state.code], ["ended", 401]);
});

for (const tickets of [false, true])
  test(`a ${tickets ? "ticket" : "token"} that never comes holds nothing up: another is asked for, and the first counts no more`, async () => {
    const given: Array<(token: string) => void> = [];
    const getToken = () => (tickets ? "jwt" : new Promise<string>((resolve) => given.push(resolve)));
    const { platform, session, settle } = await place({ getToken, tickets });
    const asked = () => (tickets ? platform.asked : given).length;
    const give = (at: number) => (tickets ? platform.asked[at]!.answer(201, { ticket: `jwt-${at}` }) : given[at]!(`jwt-${at}`));
    await platform.pass(40_000);
    assert.deepEqual([asked(), session.state.phase], [2, "connecting"]);
    platform.set({ hidden: false });
    assert.equal(asked(), 3, "and at once when somebody looks");
    give(0);
    give(1);
    await turn();
    assert.equal(platform.sockets.length, 0);
    give(2);
    await turn();
    await settle();
    assert.deepEqual([platform.sockets.length, session.state.phase], [1, "online"]);
  });

test("auth_expiring is answered in band", async () => {
  const { platform, asked, settle } = await place();
  await settle();
  platform.newest!.arrive(JSON.stringify({ type: "auth_expiring", at: "soon" }));
  await turn();
  assert.deepEqual(asked, ["connect", "expiring"]);
  assert.deepEqual(JSON.parse(String(platform.newest!.up.shift())), { type: "auth", token: "jwt-2" });
});

test("half-open connections are found: no sign of life, and it begins anew with its position", async () => {
  const { platform, gateway, session, settle } = await place();
  await settle();
  session.send("hello");
  await settle();
  gateway.deliver();
  gateway.chunk("some words");
  await settle();
  const silent = platform.newest!;
  platform.set({ hidden: false });
  assert.equal(silent.up.at(-1), '{"type":"ping"}');
  await platform.pass(9_000);
  assert.equal(platform.sockets.length, 2);
  assert.equal(platform.newest!.url.searchParams.get("offset"), "1");
});

test("what is sent offline waits, and goes out in its order when there is a network", async () => {
  const platform = new FakePlatform();
  platform.online = false;
  const { gateway, session, settle } = await place({}, platform);
  assert.equal(session.state.phase, "offline");
  const sent = [session.send("one"), session.send("two"), session.send([{ type: "text", text: "three" }])];
  platform.set({ online: true });
  await turn();
  await settle();
  assert.deepEqual(gateway.records.map(({ content }) => content), ["one", "two", [{ type: "text", text: "three" }]]);
  assert.deepEqual(await Promise.all(sent.map(({ stored }) => stored)), [1, 2, 3].map((seq) => ({ seq, status: "stored" })));
  for (const _ of sent) gateway.deliver();
  await settle();
  assert.deepEqual(await sent[2]!.delivered, { seq: 3 });
});

test("a reload loses nothing: the next visit sends what the last could not, and a second tab too, once", async () => {
  const outbox = indexedDBOutbox("reload");
  const kept = async () => (await outbox.load("https://gateway s")).length;
  const first = await place({ outbox });
  first.session.send("typed before the reload");
  await until(async () => (await kept()) === 1);
  first.session.leave();
  const second = await place({ outbox: indexedDBOutbox("reload") }, undefined, first.gateway);
  const third = await place({ outbox: indexedDBOutbox("reload") }, undefined, first.gateway);
  await until(() => second.session.outbox.length === 1 && third.session.outbox.length === 1);
  await second.settle();
  await third.settle();
  assert.deepEqual(first.gateway.records.map(({ content }) => content), ["typed before the reload"]);
  await until(async () => second.session.outbox.length + third.session.outbox.length + (await kept()) === 0);
});

test("a clock that was set back does not put what is sent now before what an earlier visit left", async () => {
  const outbox = memoryOutbox();
  const offline = (time: number) => Object.assign(new FakePlatform(), { online: false, time });
  const first = await place({ outbox }, offline(9_000_000));
  for (const text of ["one", "two"]) first.session.send(text);
  await turn();
  first.session.leave();
  const platform = offline(1_000_000);
  const session = connect({ url: "https://gateway/", session: "s", getToken: () => "t", outbox, platform });
  for (const text of ["three", "four"]) session.send(text); // before it is known what there was
  await turn();
  session.send("five");
  await turn();
  const said = (items: OutboxItem[]) => items.map(({ frame }) => frame.content);
  assert.deepEqual(said(session.outbox), ["one", "two", "three", "four", "five"]);
  session.leave();
  const third = await place({ outbox }, offline(500_000));
  third.session.send("six");
  third.platform.set({ online: true });
  await turn();
  await third.settle();
  assert.deepEqual(third.gateway.records.map(({ content }) => content), ["one", "two", "three", "four", "five", "six"]);
});

test("a database that opens and then never answers does not keep messages from being sent", async () => {
  const factory = new IDBFactory();
  const open = factory.open.bind(factory);
  factory.open = (...asked) => {
    const request = open(...asked);
    request.addEventListener("success", () => {
      request.result.transaction = () => ({ objectStore: () => ({ getAll() {}, put() {}, delete() {} }) }) as unknown as IDBTransaction;
    });
    return request;
  };
  const { platform, gateway, session, errors, settle } = await place({ outbox: indexedDBOutbox("silent", factory) });
  const sent = session.send("hello");
  await settle();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual([gateway.lastSeq, errors], [0, []]);
  await platform.pass(5_000);
  await settle();
  assert.deepEqual([gateway.lastSeq, errors], [1, ["outbox_failed"]]);
  assert.deepEqual(await sent.stored, { seq: 1, status: "stored" });
});

test("refused: told, kept, resent as a new message or withdrawn", async () => {
  const { gateway, session, settle } = await place();
  gateway.nackNext = "buffer_full";
  const sent = session.send("too much");
  await settle();
  await rejects(sent.stored, "buffer_full");
  await rejects(sent.delivered, "buffer_full");
  assert.deepEqual(session.outbox.map(({ stage, reason }) => [stage, reason]), [["refused", "buffer_full"]]);
  const again = session.resend(sent.cid);
  await settle();
  assert.notEqual(again.cid, sent.cid);
  assert.deepEqual(await again.stored, { seq: 1, status: "stored" });
  await rejects(session.resend("nobody's").stored, "unknown_cid");
  gateway.nackNext = "archived";
  const other = session.send("late");
  await settle();
  assert.ok(session.withdraw(other.cid));
  assert.deepEqual(session.outbox, []);
});

test("what cannot be sent is refused at once, and harms no connection", async () => {
  const { gateway, session, errors, settle } = await place();
  let deep: unknown = "x";
  for (let n = 0; n < 100; n++) deep = [{ type: "t", deep }];
  await rejects(session.send(7 as never).stored, "invalid");
  await rejects(session.send([]).stored, "invalid");
  await rejects(session.send(deep as never).stored, "invalid");
  await rejects(session.send("x", { cid: "agent:1" }).stored, "invalid");
  await rejects(session.send("x".repeat(2 << 20)).stored, "too_long");
  assert.equal(errors.length, 5);
  session.send("half a \ud83d pair");
  await settle();
  assert.deepEqual(gateway.records.map(({ content }) => content), ["half a \ufffd pair"]);
});

test("a start is said until it was heard", async () => {
  const { platform, gateway, session, settle } = await place();
  session.start({ model: "m" });
  gateway.join(platform.newest!);
  while (platform.newest!.down.length) platform.newest!.arrive();
  assert.deepEqual(JSON.parse(String(platform.newest!.up[0])), { model: "m", type: "start" });
  platform.newest!.end();
  await platform.pass(1000);
  await settle();
  platform.newest!.end();
  await platform.pass(1000);
  gateway.join(platform.newest!);
  while (platform.newest!.down.length) platform.newest!.arrive();
  assert.deepEqual(platform.newest!.up, [], "it was heard on the second connection");
});

test("permissions open once and settle once, however they are heard of", async () => {
  const { platform, gateway, session, settle } = await place();
  const news: string[] = [];
  session.on("permission", ({ requestId }) => news.push(`open ${requestId}`));
  session.on("settled", ({ requestId, status }) => news.push(`${status} ${requestId}`));
  session.send("hello");
  await settle();
  gateway.deliver();
  gateway.ask();
  await settle();
  platform.newest!.end();
  await platform.pass(1000);
  await settle();
  session.answerPermission("r1", { allow: true });
  await settle();
  gateway.ask();
  await settle();
  gateway.leave(platform.newest!);
  platform.newest!.end();
  gateway.crash();
  await platform.pass(1000);
  await settle();
  assert.deepEqual(news, ["open r1", "answered r1", "open r3", "expired r3"]);
});

test("records that were missed are told of as a gap", async () => {
  const { platform, gateway, session, settle } = await place({ lastSeq: 0 });
  const gaps: unknown[] = [];
  session.on("gap", (gap) => gaps.push(gap));
  gateway.other("before", false);
  await settle();
  gateway.duplicate();
  await settle();
  platform.newest!.end();
  gateway.leave(platform.newest!);
  gateway.other("meanwhile", false);
  await platform.pass(1000);
  await settle();
  assert.deepEqual(gaps, [{ after: 0, lastSeq: 1 }, { after: 1, lastSeq: 2 }, { after: 3, lastSeq: 4 }]);
});

test("a listener that throws harms nobody else", async () => {
  const { session, settle } = await place();
  const thrown: unknown[] = [];
  const before = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.once("uncaughtException", (error) => thrown.push(error));
  session.on("welcome", () => {
    throw new Error("of the page");
  });
  let heard = 0;
  session.on("welcome", () => (heard += 1));
  await settle();
  for (const listener of before) process.on("uncaughtException", listener);
  assert.equal(heard, 1);
  assert.equal(thrown.length, 1);
});

test("whatever is said to it, nothing is thrown and the next message still goes out", async () => {
  const kinds = ["welcome", "record", "ack", "nack", "receipt", "expired", "interrupted", "connection_status", "session_status", "done", "error", "auth_expiring", "pong", "going_away"];
  const frame = fc.oneof(
    fc.string(),
    fc.json(),
    fc.record({ type: fc.constantFrom(...kinds), cid: fc.jsonValue(), seq: fc.jsonValue(), record: fc.jsonValue(), open: fc.jsonValue(), retryAfter: fc.jsonValue(), _offset: fc.jsonValue(), reason: fc.jsonValue() }, { requiredKeys: ["type"] }).map((value) => JSON.stringify(value)),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(frame, { maxLength: 30 }), async (frames) => {
      const { platform, gateway, session, settle } = await place();
      await settle();
      for (const each of frames) platform.newest!.arrive(each);
      const sent = session.send("still here");
      await settle();
      assert.equal((await sent.stored).seq, gateway.lastSeq);
      session.leave();
    }),
    { numRuns: 150 },
  );
});

test("leaving closes the terminals too, and lets go of page and network", async () => {
  const { platform, session, settle } = await place();
  const terminal = session.terminal("main", { cols: 80, rows: 24 });
  await turn();
  const socket = platform.newest!;
  assert.equal(socket.url.pathname + socket.url.search, "/terminal/s?name=main&cols=80&rows=24");
  assert.deepEqual(socket.protocols[0], "holdfast.terminal.v1");
  socket.open();
  socket.arrive(JSON.stringify({ type: "ready", epoch: "e", offset: 0, cols: 80, rows: 24, replayed: 0 }));
  terminal.write("ls\r");
  assert.deepEqual(socket.up.map((each) => (typeof each === "string" ? each : new TextDecoder().decode(each as Uint8Array))), ['{"type":"resize","cols":80,"rows":24}', "ls\r"]);
  platform.sockets.splice(1, 1);
  await settle();
  session.leave();
  assert.deepEqual([session.state.phase, terminal.state.phase, socket.readyState, platform.listeners, platform.timersSet], ["ended", "ended", 3, 0, 0]);
  assert.throws(() => session.terminal("a/b"), HoldfastError);
});

test("a list in several frames is told once, as one, and begins anew with its connection", async () => {
  const platform = new FakePlatform();
  const watching = watch({ url: "https://gateway", platform });
  const heard: string[][] = [];
  watching.on("sandboxes", ({ sandboxes }) => heard.push(sandboxes.map((each) => each.id)));
  const list = (ids: string, more?: boolean) =>
    platform.newest!.arrive(JSON.stringify({ type: "sandboxes", sandboxes: [...ids].map((id) => ({ id })), more }));
  await turn();
  platform.newest!.open();
  list("ab", true);
  assert.equal(watching.state.phase, "online", "the rest may take a while");
  list("cd", true);
  platform.newest!.end(1006);
  await platform.pass(60_000);
  platform.newest!.open();
  list("ab", true);
  list("c");
  list("x");
  assert.deepEqual(heard, [["a", "b", "c"], ["x"]]);
  watching.leave();
});

test("a long paste into a live terminal is sent whole, in pieces; without a connection it is taken whole or not at all", async () => {
  const { platform, session } = await place();
  const terminal = session.terminal();
  const errors: string[] = [];
  terminal.on("error", ({ code }) => errors.push(code));
  await turn();
  const greet = (socket: FakeSocket) => {
    socket.open();
    socket.arrive(JSON.stringify({ type: "ready", epoch: "e", offset: 0, cols: 80, rows: 24, replayed: 0 }));
  };
  const typed = (socket: FakeSocket) => Buffer.concat(socket.up.splice(0).filter((each) => typeof each !== "string") as Uint8Array[]).toString();
  const paste = Array.from({ length: 20_000 }, (_, n) => `line ${n}\r`).join("");
  const first = platform.newest!;
  greet(first);
  assert.ok(terminal.write(paste));
  assert.ok(first.up.every((each) => (each as Uint8Array).length <= 16 << 10));
  assert.equal(typed(first), paste);
  assert.equal(terminal.write(new Uint8Array((8 << 20) + 1)), false);
  first.readyState = 2; // it closes, and nobody has said so yet
  assert.equal(terminal.write(paste), false);
  assert.deepEqual([errors.splice(0), typed(first)], [["input_full", "input_full"], ""]);
  assert.ok(terminal.write("ls"));
  first.end();
  assert.ok(terminal.write("\r"));
  assert.equal(terminal.write(paste), false);
  assert.deepEqual(errors, ["input_full"]);
  await platform.pass(1000);
  greet(platform.newest!);
  assert.equal(typed(platform.newest!), "ls\r");
  const viewer = session.terminal("main", { role: "view" });
  viewer.on("error", () => assert.fail("who only looks is not troubled"));
  assert.equal(viewer.write("x"), false);
  session.leave();
});

test("the user's sessions are watched, each connection from the whole list on", async () => {
  const platform = new FakePlatform();
  const watching = watch({ url: "https://gateway", platform });
  const heard: string[] = [];
  for (const type of ["sandboxes", "sandbox", "gone", "sync", "error"] as const) watching.on(type, (event) => heard.push(`${type} ${JSON.stringify(event)}`));
  await turn();
  assert.deepEqual(platform.newest!.protocols, ["holdfast.events.v1"], "the cookie is shown by the browser");
  platform.newest!.open();
  for (const frame of [
    { type: "sandboxes", sandboxes: [{ id: "a" }, { no: "id" }] },
    { type: "sandbox", sandbox: { id: "a", status: "running" } },
    { type: "sync", id: "a", state: "syncing" },
    { type: "gone", id: "a" },
    { type: "sandbox" },
    { type: "of a later gateway" },
  ])
    platform.newest!.arrive(JSON.stringify(frame));
  assert.deepEqual(heard.map((each) => each.split(" ")[0]), ["sandboxes", "sandbox", "sync", "gone", "error"]);
  assert.equal(heard[0], 'sandboxes {"sandboxes":[{"id":"a"}]}');
  assert.equal(watching.state.phase, "online");
  platform.newest!.arrive(JSON.stringify({ type: "going_away", retryAfter: 5 }));
  platform.newest!.end(1012);
  await platform.pass(4_900);
  assert.equal(platform.sockets.length, 1);
  await platform.pass(2_000);
  assert.equal(platform.sockets.length, 2);
  watching.leave();
});

test("a clock that is set back holds nothing up", async (context) => {
  assert.ok(Math.abs(browser.now() - Date.now()) < 60_000, "one visit's time may be compared with the next one's");
  let asked = 0;
  const getToken = () => (asked++, Promise.reject(new Error("not yet")));
  const platform = Object.assign(Object.create(browser), { random: () => 0.1 });
  const session = connect({ url: "https://gateway", session: "s", getToken, outbox: memoryOutbox(), platform });
  await turn();
  const hourAgo = Date.now() - 3_600_000;
  context.mock.method(Date, "now", () => hourAgo);
  await until(() => asked > 1); // it is tried again
  session.leave();
});

test("a socket that is replaced says nothing any more", async () => {
  const { platform, session, settle } = await place();
  await settle();
  const old = platform.newest!;
  const states: string[] = [];
  session.on("state", ({ phase }) => states.push(phase));
  await platform.pass(60_000);
  const hear: FakeSocket["onmessage"] = old.onmessage;
  assert.equal(hear, null);
  assert.ok(states.includes("waiting"));
});

test("what waits for the agent is listed, cancelled and given more time, and the mode is set, over HTTP", async () => {
  const { platform, session } = await place();
  const ask = async (promise: Promise<unknown>, status: number, body: unknown) => {
    await turn();
    const question = platform.asked.pop()!;
    question.answer(status, body);
    return [question.method, question.url.pathname, question.body, await promise.catch((error: HoldfastError) => error.code)];
  };
  const waiting = { seq: 7, cid: "c", content: "later", inSandbox: true, expiresAt: null };
  assert.deepEqual(await ask(session.pending(), 200, { messages: [waiting, { cid: "no seq" }, "none"] }), ["GET", "/api/sandboxes/s/pending", undefined, [waiting]]);
  assert.deepEqual(await ask(session.pending(), 200, {}), ["GET", "/api/sandboxes/s/pending", undefined, []]);
  assert.deepEqual(await ask(session.cancel(7), 200, waiting), ["DELETE", "/api/sandboxes/s/pending/7", undefined, undefined]);
  assert.deepEqual(await ask(session.cancel(7), 409, { code: "not_pending", error: "the agent has it" }), ["DELETE", "/api/sandboxes/s/pending/7", undefined, "not_pending"]);
  assert.deepEqual(await ask(session.extend(7, 60), 200, waiting), ["POST", "/api/sandboxes/s/pending/7/extend", { seconds: 60 }, undefined]);
  assert.deepEqual(await ask(session.setMode("plan"), 200, {}), ["PATCH", "/api/sandboxes/s", { mode: "plan" }, undefined]);
  const listed = agents({ url: "https://gateway", getToken: () => "t", platform });
  const codex = { name: "codex", title: "Codex", available: false, reason: "Codex is not installed: run `holdfast agents install codex`" };
  assert.deepEqual(await ask(listed, 200, { agents: [codex, {}], default: "demo" }), ["GET", "/api/agents", undefined, { agents: [codex], default: "demo" }]);
  session.leave();
});

test("a message for the running turn says so, beside whatever else it says of itself", async () => {
  const { platform, gateway, session, settle } = await place();
  await settle();
  session.send("first");
  session.send("now", { metadata: { by: "me" }, steer: true });
  assert.deepEqual(platform.newest!.up.map((frame) => (JSON.parse(String(frame)) as { metadata?: unknown }).metadata), [undefined, { by: "me", steer: true }]);
  await settle();
  assert.equal(gateway.records.length, 2);
  session.leave();
});
