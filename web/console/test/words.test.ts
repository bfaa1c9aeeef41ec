import assert from "node:assert/strict";
import { test } from "node:test";
import { clock, count, duration, preciseClock, size } from "../src/panes/figures.ts";
import { eventOf, linesOf, matching } from "../src/panes/lines.ts";
import { passes, say, type Standing } from "../src/panes/standing.ts";
import { mix, parseHex } from "../src/panes/tint.ts";
import { agentHelp, agentName, imageWords, isDemo, limitWords, mayKeepDisk, memoryWords, namedImages, networkWords, queueWords, steers, versionOf } from "../src/words.ts";

const FINE: Standing = { phase: "online", status: "running", exit: null, error: null };

test("a terminal that works says nothing", () => {
  assert.equal(say(FINE, 0), null);
});

test("a lost connection is named before anything that was known over it", () => {
  const said = say({ ...FINE, phase: "waiting", retryAt: 4_500, exit: { code: 1, signal: null } }, 1_000);
  assert.match(said?.words ?? "", /Coming back in 4 s/);
  assert.equal(said?.act, undefined);
});

test("each state that stands in the way has its own words, and a way on where there is one", () => {
  assert.match(say({ ...FINE, status: "sleeping" }, 0)?.words ?? "", /type to wake/);
  assert.equal(say({ ...FINE, status: "paused" }, 0)?.act, undefined);
  assert.deepEqual(say({ ...FINE, exit: { code: 3, signal: null } }, 0), { tone: "warn", words: "The program ended with code 3.", act: "restart" });
  assert.match(say({ ...FINE, exit: { code: null, signal: "SIGKILL" } }, 0)?.words ?? "", /SIGKILL/);
  assert.equal(say({ ...FINE, phase: "ended", code: 1000 }, 0)?.act, "reopen");
  assert.equal(say({ ...FINE, phase: "ended", code: 4404 }, 0)?.act, undefined);
});

test("what is on the disk may stay only where the gateway says that the store has nothing", () => {
  const nothing = "generation 3 was stored, and the object store has nothing of this session: check HOLDFAST_OBJECTS, or resume with {keep:true} to go on with the files that are on its disk, or with {empty:true} to begin without files";
  assert.equal(mayKeepDisk({ status: "unrestored", reason: nothing }), true);
  assert.equal(mayKeepDisk({ status: "sleeping", reason: nothing }), false);
  assert.equal(mayKeepDisk({ status: "unrestored", reason: "the object store has generation 3 of this session: resume without {keep:true} to have it restored" }), false);
  assert.equal(mayKeepDisk({ status: "unrestored", reason: null }), false);
});

test("sizes, durations and counts read as people say them", () => {
  assert.deepEqual([0, 1023, 1024, 1536, 20 * 1024, 3 * 1024 ** 3].map(size), ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "20 KiB", "3.0 GiB"]);
  assert.deepEqual([0, 70, 1500, 9_940, 9_960, 63_500, 3_720_000].map(duration), ["0 ms", "70 ms", "1.5 s", "9.9 s", "10 s", "1 min 3 s", "1 h 2 min"]);
  assert.deepEqual([count(1, "file"), count(0, "file"), count(1200, "entry", "entries")], ["1 file", "0 files", "1,200 entries"]);
});

test("a log's lines are the newest, each with a key of its own", () => {
  const lines = linesOf("same\nsame\nlast\n");
  assert.deepEqual(lines.map((line) => line.text), ["same", "same", "last"]);
  assert.equal(new Set(lines.map((line) => line.key)).size, 3);
  assert.equal(linesOf("").length, 0);
  assert.ok(linesOf("x\n".repeat(5000)).length <= 2000);
});

test("a filter keeps the lines that have every word, wherever and however written", () => {
  const lines = linesOf("Agent started\nbridge started\nagent ended\n");
  assert.deepEqual(matching(lines, "AGENT start").map((line) => line.text), ["Agent started"]);
  assert.equal(matching(lines, "  ").length, 3);
});

test("only what the bridge wrote is taken apart; an agent's own line stays as it is", () => {
  assert.deepEqual(eventOf('{"time": 1.5, "event": "agent.started", "pid": 4}'), { at: 1500, name: "agent.started", fields: [["pid", "4"]] });
  for (const line of ["plain", "{broken", '{"event": 3}', "[1]", '{"a": 1}']) assert.equal(eventOf(line), null);
});

test("colours mix, and what is no colour is grey", () => {
  assert.equal(mix("#000000", "#ffffff", 0.5), "#808080");
  assert.deepEqual(parseHex("#abc"), [170, 187, 204]);
  assert.deepEqual(parseHex("rgb(1 2 3)"), [128, 128, 128]);
});

test("what is no time is told without one", () => {
  assert.equal(eventOf('{"event": "x", "time": 1e300}')?.at, null);
  for (const at of [1e303, Number.NaN, "never"]) assert.deepEqual([clock(at), preciseClock(at)], ["", ""]);
});

test("what leaves a terminal without a program is said until there is one", () => {
  for (const code of ["too_many", "start_failed", "held", "unknown_terminal"]) assert.ok(!passes({ code }), code);
  assert.ok(passes({ code: "input_full" }));
  assert.equal(say({ ...FINE, error: { code: "too_many", error: "there are 8 terminals" } }, 0)?.act, "reopen");
  assert.equal(say({ ...FINE, error: { code: "input_full", error: "" } }, 0)?.act, undefined);
});

