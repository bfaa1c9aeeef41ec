import assert from "node:assert/strict";
import { test } from "node:test";
import { busy, type Look, uses } from "../src/usage.ts";

const MiB = 1024 ** 2;
const look = (at: number, seconds: number | null, more: Partial<Look> = {}): Look => ({
  at, incarnation: 1, limits: { memory: 512 * MiB, cpus: 2, pids: null }, usage: { memory: 128 * MiB, cpuSeconds: seconds, pids: 7 }, ...more,
});

test("processors are what was used between two looks", () => {
  assert.equal(busy(look(10, 4), look(12, 5)), 0.5);
  assert.equal(busy(undefined, look(12, 5)), undefined);
  assert.equal(busy(look(10, 4), look(10, 5)), undefined);
  assert.equal(busy(look(10, 4), look(12, 3)), undefined, "another start began at 0");
  assert.equal(busy(look(10, 4), look(12, 5, { incarnation: 2 })), undefined);
  assert.equal(busy(look(10, null), look(12, 5)), undefined);
});

test("what is used stands beside its limit, as a share where there is one", () => {
  assert.deepEqual(uses(look(10, 4), look(12, 5)), [
    { what: "Memory", words: "128 MiB of 512 MiB", share: 0.25 },
    { what: "Processors", words: "0.5 of 2", share: 0.25 },
    { what: "Processes", words: "7, no limit", share: undefined },
  ]);
});

test("before a second look, processors are only limited", () => {
  assert.deepEqual(uses(undefined, look(12, 5))[1], { what: "Processors", words: "at most 2", share: undefined });
});

test("nothing is said of what nobody knows, and no share is more than the whole", () => {
  assert.deepEqual(uses(undefined, look(1, null, { limits: null, usage: null })), []);
  assert.deepEqual(uses(undefined, look(1, null, { limits: null, usage: { memory: 3 * MiB, cpuSeconds: null, pids: null } })), [{ what: "Memory", words: "3.0 MiB, no limit", share: undefined }]);
  const over = look(1, null, { usage: { memory: 600 * MiB, cpuSeconds: null, pids: null } });
  assert.equal(uses(undefined, over)[0]?.share, 1);
});
