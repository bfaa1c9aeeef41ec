import assert from "node:assert/strict";
import { test } from "node:test";
import { api, ApiError } from "../src/api.ts";

/** Answers that never come, or never end, until whoever asked gives up. */
const never = (signal: AbortSignal | null | undefined): Promise<never> =>
  new Promise((_, reject) => {
    assert.ok(signal, "nobody would give up");
    signal.addEventListener("abort", () => reject(signal.reason as Error));
  });

for (const [what, answer] of [
  ["never comes", (init: RequestInit) => never(init.signal)],
  ["never ends", async (init: RequestInit) => ({ ok: true, status: 200, json: () => never(init.signal) })],
] as const)
  test(`who is here, and by which token, is not waited for where the answer ${what}`, async (context) => {
    const given: number[] = [];
    const real = AbortSignal.timeout.bind(AbortSignal);
    context.mock.method(AbortSignal, "timeout", (within: number) => (given.push(within), real(5)));
    context.mock.method(globalThis, "fetch", (_: string, init: RequestInit) => answer(init));
    const running = setTimeout(() => {}, 1000); // a signal's own clock does not keep a process
    for (const ask of [api.me, api.token]) await assert.rejects(ask(), (error) => error instanceof ApiError && error.code === "unreachable");
    clearTimeout(running);
    assert.deepEqual(given, [30_000, 30_000]);
  });