test("what a network means is said as it is, and what the gateway does not allow names the setting", () => {
  assert.match(networkWords("outbound", "outbound", false), /every public host.*nobody reaches it/);
  assert.match(networkWords("hosts", "outbound", false), /these hosts and nothing else/);
  assert.equal(networkWords("none", "outbound", false), "The sandbox reaches nothing outside.");
  assert.match(networkWords("none", "none", false), /HOLDFAST_NETWORK_MAX/);
  assert.match(networkWords("none", "none", true), /nothing can be cloned.*HOLDFAST_NETWORK_MAX/);
});

test("a limit is said when it is near, and by its setting", () => {
  const of = (used: number | null, max: number, setting: string) => ({ used, max, setting });
  const far = { sessions: of(79, 100, "S"), running: of(null, 2, "R"), stored: of(10, 1 << 20, "B"), requests: of(null, 1, "Q"), agentRecords: of(null, 1, "A") };
  assert.deepEqual(limitWords(far), []);
  assert.deepEqual(limitWords({ ...far, sessions: of(80, 100, "S"), running: of(2, 2, "R"), stored: of(900 << 10, 1 << 20, "B") }), [
    "2 of 2 sandboxes run (R).",
    "You have 80 of 100 sessions (S).",
    "You have stored 900 KiB of 1.0 MiB (B).",
  ]);
});

test("who waits to be started is told where they stand, and why", () => {
  assert.equal(queueWords({ position: 1, reason: null }), "It is the next to start.");
  assert.equal(queueWords({ position: 3, reason: "2 sandboxes run" }), "It is number 3 of those that wait to start. 2 sandboxes run.");
});

test("where a provider's sandboxes have no way out, the gateway clones for those who might", () => {
  assert.match(networkWords("none", "outbound", false, ["none"]), /no way out yet/);
  assert.match(networkWords("none", "outbound", true, ["none"]), /gateway clones the repository/);
  assert.match(networkWords("none", "none", true, ["none"]), /nothing can be cloned/);
  assert.doesNotMatch(networkWords("none", "none", false, ["none"]), /HOLDFAST/);
});

test("images that may be named are told, and those that are names are offered", () => {
  const slim = { image: "debian:13", images: ["debian:*-slim", "python:3.13", "debian:13"] };
  assert.equal(imageWords(slim), "These may be named: debian:*-slim, python:3.13, debian:13. Left empty, it is debian:13.");
  assert.deepEqual(namedImages(slim), ["debian:13", "python:3.13"]);
  assert.equal(imageWords({ image: null, images: ["**"] }), "Any image may be named.");
  assert.deepEqual(namedImages({ image: null, images: ["**"] }), []);
});

const AGENTS = {
  default: "demo",
  agents: [
    { name: "demo", title: "Demo agent, built in", version: null, installed: [], current: null, available: true, reason: null },
    { name: "claude-code", title: "Claude Code", version: "2", installed: ["2"], current: "2", available: true, reason: null },
    { name: "gemini", title: "Gemini CLI", version: "1", installed: [], current: null, available: false, reason: "not installed" },
  ],
};

test("an agent is called by its title, and a command by its program", () => {
  assert.deepEqual([null, "claude-code", "claude-code@1.2", "other", ["/usr/bin/python3", "-c", "x"], { command: ["/bin/serve"] }].map((chosen) => agentName(chosen, AGENTS)), ["Demo agent", "Claude Code", "Claude Code", "other", "python3", "serve"]);
  assert.equal(agentName(null, undefined), "");
  assert.deepEqual([isDemo(null, AGENTS), isDemo("claude-code", AGENTS), isDemo(null, { ...AGENTS, default: "codex" })], [true, false, false]);
});

test("the version is the one that was asked for, or the one that is installed", () => {
  assert.deepEqual([null, "claude-code", "claude-code@1.2", "gemini", "other", ["x"]].map((chosen) => versionOf(chosen, AGENTS)), [undefined, "2", "1.2", undefined, undefined, undefined]);
});

test("whether an agent remembers is said of those that do, and of those that forgot", () => {
  assert.match(memoryWords("claude-code@2", AGENTS, false), /remembers/);
  assert.deepEqual([memoryWords(null, AGENTS, false), memoryWords("none", AGENTS, false), memoryWords(["x"], AGENTS, false)], ["", "", ""]);
  assert.match(memoryWords(["x"], AGENTS, true), /forgotten/);
});

test("only to agents that take it something is said while they work", () => {
  assert.deepEqual([null, "demo", "gemini", "claude-code", "claude-code@2.1", "acp:x", "some command", ["claude-code"]].map((chosen) => steers(chosen, AGENTS)), [false, false, false, true, true, false, false, false]);
  assert.equal(steers(null, { ...AGENTS, default: "claude-code" }), true);
});

test("what an agent needs is said before a session is made with it", () => {
  assert.match(agentHelp("claude-code", "none"), /ANTHROPIC_API_KEY.*a network that reaches its model/);
  assert.doesNotMatch(agentHelp("codex", "outbound"), /Outbound/);
  assert.match(agentHelp("none", "none"), /Terminals/);
});
